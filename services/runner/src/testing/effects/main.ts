// A runner whose agents `effects` and `resuming` do, one after the other, what the user message says as JSON, with real
// effects: requests to EFFECTS_URL, of which a test knows when each arrived and decides when it is answered.
import { EventType, type Message } from '@holdfast/protocol'
import { type Agent, AgentFailure, type AgentRun } from '../../agents/agent.ts'
import type { StepAnswer, StepCall } from '../../agents/step.ts'
import { runnerProcess } from '../../runner-process.ts'

type Do = {
  do: string
  policy: 'retry' | 'ask' | 'stop'
  undo?: boolean
  parent?: string
  /** Goes on when it is told to stop. */
  deaf?: boolean
}
type Order =
  | Do
  | { both: Do[] }
  | { swallow: Do }
  | { say: string }
  | { checkpoint: unknown }
  | { span: string }
  /** Until the test answers. */
  | { wait: string }
  | { fail: true }

const outside = String(process.env['EFFECTS_URL'])
let messages = 0
const textOf = (message: Message | undefined) =>
  typeof message?.content === 'string' ? message.content : '[]'

await runnerProcess(process.env, {
  agents: new Map([
    ['effects', agent({})],
    ['resuming', agent({ resumes: true })],
  ]),
})

function agent(more: Partial<Agent>): Agent {
  return {
    type: 'demo',
    ...more,
    async run(run) {
      const orders: Order[] = JSON.parse(textOf(run.messages.at(-1)))
      const done = run.saved?.current ? Number(run.saved.data) : 0
      for (const [at, order] of orders.entries()) if (at >= done) await obey(run, order, at + 1)
      return { outcome: 'success' }
    },
  }
}

async function obey(run: AgentRun, order: Order, next: number): Promise<void> {
  if ('do' in order) await say(run, JSON.stringify(await take(run, order)))
  else if ('both' in order) await Promise.all(order.both.map((one) => take(run, one)))
  else if ('swallow' in order) await take(run, order.swallow).catch(() => undefined)
  else if ('say' in order) await say(run, order.say)
  else if ('checkpoint' in order) await run.checkpoint(next)
  else if ('span' in order) await run.span(order.span, { kind: 'part' }, () => say(run, order.span))
  else if ('wait' in order) await request(run, 'wait', order.wait, '', run.signal)
  else throw new AgentFailure('agent_error', 'it was told to fail')
}

function take(run: AgentRun, { do: key, policy, undo, parent, deaf }: Do): Promise<unknown> {
  const signalOf = (call: StepCall) => (deaf ? undefined : call.signal)
  return run.step<unknown>(
    key,
    {
      policy,
      parent,
      lookup: async (call) =>
        (await request(
          run,
          'lookup',
          key,
          call.idempotencyKey,
          call.signal,
        )) as StepAnswer<unknown>,
      ...(undo && {
        async compensate(result: unknown, call: StepCall) {
          await request(run, 'undo', key, call.idempotencyKey, call.signal, result)
        },
      }),
    },
    (call) => request(run, 'do', key, call.idempotencyKey, signalOf(call)),
  )
}

async function say({ runId, epoch, emit }: AgentRun, text: string): Promise<void> {
  messages += 1
  const messageId = `${runId}.${epoch}.${messages}`
  await emit([
    { type: EventType.TEXT_MESSAGE_START, messageId, role: 'assistant' },
    { type: EventType.TEXT_MESSAGE_CONTENT, messageId, delta: text },
    { type: EventType.TEXT_MESSAGE_END, messageId },
  ])
}

async function request(
  { runId, epoch }: AgentRun,
  kind: string,
  key: string,
  idempotencyKey: string,
  signal: AbortSignal | undefined,
  result?: unknown,
): Promise<unknown> {
  const response = await fetch(outside, {
    method: 'POST',
    headers: { 'idempotency-key': idempotencyKey },
    body: JSON.stringify({ kind, key, runId, epoch, result }),
    ...(signal && { signal }),
  })
  const body: unknown = await response.json()
  if (!response.ok) throw new Error(`the outside answered ${response.status}`)
  return body
}
