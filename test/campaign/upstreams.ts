import type { AgUiEvent } from '@holdfast/protocol'
import { wait } from '@holdfast/std'
import { type Random, randomFrom } from '../support/seeded.ts'
import { type Exchange, startUpstream, type Upstream } from '../support/upstream.ts'
import type { Asked } from './history.ts'

/** Ends when the answer is complete, broken on purpose, or nobody listens any more. */
type Script = (speaker: Speaker, random: Random) => Promise<void>

type Speaker = {
  readonly epoch: number
  readonly exchange: Exchange
  begin(): void
  /** The whole text, word by word; each word names the attempt that said it. False: nobody listens. */
  speak(words: number, pauseMs: number): Promise<boolean>
  say(...events: object[]): void
  pause(ms: number): Promise<void>
}

/** What upstreams do, by the name of the agent that is asked. */
const SCRIPTS: Readonly<Record<string, Script>> = {
  async fast(speaker) {
    speaker.begin()
    if (await speaker.speak(12, 4)) speaker.exchange.finish()
  },
  async slow(speaker, random) {
    speaker.begin()
    if (await speaker.speak(40, random.whole(40, 140))) speaker.exchange.finish()
  },
  /** Says nothing at all, or stops in the middle. */
  async silent(speaker, random) {
    if (random.chance(0.5)) return
    speaker.begin()
    await speaker.speak(-5, 20)
  },
  /** Fails before its first word, the first time or two. */
  async failing(speaker, random) {
    if (speaker.epoch < random.whole(2, 3)) return speaker.exchange.reset()
    speaker.begin()
    if (await speaker.speak(15, 10)) speaker.exchange.finish()
  },
  async breaking(speaker, random) {
    speaker.begin()
    if (!(await speaker.speak(-8, 20))) return
    if (random.chance(0.5)) return speaker.exchange.reset()
    speaker.say({ type: 'RUN_ERROR', message: 'the model is out of order', code: 'E42' })
    speaker.exchange.end()
  },
  /** Ends as if all were well, without its protocol's ending. */
  async truncated(speaker) {
    speaker.begin()
    if (await speaker.speak(-8, 20)) speaker.exchange.end()
  },
  async odd(speaker) {
    const { exchange, say, pause } = speaker
    const { threadId, runId } = exchange.input
    say({ type: 'RUN_STARTED', threadId, runId }, { type: 'STATE_SNAPSHOT', snapshot: { n: 1 } })
    exchange.comment()
    say({ type: 'REASONING_START', messageId: 'r1' })
    say({ type: 'REASONING_MESSAGE_START', messageId: 'r1', role: 'reasoning' })
    say({ type: 'REASONING_MESSAGE_CONTENT', messageId: 'r1', delta: 'Hm. ' })
    await pause(100)
    say({ type: 'REASONING_MESSAGE_END', messageId: 'r1' })
    say({ type: 'REASONING_END', messageId: 'r1' })
    say({ type: 'STATE_DELTA', delta: [{ op: 'add', path: '/m', value: [1, 2] }] })
    say({ type: 'TOOL_CALL_START', toolCallId: 't1', toolCallName: 'look' })
    await pause(200)
    say({ type: 'TOOL_CALL_ARGS', toolCallId: 't1', delta: '{"where":' })
    say({ type: 'TOOL_CALL_ARGS', toolCallId: 't1', delta: '"here"}' })
    await pause(200)
    say({ type: 'TOOL_CALL_END', toolCallId: 't1' })
    say({ type: 'TOOL_CALL_RESULT', messageId: 'm0', toolCallId: 't1', content: 'nothing' })
    say({ type: 'TEXT_MESSAGE_START', messageId: 'm1', role: 'assistant' })
    if (await speaker.speak(20, 25)) exchange.finish()
  },
}

/** The agents of the campaign: how their upstreams behave, and what a run of them may go through. */
export function agentsOf(upstreamUrl: string): object {
  const limits = {
    type: 'ag-ui',
    url: upstreamUrl,
    effects: 'none',
    maxAttempts: 8,
    deadlineMs: 60_000,
    idleTimeoutMs: 4000,
    progressTimeoutMs: 8000,
    connectTimeoutMs: 3000,
  }
  const agent = (script: string, more: object = {}) => ({
    ...limits,
    headers: { 'x-script': script },
    ...more,
  })
  return {
    default: 'fast',
    agents: {
      ...Object.fromEntries(Object.keys(SCRIPTS).map((script) => [script, agent(script)])),
      doubtful: agent('odd', { effects: 'unknown' }),
      brittle: agent('slow', { onLost: 'fail' }),
      poison: agent('slow', { maxAttempts: 2 }),
      demo: { type: 'demo', maxAttempts: 8, deadlineMs: 60_000 },
    },
  }
}

/** An upstream that plays the scripts and writes down who asked for what and when he was gone. */
export function openUpstream(journal: Asked[], seed: number): Promise<Upstream> {
  return startUpstream((exchange, n) => {
    const { input, headers } = exchange
    const script = String(headers['x-script'])
    const epoch = Number(input.runId.split('.').at(-1))
    journal.push({
      script,
      runId: input.runId.slice(0, input.runId.lastIndexOf('.')),
      epoch,
      idempotencyKey: String(headers['idempotency-key']),
      said: input.messages.flatMap(({ role, content }) =>
        role === 'user' && typeof content === 'string' ? content : [],
      ),
      atMs: Date.now(),
      closedAtMs: () =>
        exchange.closedAt === null ? null : performance.timeOrigin + exchange.closedAt,
    })
    // It writes to a socket that may be gone, which is no failure of its own.
    SCRIPTS[script]?.(speakerOf(exchange, epoch), randomFrom(seed + n)).catch(() => undefined)
  })
}

function speakerOf(exchange: Exchange, epoch: number): Speaker {
  const say = (...events: object[]) => exchange.say(...(events as AgUiEvent[]))
  const content = (delta: string) => say({ type: 'TEXT_MESSAGE_CONTENT', messageId: 'm1', delta })
  return {
    epoch,
    exchange,
    say,
    pause: wait,
    begin() {
      const { threadId, runId } = exchange.input
      say({ type: 'RUN_STARTED', threadId, runId })
      say({ type: 'TEXT_MESSAGE_START', messageId: 'm1', role: 'assistant' })
    },
    async speak(words, pauseMs) {
      for (let n = 0; n < Math.abs(words); n += 1) {
        content(`e${epoch}.${n} `)
        await wait(pauseMs)
        if (exchange.closedAt !== null) return false
      }
      if (words > 0) content(`e${epoch}.end`)
      return true
    },
  }
}
