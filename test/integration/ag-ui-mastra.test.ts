// Goal: the real thing on both ends. Method: AG-UI's own client, Holdfast, AG-UI's own Mastra bridge
// around a real Mastra agent in a process of its own; only the model behind it is a stand-in.
import { HttpAgent } from '@ag-ui/client'
import { type AgUiEvent, emptyFold, foldEvents, type Message } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { readLog, request } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { startMastraAgent } from '../support/mastra-agent.ts'
import { HELLO_TEXT, startModelServer, TOOL_TEXT } from '../support/model-server.ts'

type Row = { turn: number; runId: string; status: string; message: Message }

test('a Mastra agent answers a stock client through Holdfast, with text and with a tool', async () => {
  await using cleanup = new AsyncDisposableStack()
  const model = await startModelServer({ chunkMs: 2 })
  cleanup.defer(() => model.stop())
  const mastra = await startMastraAgent(model.url)
  cleanup.defer(async () => void (await mastra.stop()))
  await using holdfast = await startHoldfast({
    agents: { agents: { clock: { type: 'ag-ui', url: mastra.url, effects: 'idempotent' } } },
  })
  const agent = new HttpAgent({ url: `${holdfast.url}/ag-ui/clock`, threadId: 'mastra' })

  agent.addMessage({ id: 'm1', role: 'user', content: 'what time is it in Tokyo?' })
  const first = await agent.runAgent({ runId: 'turn-1' })
  expect(first.newMessages.map(({ role }) => role)).toEqual(['assistant', 'tool', 'assistant'])
  expect(first.newMessages.at(-1)?.content).toBe(TOOL_TEXT)
  agent.addMessage({ id: 'm2', role: 'user', content: 'hello again' })
  const second = await agent.runAgent({ runId: 'turn-2' })
  expect(second.newMessages.map(({ content }) => content)).toEqual([HELLO_TEXT])

  const rows = await rowsOf(holdfast)
  expect(rows.every(({ status }) => status === 'complete')).toBe(true)
  expect(rows.map(({ message }) => message)).toEqual(agent.messages)
  await expectFolds(holdfast, rows)

  // What the model saw of turn 1 in turn 2: the call, its answer, and what was said of it.
  const [asked] = model.requests().slice(-1)
  expect(asked?.map(({ role }) => role)).toEqual([
    'system',
    'user',
    'assistant',
    'tool',
    'assistant',
    'user',
  ])
  const [, , called, answered, said] = asked ?? []
  expect(called?.tool_calls).toHaveLength(1)
  expect(called?.tool_calls?.[0]?.id).toBe(answered?.tool_call_id)
  expect(JSON.stringify(answered?.content)).toContain('utcOffsetHours')
  expect(said?.content).toBe(TOOL_TEXT)
})

async function rowsOf({ url }: Holdfast): Promise<Row[]> {
  const list = await request(`${url}/conversations`)
  const [conversation] = list.body['conversations'] as { conversationId: string }[]
  const { body } = await request(`${url}/conversations/${conversation?.conversationId}`)
  return body['messages'] as Row[]
}

/** The logs hold no chunks any more, and amount to the stored messages. */
async function expectFolds({ url }: Holdfast, rows: readonly Row[]): Promise<void> {
  let fold = emptyFold()
  for (const runId of new Set(rows.map((row) => row.runId))) {
    const events: AgUiEvent[] = (await readLog(url, runId)).map(({ event }) => event)
    const types = new Set<string>(events.map(({ type }) => type))
    expect([...types].filter((type) => /_CHUNK$|^RAW$/.test(type))).toEqual([])
    expect(types).toContain('TEXT_MESSAGE_CONTENT')
    fold = foldEvents(fold, events)
  }
  expect(fold.messages).toEqual(rows.map(({ message }) => message))
}
