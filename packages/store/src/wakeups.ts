import { asError, wait, within } from '@holdfast/std'
import pg from 'pg'
import { keepSession } from './kept-session.ts'

/** `queue`: there is work. `cancel`: look at these runs' marks. `events`: these logs have grown. */
export type Topic = 'queue' | 'cancel' | 'events'

/**
 * Hints between processes, without data. They may be lost, doubled or late: whoever waits for one also polls.
 * The interface is small on purpose, so that another bus can stand behind it.
 */
export type Wakeups = AsyncDisposable & {
  /** To be called after the commit was acknowledged. Coalesced over a few milliseconds; never throws. */
  publish(topic: Topic, runIds: readonly string[]): void
  /** `null` means: look at everything, because hints may have been missed. Returns how to leave. */
  subscribe(topic: Topic, onWake: (runIds: readonly string[] | null) => void): () => void
  /** Whether hints arrive at the moment, as far as can be known. */
  readonly listening: boolean
}

const COALESCE_MS = 5
/** A NOTIFY payload stays below 8000 bytes. */
const IDS_PER_NOTIFY = 200
const TOPICS: readonly Topic[] = ['queue', 'cancel', 'events']

/** LISTEN and NOTIFY, each on a connection of its own that does nothing else. */
export function openWakeups(options: {
  /** A direct session: LISTEN does not work through a transaction pooler. */
  databaseUrl: string
  applicationName: string
  onError: (error: Error) => void
}): Wakeups {
  const stopping = new AbortController()
  const subscribers = new Map<Topic, Set<(runIds: readonly string[] | null) => void>>(
    TOPICS.map((topic) => [topic, new Set()]),
  )
  const publisher = openPublisher(options, stopping.signal)
  let listening = false

  function tell(topic: Topic, runIds: readonly string[] | null) {
    for (const onWake of subscribers.get(topic) ?? []) onWake(runIds)
  }

  const listener = keepSession({
    databaseUrl: options.databaseUrl,
    applicationName: `${options.applicationName} listen`,
    async setUp(client) {
      client.on('notification', ({ channel, payload }) => {
        const topic = TOPICS.find((each) => channel === `holdfast_${each}`)
        if (topic) tell(topic, payload ? payload.split(',') : null)
      })
      for (const topic of TOPICS) await client.query(`LISTEN holdfast_${topic}`)
    },
    up() {
      listening = true
      for (const topic of TOPICS) tell(topic, null)
    },
    down() {
      listening = false
    },
    onError: options.onError,
  })
  return {
    publish: publisher.publish,
    subscribe(topic, onWake) {
      subscribers.get(topic)?.add(onWake)
      return () => subscribers.get(topic)?.delete(onWake)
    },
    get listening() {
      return listening
    },
    async [Symbol.asyncDispose]() {
      await publisher.flush()
      stopping.abort()
      await listener[Symbol.asyncDispose]()
      await publisher.close()
    },
  }
}

function openPublisher(
  options: { databaseUrl: string; applicationName: string; onError: (error: Error) => void },
  stopped: AbortSignal,
) {
  const pending = new Map<Topic, Set<string>>()
  let client: Promise<pg.Client> | undefined
  let flushing: Promise<void> | undefined

  async function connect() {
    const fresh = new pg.Client({
      connectionString: options.databaseUrl,
      application_name: `${options.applicationName} notify`,
      connectionTimeoutMillis: 5000,
      keepAlive: true,
      query_timeout: 5000,
    })
    fresh.on('error', () => {
      client = undefined
    })
    await fresh.connect()
    return fresh
  }

  // One statement, and a transaction of its own: it writes nothing, so its commit waits for no disk.
  async function send() {
    const payloads = [...pending].flatMap(([topic, ids]) =>
      chunks([...ids], IDS_PER_NOTIFY).map((some) => ({ topic, ids: some.join(',') })),
    )
    pending.clear()
    if (payloads.length === 0) return
    client ??= connect()
    const session = await client
    await session.query(
      'SELECT pg_notify($1 || t.topic, t.ids) FROM unnest($2::text[], $3::text[]) AS t (topic, ids)',
      ['holdfast_', payloads.map(({ topic }) => topic), payloads.map(({ ids }) => ids)],
    )
  }

  async function sendAll() {
    while (pending.size > 0) {
      await wait(COALESCE_MS)
      await send().catch((error: unknown) => {
        const broken = client
        client = undefined
        broken?.then(close, () => undefined)
        if (!stopped.aborted) options.onError(asError(error))
      })
    }
  }

  function start() {
    flushing ??= sendAll().finally(() => {
      flushing = undefined
      if (pending.size > 0) start()
    })
  }

  return {
    publish(topic: Topic, runIds: readonly string[]) {
      if (stopped.aborted) return
      const ids = pending.get(topic) ?? new Set()
      for (const id of runIds) ids.add(id)
      if (runIds.length > 0) pending.set(topic, ids)
      if (pending.size > 0) start()
    },
    async flush() {
      await within(1000, flushing ?? Promise.resolve())
    },
    async close() {
      const session = await client?.catch(() => undefined)
      if (session) await close(session)
    },
  }
}

function chunks<T>(items: readonly T[], size: number): T[][] {
  const out: T[][] = []
  for (let at = 0; at < items.length; at += size) out.push(items.slice(at, at + size))
  return out
}

async function close(client: pg.Client) {
  await within(
    1000,
    client.end().catch(() => undefined),
  )
}
