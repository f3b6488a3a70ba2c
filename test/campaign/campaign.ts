import { execFileSync } from 'node:child_process'
import { asError, wait, within } from '@holdfast/std'
import { openStore, violations } from '@holdfast/store'
import { SignJWT } from 'jose'
import { type Random, randomFrom } from '../support/seeded.ts'
import { checkAll } from './check/all.ts'
import { gather } from './crowd.ts'
import { type DatabaseServer, openDatabaseServer } from './database-server.ts'
import { type Done, inflict, planOf } from './faults.ts'
import { type Figures, figuresOf } from './figures.ts'
import { type Fleet, startFleet } from './fleet.ts'
import { type Counted, emptyHistories, type Finding, type Histories } from './history.ts'
import { notifies, readStored } from './read-stored.ts'
import type { User } from './requests.ts'
import { openSink, type Sink } from './sinks.ts'
import type { Stage } from './stage.ts'
import { agentsOf, openUpstream } from './upstreams.ts'
import { writeAgents } from './write-agents.ts'

export type CampaignOptions = {
  readonly seed: number
  readonly minutes: number
  readonly say: (line: string) => void
}

const LEASE_MS = 3000
const USERS = ['ada', 'bob', 'eve']
const LIVES_OF_A_USER = 7
const LANES = 2
const SECRET = 'the secret of a campaign, which nobody has to guess'
/** Within this, everything that was accepted has ended once nothing is in its way. */
const QUIET_MS = 120_000

export type Outcome = { readonly figures: Figures; readonly logs: { name: string; log: string }[] }

/** A whole Holdfast, its users and its faults for so many minutes, and then the question what became of it all. */
export async function runCampaign(options: CampaignOptions): Promise<Outcome> {
  const { seed, minutes, say } = options
  const startedAt = new Date().toISOString()
  const random = randomFrom(seed)
  const histories = emptyHistories()
  const done: Done[] = []
  await using cleanup = new AsyncDisposableStack()
  const server = cleanup.use(await openDatabaseServer(new AbortController().signal))
  const sinks = await openSinks(server, histories, random, cleanup)
  const upstream = cleanup.use(await openUpstream(histories.asked, seed))
  const fleet = await startFleet(
    {
      databaseUrl: server.url,
      bffs: 2,
      runners: 3,
      env: await environment(upstream.url, sinks, cleanup),
      random: randomFrom(seed + 1),
    },
    cleanup,
  )
  const stage: Stage = { server, fleet, leaseMs: LEASE_MS, kills: [], findings: [] }
  say(`everything is up; ${minutes} minutes of faults by seed ${seed}`)

  const leaving = AbortSignal.timeout(minutes * 60_000)
  const patience = new AbortController()
  const users = await usersOf({ seed, fleet, histories, sinks, patience: patience.signal })
  const crowd = gather(users, LIVES_OF_A_USER, leaving)
  const plan = planOf(random)
  await Promise.all(Array.from({ length: LANES }, () => inflict(stage, plan, done, leaving)))
  say(`${done.length} faults done and undone; waiting for everything to end`)
  const findings: Finding[] = [...stage.findings, ...(await quiet(server, crowd.done, sinks))]
  patience.abort()
  await crowd.done

  const counted = await countedStaleWrites(server)
  findings.push(...(await askDatabase(server)))
  findings.push(...(await stopAll(server, fleet)))
  const stored = await readStored(server)
  const told = (stored.notifies ? sinks.slice(0, 1) : []).map(({ name }) => name)
  findings.push(...(await checkAll({ histories, stored, counted, sinks: told })))
  const starts = [...fleet.bffs, ...fleet.runners].reduce((sum, slot) => sum + slot.starts, 0)
  const commit = execFileSync('git', ['rev-parse', 'HEAD'], { encoding: 'utf8' }).trim()
  const { kills } = stage
  const gathered = { seed, minutes, commit, startedAt, done, histories, stored, counted }
  return { figures: figuresOf({ ...gathered, starts, kills, findings }), logs: fleet.logs() }
}

async function environment(
  upstreamUrl: string,
  sinks: readonly Sink[],
  cleanup: AsyncDisposableStack,
): Promise<Record<string, string>> {
  const everybody = sinks.slice(0, 1).map(({ url }) => url)
  return {
    HOLDFAST_AGENTS: await writeAgents(agentsOf(upstreamUrl), cleanup),
    LEASE_SECONDS: `${LEASE_MS / 1000}`,
    DRAIN_SECONDS: '1',
    LOG_LEVEL: 'info',
    AUTH_JWT_SECRET: SECRET,
    OUTBOUND_ALLOW: '127.0.0.1',
    NOTIFY_ALLOW: '127.0.0.1',
    WEBHOOK_SECRET: `whsec_${Buffer.from(SECRET).toString('base64')}`,
    WEBHOOK_URLS: everybody.join(','),
  }
}

/** The first is told of every run, the second where a request asks for it. */
async function openSinks(
  server: DatabaseServer,
  { deliveries }: Histories,
  random: Random,
  cleanup: AsyncDisposableStack,
): Promise<Sink[]> {
  async function stateOf(runId: string) {
    const asked = 'SELECT state FROM holdfast.runs WHERE id = $1'
    const [run] = await server.admin<{ state: string }>(asked, [runId])
    return run?.state ?? 'unknown'
  }
  const sinks: Sink[] = []
  for (const [name, failing] of [
    ['everything', 0.1],
    ['asked-for', 0.3],
  ] as const) {
    sinks.push(
      cleanup.use(await openSink({ name, failing, secret: SECRET, random, deliveries, stateOf })),
    )
  }
  return sinks
}

async function usersOf(options: {
  seed: number
  fleet: Fleet
  histories: Histories
  sinks: readonly Sink[]
  patience: AbortSignal
}): Promise<User[]> {
  const { fleet, histories, patience, sinks } = options
  const urls = () => fleet.bffs.flatMap((slot) => slot.urls)
  return Promise.all(
    USERS.map(async (name, at) => {
      const random = randomFrom(options.seed + 100 + at)
      const claims = { sub: name, tenant: `tenant of ${name}` }
      const jwt = new SignJWT(claims).setProtectedHeader({ alg: 'HS256' })
      const token = await jwt.sign(new TextEncoder().encode(SECRET))
      const notifyUrl = () => (random.chance(0.3) ? (sinks[1]?.url ?? null) : null)
      return { name, token, urls, random, histories, patience, notifyUrl }
    }),
  )
}

/** Waits until every user has seen what he waits for, every run has ended, and every notification is delivered. */
async function quiet(
  server: DatabaseServer,
  crowd: Promise<void>,
  sinks: readonly Sink[],
): Promise<Finding[]> {
  const late = Date.now() + QUIET_MS
  const left = () => Math.max(0, late - Date.now())
  const isSeen = await within(
    left(),
    crowd.then(() => true),
  )
  const unfinished = `SELECT id, state, owner, lease_until, available_at FROM holdfast.runs
    WHERE state IN ('queued', 'running')`
  const isDelivering = sinks.length > 0 && (await notifies(server.admin))
  const undelivered = `SELECT event_id, endpoint FROM holdfast.deliveries WHERE state = 'pending'
    UNION ALL SELECT event_id, 'not known yet' FROM holdfast.outbox WHERE expanded_at IS NULL`
  // An endpoint that was out of reach again and again is tried after minutes, then hours; nobody waits for that here.
  const hurry = `UPDATE holdfast.deliveries SET next_attempt_at = clock_timestamp()
    WHERE state = 'pending' AND relay IS NULL AND next_attempt_at > clock_timestamp()`
  for (;;) {
    if (isDelivering) await server.admin(hurry)
    const open = await server.admin<{ id?: string }>(unfinished)
    const pending = isDelivering ? await server.admin<{ id?: string }>(undelivered) : []
    if (isSeen && open.length + pending.length === 0) return []
    if (left() === 0) {
      const seen = isSeen ? [] : [{ detail: 'a user still waits for an answer or an end' }]
      return [
        ...seen,
        ...[...open, ...pending].map((row) => ({ detail: JSON.stringify(row) })),
      ].map(({ detail }) => ({
        invariant: 'I4 everything ends when nothing fails',
        runId: null,
        detail,
      }))
    }
    await wait(500)
  }
}

/** What the runners that live have counted. One that was drained or killed has taken its count along. */
async function countedStaleWrites(server: DatabaseServer): Promise<Counted[]> {
  const runners = await server.admin<{ bootId: string; url: string }>(
    `SELECT boot_id AS "bootId", metrics_url AS url FROM holdfast.runners WHERE metrics_url IS NOT NULL`,
  )
  const counted = runners.map(async ({ bootId, url }) => {
    const answer = await fetch(url, { signal: AbortSignal.timeout(5000) }).catch(() => null)
    const text = (await answer?.text()) ?? ''
    const lines = text.matchAll(/^holdfast_stale_writes_rejected_total\{.*\} (\d+)$/gm)
    const staleWrites = [...lines].reduce((sum, [, value]) => sum + Number(value), 0)
    return { runner: bootId, staleWrites }
  })
  return Promise.all(counted)
}

async function askDatabase(server: DatabaseServer): Promise<Finding[]> {
  await using store = openStore({
    databaseUrl: server.url,
    applicationName: 'campaign checker',
    poolMax: 2,
    statementMs: 120_000,
  })
  const found = await violations(store)
  return found.map(({ invariant, rows }) => {
    return { invariant, runId: null, detail: JSON.stringify(rows) }
  })
}

/** Every process ends when it is asked to, dies only when it was made to, and leaves nothing behind. */
async function stopAll(server: DatabaseServer, fleet: Fleet): Promise<Finding[]> {
  const late = await fleet.stop()
  const sessions = `SELECT pid, application_name FROM pg_stat_activity
    WHERE datname = 'campaign' AND application_name ~ '^holdfast[ -]'`
  let left = await server.admin(sessions)
  for (let looks = 0; left.length > 0 && looks < 50; looks += 1) {
    await wait(100)
    left = await server.admin(sessions)
  }
  const deaths = [...fleet.bffs, ...fleet.runners].flatMap(({ name, exits }) =>
    exits.flatMap(({ pid, code, signal, dooms }) => {
      const isClean = code === 0 && dooms.has('drained')
      const isKilled = signal === 'SIGKILL' && (dooms.has('killed') || dooms.has('stalled'))
      return isClean || isKilled ? [] : [`${name} (pid ${pid}) ended with ${code ?? signal}`]
    }),
  )
  const alive = fleet.logs().flatMap(({ name }) => (isAlive(name) ? [`${name} is left`] : []))
  const sessionsLeft = left.map((row) => `a session is left: ${JSON.stringify(row)}`)
  return [...late, ...deaths, ...alive, ...sessionsLeft].map((detail) => {
    return { invariant: 'processes end as they should', runId: null, detail }
  })
}

function isAlive(name: string): boolean {
  try {
    return process.kill(Number(name.split(' ').at(-1)), 0)
  } catch (error) {
    return !/ESRCH/.test(asError(error).message)
  }
}
