import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { buffer } from 'node:stream/consumers'
import type { S3Place } from '../config.ts'
import { isSigned } from './s3-signature.ts'

const SECRET = 'not a real secret'

/** As much of S3 as is used, in memory: it checks signatures and can be told to fail. */
export type ScriptedS3 = AsyncDisposable & {
  readonly place: S3Place
  readonly objects: ReadonlyMap<string, { body: Buffer; mediaType: string }>
  /** Uploads that were begun and neither joined nor given up. */
  readonly uploads: number
  /** The next requests are answered so, in this order. */
  failNext(...how: Failure[]): void
}

export async function scriptedS3(): Promise<ScriptedS3> {
  const objects = new Map<string, { body: Buffer; mediaType: string }>()
  const uploads = new Map<string, { mediaType: string; parts: Map<number, Buffer> }>()
  const failures: Failure[] = []

  function answer(request: IncomingMessage, body: Buffer): Answer {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://s3')
    const [, bucket, ...rest] = pathname.split('/')
    const key = decodeURIComponent(rest.join('/'))
    if (bucket !== 'files') return [404, error('NoSuchBucket')]
    if (key === '') return [200, list(searchParams)]
    const mediaType = request.headers['content-type'] ?? ''
    const uploadId = searchParams.get('uploadId')
    if (searchParams.has('uploads')) {
      const id = `upload-${uploads.size + 1}-${key.length}`
      uploads.set(id, { mediaType, parts: new Map() })
      return [200, `<X><UploadId>${id}</UploadId></X>`]
    }
    if (uploadId !== null) return ofUpload(request.method ?? '', key, uploadId, searchParams, body)
    if (request.method === 'PUT') objects.set(key, { body, mediaType })
    if (request.method === 'DELETE') return objects.delete(key) ? [204, ''] : [204, '']
    const object = objects.get(key)
    return object ? [200, object.body] : [404, error('NoSuchKey')]
  }

  function ofUpload(
    method: string,
    key: string,
    id: string,
    query: URLSearchParams,
    body: Buffer,
  ): Answer {
    const upload = uploads.get(id)
    if (!upload) return [404, error('NoSuchUpload')]
    if (method === 'PUT') {
      upload.parts.set(Number(query.get('partNumber')), body)
      return [200, '']
    }
    uploads.delete(id)
    if (method === 'DELETE') return [204, '']
    const numbers = [...body.toString().matchAll(/<PartNumber>(\d+)</g)].map(([, number]) =>
      Number(number),
    )
    const parts = numbers.map((number) => upload.parts.get(number) ?? Buffer.alloc(0))
    objects.set(key, { body: Buffer.concat(parts), mediaType: upload.mediaType })
    return [200, '<CompleteMultipartUploadResult/>']
  }

  function list(query: URLSearchParams): string {
    const after = query.get('start-after') ?? ''
    const keys = [...objects.keys()].filter((key) => key.startsWith(query.get('prefix') ?? ''))
    const page = keys
      .sort((a, b) => (a < b ? -1 : 1))
      .filter((key) => key > after)
      .slice(0, Number(query.get('max-keys')))
    const entries = page.map(
      (
        key,
      ) => `<Contents><Key>${encodeURIComponent(key)}</Key><LastModified>${new Date().toISOString()}</LastModified>
        <Size>${objects.get(key)?.body.length}</Size></Contents>`,
    )
    return `<ListBucketResult>${entries.join('')}</ListBucketResult>`
  }

  async function serve(request: IncomingMessage, response: ServerResponse) {
    const body = await buffer(request)
    if (!isSigned(request, body, SECRET)) {
      response.writeHead(403).end(error('SignatureDoesNotMatch'))
      return
    }
    const failure = failures.shift()
    if (typeof failure === 'number') {
      response.writeHead(failure).end(error('Scripted'))
      return
    }
    const [status, content] = answer(request, body)
    if (failure === 'lost') request.socket.destroy()
    else {
      const headers = { etag: `"${content.length}&"`, 'content-length': Buffer.byteLength(content) }
      response.writeHead(status, headers).end(request.method === 'HEAD' ? '' : content)
    }
  }

  const server = createServer((request, response) => {
    serve(request, response).catch(() => response.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : 0
  return {
    place: {
      bucket: 'files',
      prefix: 'of/holdfast',
      region: 'eu-test-1',
      endpoint: `http://127.0.0.1:${port}`,
      accessKeyId: 'key',
      secretAccessKey: SECRET,
      sessionToken: undefined,
    },
    objects,
    get uploads() {
      return uploads.size
    },
    failNext: (...how) => void failures.push(...how),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

/** A status; `lost`: done, and the connection cut before the answer; `none`: answered as it should be. */
type Failure = number | 'lost' | 'none'
type Answer = [status: number, content: string | Buffer]

function error(code: string): string {
  return `<Error><Code>${code}</Code></Error>`
}
