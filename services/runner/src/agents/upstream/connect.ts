import { once } from 'node:events'
import { connect as connectTcp, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { bareAddress, guardOutbound, type Outbound, OutboundRefused } from '../outbound.ts'

/**
 * A socket to the URL's host, TLS included, to an address that may be reached. When `signal`
 * aborts, before or after, the socket is destroyed at once.
 * @throws the signal's reason, OutboundRefused, or what the network says
 */
export async function connectUpstream(
  url: URL,
  outbound: Outbound,
  signal: AbortSignal,
): Promise<Socket> {
  signal.throwIfAborted()
  const host = bareAddress(url.hostname)
  const guard = guardOutbound(host, outbound)
  if (isIP(host) !== 0 && !guard.permitsAddress(host)) {
    throw new OutboundRefused(`${host} is not reachable from here`)
  }
  const isTls = url.protocol === 'https:'
  const target = { host, port: Number(url.port) || (isTls ? 443 : 80), lookup: guard.lookup }
  const socket = isTls
    ? connectTls({
        ...target,
        ALPNProtocols: ['http/1.1'],
        ...(isIP(host) === 0 && { servername: host }),
      })
    : connectTcp(target)
  socket.setNoDelay(true)
  socket.setKeepAlive(true, 60_000)
  const stop = () => socket.destroy()
  signal.addEventListener('abort', stop, { once: true })
  socket.once('close', () => signal.removeEventListener('abort', stop))
  // An error may come when nobody reads any more; whoever does read gets it as well.
  socket.on('error', stop)
  try {
    await connected(socket, isTls ? 'secureConnect' : 'connect')
    return socket
  } catch (error) {
    await closeSocket(socket)
    signal.throwIfAborted()
    throw error
  }
}

/** Resolves when the operating system has the socket back. */
export async function closeSocket(socket: Socket): Promise<void> {
  const closed = socket.closed ? undefined : once(socket, 'close')
  socket.destroy()
  await closed
}

/** A socket that is destroyed while it connects says so only by closing. */
async function connected(socket: Socket, event: 'connect' | 'secureConnect'): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const onClose = () => reject(new Error('closed while connecting'))
  socket.once(event, resolve)
  socket.once('error', reject)
  socket.once('close', onClose)
  try {
    await promise
  } finally {
    socket.off(event, resolve)
    socket.off('error', reject)
    socket.off('close', onClose)
  }
}
