import { createHash } from 'node:crypto'
import { asError, backoffMs, HoldfastError, wait } from '@holdfast/std'
import { AwsClient } from 'aws4fetch'
import type { S3Place } from './config.ts'

export type S3Request = {
  readonly method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE'
  /** Below the bucket and the prefix; left out: the bucket. */
  readonly path?: string
  readonly query?: Readonly<Record<string, string>>
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: Uint8Array<ArrayBuffer>
}

export type S3Requests = {
  readonly place: string
  readonly prefix: string
  /**
   * One signed request; what passes by itself is tried again. 404 is an answer, every other refusal is thrown.
   * @throws HoldfastError unavailable/overloaded, or internal/artifacts_refused with S3's code
   */
  send(request: S3Request, signal?: AbortSignal): Promise<Response>
}

const TRIES = 4
/** Until the head of the answer is there, with the whole of what is sent. */
const ANSWER_MS = 60_000

export function s3Requests(place: S3Place): S3Requests {
  const { accessKeyId, secretAccessKey, sessionToken, region, bucket } = place
  const client = new AwsClient({
    accessKeyId,
    secretAccessKey,
    service: 's3',
    region,
    ...(sessionToken ? { sessionToken } : {}),
  })
  const endpoint = (place.endpoint ?? `https://s3.${region}.amazonaws.com`).replace(/\/+$/, '')
  const prefix = place.prefix === '' ? '' : `${place.prefix}/`

  function urlOf({ path, query }: S3Request): URL {
    // By path and not by host name: all S3-compatible servers and all names of buckets can do it.
    const url = new URL(`${endpoint}/${bucket}${path === undefined ? '' : `/${prefix}${path}`}`)
    for (const [name, value] of Object.entries(query ?? {})) url.searchParams.set(name, value)
    return url
  }

  async function once(request: S3Request, signal?: AbortSignal): Promise<Response> {
    const { method, body } = request
    const signed = await client.sign(urlOf(request).href, {
      method,
      headers: {
        ...request.headers,
        // The length that is announced must be that of the file.
        'accept-encoding': 'identity',
        'x-amz-content-sha256': sha256(body),
      },
      ...(body ? { body } : {}),
    })
    const late = new AbortController()
    const timer = setTimeout(() => late.abort(new Error('no answer in time')), ANSWER_MS)
    try {
      const signals = [late.signal, ...(signal ? [signal] : [])]
      return await fetch(signed, { signal: AbortSignal.any(signals), redirect: 'error' })
    } finally {
      clearTimeout(timer)
    }
  }

  return {
    place: `s3://${bucket}/${prefix}`,
    prefix,
    async send(request, signal) {
      for (let tries = 1; ; tries += 1) {
        signal?.throwIfAborted()
        const answer = await once(request, signal).catch(asError)
        if (answer instanceof Response && (answer.ok || answer.status === 404)) return answer
        signal?.throwIfAborted()
        const temporary = answer instanceof Error || answer.status >= 500 || answer.status === 429
        const refusal = answer instanceof Error ? answer : await refusalOf(answer)
        if (!temporary) throw refused(refusal)
        if (tries === TRIES) throw unavailable(refusal)
        await wait(backoffMs(tries, { baseMs: 100, capMs: 2000 }), signal)
      }
    },
  }
}

async function refusalOf(answer: Response): Promise<Error> {
  const text = await answer.text().catch(() => '')
  const [, code = 'no code'] = /<Code>([^<]{1,100})<\/Code>/.exec(text) ?? []
  return new Error(`the answer was ${answer.status} (${code})`)
}

function refused(cause: Error) {
  return new HoldfastError('internal', 'artifacts_refused', 'The store of artifacts refused.', {
    cause,
  })
}

function unavailable(cause: Error) {
  return new HoldfastError('unavailable', 'overloaded', 'The store of artifacts is away.', {
    cause,
  })
}

function sha256(body: Uint8Array | undefined): string {
  return createHash('sha256')
    .update(body ?? '')
    .digest('hex')
}
