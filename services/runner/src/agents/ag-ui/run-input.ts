import type { AgUiAgentSpec, RunAgentInput } from '@holdfast/protocol'
import type { AgentRun } from '../agent.ts'

/** The request's body: this run in AG-UI's words. */
export function runInput(run: AgentRun): RunAgentInput {
  return {
    threadId: run.conversationId,
    runId: `${run.runId}.${run.epoch}`,
    protocolVersion: '1.0',
    state: run.state ?? {},
    messages: [...run.messages],
    tools: [...run.tools],
    context: [...run.context],
    // Whoever starts a run may pass what they like to the agent, but not who they are.
    forwardedProps: {
      ...run.forwardedProps,
      holdfast: { tenant: run.tenantId, user: run.userId },
    },
  }
}

/** The configured headers with their placeholders filled, and those of the protocol. */
export function requestHeaders(spec: AgUiAgentSpec, run: AgentRun): Record<string, string> {
  const values: Record<string, string> = {
    tenant: run.tenantId,
    user: run.userId,
    conversationId: run.conversationId,
    runId: run.runId,
    attempt: String(run.epoch),
  }
  const configured = Object.entries(spec.headers).map(([name, text]) => [
    name.toLowerCase(),
    text.replaceAll(/\{(\w+)\}/g, (written, key: string) =>
      Object.hasOwn(values, key) ? headerSafe(values[key] ?? '') : written,
    ),
  ])
  return {
    ...Object.fromEntries(configured),
    'content-type': 'application/json',
    accept: 'text/event-stream',
    'accept-encoding': 'identity',
    'idempotency-key': run.runId,
  }
}

/** Ids come from callers: what no header may hold is percent-encoded, and so is the percent sign. */
function headerSafe(value: string): string {
  return value.replaceAll(/[^\x21-\x24\x26-\x7e]/gu, (character) =>
    [...new TextEncoder().encode(character)]
      .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`)
      .join(''),
  )
}
