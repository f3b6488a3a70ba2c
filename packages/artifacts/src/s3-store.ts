import { Readable } from 'node:stream'
import type { ReadableStream } from 'node:stream/web'
import type { ArtifactStore, StoredFile } from './artifact-store.ts'
import type { S3Place } from './config.ts'
import { s3Requests } from './s3-requests.ts'
import { uploadTo } from './s3-upload.ts'

const PAGE_MAX = 1000
const DELETES_AT_ONCE = 8

/** Objects of a bucket, in Amazon's or any other S3. */
export function s3Store(place: S3Place): ArtifactStore {
  const requests = s3Requests(place)

  async function listed(below: string, after: string, limit: number, signal?: AbortSignal) {
    const query = {
      'list-type': '2',
      'encoding-type': 'url',
      'max-keys': `${Math.min(limit, PAGE_MAX)}`,
      prefix: `${requests.prefix}${below}`,
      ...(after === '' ? {} : { 'start-after': `${requests.prefix}${after}` }),
    }
    const answer = await requests.send({ method: 'GET', query }, signal)
    const text = await answer.text()
    return answer.ok ? filesIn(text, requests.prefix) : []
  }

  return {
    place: requests.place,
    put: (path, body, mediaType, signal) => uploadTo(requests, path, body, mediaType, signal),

    async open(path, signal) {
      const answer = await requests.send({ method: 'GET', path }, signal)
      if (!answer.ok || !answer.body) {
        await answer.body?.cancel()
        return null
      }
      const body = Readable.fromWeb(answer.body as ReadableStream<Uint8Array>)
      return { bytes: Number(answer.headers.get('content-length')), body }
    },

    async remove(pathOrFolder, signal) {
      const gone = (path: string) => requests.send({ method: 'DELETE', path }, signal)
      await gone(pathOrFolder)
      for (;;) {
        const files = await listed(`${pathOrFolder}/`, '', PAGE_MAX, signal)
        for (let at = 0; at < files.length; at += DELETES_AT_ONCE) {
          await Promise.all(files.slice(at, at + DELETES_AT_ONCE).map(({ path }) => gone(path)))
        }
        if (files.length < PAGE_MAX) return
      }
    },

    list: (after, limit, signal) => listed('', after, limit, signal),
  }
}

/** Keys come percent-encoded, so that no XML has to be understood. */
function filesIn(xml: string, prefix: string): StoredFile[] {
  return [...xml.matchAll(/<Contents>([\s\S]*?)<\/Contents>/g)].map(([, contents = '']) => {
    const value = (name: string) => new RegExp(`<${name}>([^<]*)<`).exec(contents)?.[1] ?? ''
    const key = decodeURIComponent(value('Key').replaceAll('+', ' '))
    return {
      path: key.slice(prefix.length),
      bytes: Number(value('Size')),
      modifiedAtMs: Date.parse(value('LastModified')),
    }
  })
}
