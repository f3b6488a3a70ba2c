import { HoldfastError } from '@holdfast/std'
import type { S3Requests } from './s3-requests.ts'

/** What an upload holds in memory. S3 takes at most 10,000 parts of an object. */
const PART_BYTES = 8 << 20
const ABORT_MS = 5000

/** Small bodies in one request, larger ones in parts, so that memory is bounded and nothing is visible before the end. */
export async function uploadTo(
  requests: S3Requests,
  path: string,
  body: AsyncIterable<Uint8Array>,
  mediaType: string,
  signal: AbortSignal,
): Promise<{ bytes: number }> {
  const headers = { 'content-type': mediaType }
  let upload: Multipart | null = null
  let bytes = 0
  try {
    for await (const { part, last } of partsOf(body)) {
      bytes += part.byteLength
      if (!upload && last) {
        found(await requests.send({ method: 'PUT', path, headers, body: part }, signal))
        return { bytes }
      }
      upload ??= await begin(requests, path, headers, signal)
      await upload.add(part)
    }
    await upload?.complete()
    return { bytes }
  } catch (error) {
    // What is left behind costs money and is seen by nobody; a lifecycle rule is for what this does not reach.
    await upload?.abort().catch(() => undefined)
    throw error
  }
}

type Multipart = {
  add(part: Uint8Array<ArrayBuffer>): Promise<void>
  complete(): Promise<void>
  abort(): Promise<void>
}

async function begin(
  requests: S3Requests,
  path: string,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Multipart> {
  const begun = await requests.send(
    { method: 'POST', path, query: { uploads: '' }, headers },
    signal,
  )
  const uploadId = inXml(await found(begun).text(), 'UploadId')
  const tags: string[] = []
  return {
    async add(part) {
      const query = { partNumber: `${tags.length + 1}`, uploadId }
      const answer = await requests.send({ method: 'PUT', path, query, body: part }, signal)
      tags.push(found(answer).headers.get('etag') ?? '')
    },
    async complete() {
      const parts = tags.map(
        (tag, at) => `<Part><PartNumber>${at + 1}</PartNumber><ETag>${escaped(tag)}</ETag></Part>`,
      )
      const xml = `<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`
      const body = new TextEncoder().encode(xml)
      const answer = await requests.send(
        { method: 'POST', path, query: { uploadId }, body },
        signal,
      )
      const text = await answer.text()
      if (answer.ok && !text.includes('<Error>')) return
      // After a lost reply the upload is not known any more, and the object is there.
      const head = await requests.send({ method: 'HEAD', path }, signal)
      if (!head.ok) throw failed(`the parts could not be joined: ${text.slice(0, 200)}`)
    },
    async abort() {
      const late = AbortSignal.timeout(ABORT_MS)
      await requests.send({ method: 'DELETE', path, query: { uploadId } }, late)
    },
  }
}

/** Full parts and then the last one, which may be empty. */
async function* partsOf(body: AsyncIterable<Uint8Array>) {
  let part = new Uint8Array(PART_BYTES)
  let filled = 0
  for await (const chunk of body) {
    let rest = chunk
    while (filled + rest.byteLength > PART_BYTES) {
      const room = PART_BYTES - filled
      part.set(rest.subarray(0, room), filled)
      yield { part, last: false }
      part = new Uint8Array(PART_BYTES)
      filled = 0
      rest = rest.subarray(room)
    }
    part.set(rest, filled)
    filled += rest.byteLength
  }
  yield { part: part.subarray(0, filled), last: true }
}

function found(answer: Response): Response {
  if (answer.ok) return answer
  throw failed('the bucket or the upload is not there')
}

function failed(message: string) {
  return new HoldfastError('internal', 'artifacts_refused', 'The store of artifacts refused.', {
    cause: new Error(message),
  })
}

function inXml(text: string, element: string): string {
  const [, value] = new RegExp(`<${element}>([^<]+)</${element}>`).exec(text) ?? []
  if (value === undefined) throw failed(`there is no ${element} in the answer`)
  return value
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;')
}
