import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { RunAgentInput } from '@ag-ui/core'
import { MastraAgent } from '@ag-ui/mastra'
import type { Agent } from '@mastra/core/agent'
import { RequestContext } from '@mastra/core/request-context'
import { CALLER_GONE } from './clock-agent.ts'

const BODY_BYTES_MAX = 16 << 20

/** One AG-UI endpoint: POST a RunAgentInput, read its events as server-sent events. */
export function serveAgent(agent: Agent): Server {
  return createServer((request, response) => {
    answer(agent, request, response).catch((error: unknown) => {
      process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`)
      if (!response.headersSent) response.writeHead(500)
      response.end()
    })
  })
}

async function answer(agent: Agent, request: IncomingMessage, response: ServerResponse) {
  if (request.method !== 'POST') {
    response.writeHead(405, { allow: 'POST' }).end()
    return
  }
  const input = await inputOf(request)
  if (!input) {
    response.writeHead(400).end()
    return
  }
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
  })
  response.flushHeaders()
  await stream(agent, input, response)
  response.end()
}

/** Ends when the agent has ended, or when nobody is there any more to read. */
async function stream(agent: Agent, input: RunAgentInput, response: ServerResponse) {
  const callerGone = new AbortController()
  const requestContext = new RequestContext()
  requestContext.set(CALLER_GONE, callerGone.signal)
  const bridge = new MastraAgent({ agent, resourceId: input.threadId, requestContext })
  const { promise, resolve } = Promise.withResolvers<void>()
  const write = (event: object) => response.write(`data: ${JSON.stringify(event)}\n\n`)
  const subscription = bridge.run(input).subscribe({
    next: write,
    error: (error: unknown) => {
      write({ type: 'RUN_ERROR', message: error instanceof Error ? error.message : 'failed' })
      resolve()
    },
    complete: resolve,
  })
  response.once('close', () => {
    callerGone.abort()
    resolve()
  })
  await promise
  subscription.unsubscribe()
}

async function inputOf(request: IncomingMessage): Promise<RunAgentInput | undefined> {
  let text = ''
  request.setEncoding('utf8')
  for await (const part of request) {
    text += part
    if (text.length > BODY_BYTES_MAX) return undefined
  }
  try {
    const input: unknown = JSON.parse(text)
    return isRunAgentInput(input) ? input : undefined
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}

function isRunAgentInput(input: unknown): input is RunAgentInput {
  return (
    typeof input === 'object' &&
    input !== null &&
    'threadId' in input &&
    'runId' in input &&
    'messages' in input &&
    Array.isArray(input.messages)
  )
}
