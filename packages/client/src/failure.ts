import { type FailureKind, HoldfastError } from '@holdfast/std'

const KINDS: Readonly<Record<number, FailureKind>> = {
  400: 'invalid',
  401: 'unauthorized',
  403: 'unauthorized',
  404: 'not_found',
  409: 'conflict',
  410: 'gone',
  413: 'too_large',
  415: 'unsupported_media',
  422: 'unprocessable',
  429: 'rate_limited',
  501: 'not_implemented',
  502: 'unavailable',
  503: 'unavailable',
  504: 'unavailable',
}

/**
 * What the service refused with, as an error: `code` and `message` are the problem's `code` and
 * `detail`, `details` hold its other members (`activeRunId`, `floor`, `errors`) and `status`.
 */
export async function failureOf(response: Response): Promise<HoldfastError> {
  const problem = await problemOf(response)
  const kind = KINDS[response.status] ?? (response.status < 500 ? 'invalid' : 'internal')
  const code = typeof problem.code === 'string' ? problem.code : `http_${response.status}`
  const detail = typeof problem.detail === 'string' ? problem.detail : response.statusText
  return new HoldfastError(kind, code, detail, { details: { ...problem, status: response.status } })
}

/** A proxy on the way may answer with anything, so a body that is no problem counts as none. */
async function problemOf(response: Response): Promise<Record<string, unknown>> {
  const body = await response.text()
  try {
    const parsed: unknown = JSON.parse(body)
    return typeof parsed === 'object' && parsed !== null ? { ...parsed } : {}
  } catch {
    return {}
  }
}
