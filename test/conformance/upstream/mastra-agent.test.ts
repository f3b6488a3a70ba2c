import { once } from 'node:events'
import { createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type BaseEvent, transformChunks, verifyEvents } from '@ag-ui/client'
import { from, lastValueFrom, toArray } from 'rxjs'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { type MastraProcess, startMastraAgent } from '../../support/mastra-agent.ts'
import {
  HELLO_TEXT,
  type ModelServer,
  startModelServer,
  TOOL_TEXT,
} from '../../support/model-server.ts'

let model: ModelServer
let agent: MastraProcess

beforeAll(async () => {
  model = await startModelServer()
  agent = await startMastraAgent(model.url)
})

afterAll(async () => {
  expect(await agent.stop()).toBe(0)
  await model.stop()
})

const inputOf = (content: string) =>
  JSON.stringify({
    threadId: 't',
    runId: 'r',
    messages: [{ id: 'u1', role: 'user', content }],
    tools: [],
    context: [],
    state: {},
    forwardedProps: {},
  })

async function eventsOf(content: string): Promise<BaseEvent[]> {
  const response = await fetch(agent.url, { method: 'POST', body: inputOf(content) })
  expect(response.headers.get('content-type')).toContain('text/event-stream')
  const frames = (await response.text()).split('\n\n').filter((frame) => frame !== '')
  const events: BaseEvent[] = frames.map((frame) => JSON.parse(frame.replace(/^data: /, '')))
  return lastValueFrom(from(events).pipe(transformChunks(), verifyEvents(), toArray()))
}

const said = (events: BaseEvent[]) =>
  events.flatMap((event) => (event.type === 'TEXT_MESSAGE_CONTENT' ? [event.delta] : [])).join('')

test('a real Mastra agent streams a text as AG-UI events', async () => {
  const events = await eventsOf('hello')
  expect(said(events)).toBe(HELLO_TEXT)
  expect(events.at(-1)).toMatchObject({ type: 'RUN_FINISHED' })
})

test('a real Mastra agent calls its tool and speaks about the result', async () => {
  const events = await eventsOf('what time is it in Tokyo?')
  expect(events.map((event) => event.type)).toContain('TOOL_CALL_START')
  expect(events.find((event) => event.type === 'TOOL_CALL_RESULT')).toMatchObject({
    content: '{"city":"Tokyo","utcOffsetHours":9}',
  })
  expect(said(events)).toBe(TOOL_TEXT)
})

test('anything but a POST of a RunAgentInput is refused', async () => {
  expect((await fetch(agent.url)).status).toBe(405)
  expect((await fetch(agent.url, { method: 'POST', body: '{}' })).status).toBe(400)
  expect((await fetch(agent.url, { method: 'POST', body: 'x' })).status).toBe(400)
})

test('the model is left when the caller goes', async () => {
  const left = Promise.withResolvers<void>()
  const chunk = { choices: [{ index: 0, delta: { role: 'assistant', content: 'on and on ' } }] }
  const endless = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const timer = setInterval(() => response.write(`data: ${JSON.stringify(chunk)}\n\n`), 20)
    response.once('close', () => {
      clearInterval(timer)
      left.resolve()
    })
  })
  endless.listen(0, '127.0.0.1')
  await once(endless, 'listening')
  const { port } = endless.address() as AddressInfo
  const other = await startMastraAgent(`http://127.0.0.1:${port}/v1`)
  onTestFinished(() => {
    other.child.kill('SIGKILL')
    endless.closeAllConnections()
    endless.close()
  })
  const call = request(other.url, { method: 'POST' })
  call.once('response', (response) => response.once('data', () => call.destroy()))
  call.end(inputOf('hello'))
  await left.promise
  expect(await other.stop()).toBe(0)
})
