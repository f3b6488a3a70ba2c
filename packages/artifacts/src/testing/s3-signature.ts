import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

/**
 * Whether a request carries the signature (AWS Signature Version 4, in a header) that its own parts and the secret give.
 * Written after the specification, and not after the client that it judges.
 */
export function isSigned(request: IncomingMessage, body: Buffer, secret: string): boolean {
  const given =
    /^AWS4-HMAC-SHA256 Credential=([^,]+), SignedHeaders=([^,]+), Signature=(\w+)$/.exec(
      request.headers.authorization ?? '',
    )
  if (!given || request.headers['x-amz-content-sha256'] !== sha256(body)) return false
  const [, credential = '', signedHeaders = '', signature = ''] = given
  const [, date = '', region = '', service = ''] = credential.split('/')
  const canonical = canonicalRequest(request, signedHeaders, sha256(body))
  const scope = `${date}/${region}/${service}/aws4_request`
  const time = String(request.headers['x-amz-date'])
  const toSign = ['AWS4-HMAC-SHA256', time, scope, sha256(canonical)].join('\n')
  const key = [date, region, service, 'aws4_request'].reduce<string | Buffer>(
    (secretSoFar, part) => hmac(secretSoFar, part),
    `AWS4${secret}`,
  )
  return timingSafeEqual(hmac(key, toSign), Buffer.from(signature, 'hex'))
}

function canonicalRequest(
  request: IncomingMessage,
  signedHeaders: string,
  bodyHash: string,
): string {
  const url = new URL(request.url ?? '', 'http://s3')
  const path = url.pathname.split('/').map((part) => encode(decodeURIComponent(part)))
  const query = [...url.searchParams].map(([name, value]) => `${encode(name)}=${encode(value)}`)
  const headers = signedHeaders
    .split(';')
    .map((name) => `${name}:${String(request.headers[name]).trim()}\n`)
  return [
    request.method,
    path.join('/'),
    query.sort().join('&'),
    headers.join(''),
    signedHeaders,
    bodyHash,
  ].join('\n')
}

function encode(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  )
}

function sha256(data: string | Buffer): string {
  return createHash('sha256').update(data).digest('hex')
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest()
}
