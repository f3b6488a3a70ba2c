import { asError, backoffMs, wait, within } from '@holdfast/std'
import pg from 'pg'

const CONNECT_MS = 5000
const PROBE_EVERY_MS = 5000
const PROBE_ANSWER_MS = 3000
const CLOSE_MS = 500

/**
 * A session of its own, for what lives as long as a session does: LISTEN, an advisory lock. It is probed, since one
 * that died without a word is only noticed by asking it, and taken again whenever it is lost. Needs a direct
 * connection: behind a transaction pooler it would be somebody else's.
 */
export function keepSession(options: {
  databaseUrl: string
  applicationName: string
  /** Makes the session what it is for; when it resolves, `up` is called. */
  setUp: (client: pg.Client) => Promise<void>
  up?: () => void
  down?: () => void
  onError: (error: Error) => void
}): AsyncDisposable {
  const stopping = new AbortController()

  /** Holds one session until it is lost or not wanted any more; says whether it was ever up. */
  async function hold(): Promise<boolean> {
    const client = new pg.Client({
      connectionString: options.databaseUrl,
      application_name: options.applicationName,
      connectionTimeoutMillis: CONNECT_MS,
      keepAlive: true,
    })
    const over = Promise.withResolvers<void>()
    over.promise.catch(() => undefined)
    client.on('error', over.reject)
    client.on('end', () => over.resolve())
    const onStop = () => over.resolve()
    stopping.signal.addEventListener('abort', onStop, { once: true })
    const probe = setInterval(() => {
      within(PROBE_ANSWER_MS, client.query('SELECT 1'))
        .then((answer) => {
          if (!answer) over.reject(new Error('the session does not answer'))
        })
        .catch(over.reject)
    }, PROBE_EVERY_MS)
    let isUp = false
    try {
      const settingUp = client.connect().then(() => options.setUp(client))
      settingUp.catch(() => undefined)
      await Promise.race([settingUp.then(() => true), over.promise.then(() => false)]).then(
        (up) => {
          isUp = up
        },
      )
      if (isUp) options.up?.()
      await over.promise
    } catch (error) {
      if (!stopping.signal.aborted) options.onError(asError(error))
    } finally {
      if (isUp) options.down?.()
      clearInterval(probe)
      stopping.signal.removeEventListener('abort', onStop)
      // A broken session is left behind at once: the next one is what others look for.
      const ending = client.end().catch(() => undefined)
      if (stopping.signal.aborted) await within(CLOSE_MS, ending)
    }
    return isUp
  }

  async function holdOn() {
    for (let failures = 0; !stopping.signal.aborted; ) {
      failures = (await hold()) ? 0 : failures + 1
      await wait(backoffMs(failures, { baseMs: 20, capMs: 2000 }), stopping.signal).catch(
        () => undefined,
      )
    }
  }

  const holding = holdOn()
  return {
    async [Symbol.asyncDispose]() {
      stopping.abort()
      await holding
    },
  }
}
