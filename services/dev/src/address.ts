import { once } from 'node:events'
import { createServer } from 'node:net'
import { HoldfastError, wait } from '@holdfast/std'

/** Refuses a port that is taken before anything was started for it. Throws `conflict`. */
export async function ensurePortFree(host: string, port: number): Promise<void> {
  const probe = createServer()
  try {
    probe.listen(port, host)
    await once(probe, 'listening')
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : ''
    const reason = REASONS[code] ?? `cannot be listened on (${code})`
    const message = `PORT ${port} on HOST ${host} ${reason}: set PORT or HOST to another one`
    throw new HoldfastError('conflict', 'port_taken', message, { cause })
  }
  probe.close()
  await once(probe, 'close')
}

const REASONS: Readonly<Record<string, string>> = {
  EADDRINUSE: 'is used by another process',
  EACCES: 'needs privileges that this process lacks',
  EADDRNOTAVAIL: 'is not an address of this machine',
  ENOTFOUND: 'is not an address of this machine',
}

/** Where people and tools on this machine find a server that listens on `host`. */
export function urlOf(host: string, port: number): string {
  const reachable = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}

/** Resolves once the URL answers 200. */
export async function untilReady(url: string, signal: AbortSignal): Promise<void> {
  for (;;) {
    signal.throwIfAborted()
    const answer = await fetch(url, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(5000)]),
    })
      .then(async (response) => {
        await response.body?.cancel()
        return response.status
      })
      .catch(() => 0)
    if (answer === 200) return
    await wait(50, signal)
  }
}
