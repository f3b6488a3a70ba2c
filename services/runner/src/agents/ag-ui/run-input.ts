import type { AgUiAgentSpec, RunAgentInput } from '@holdfast/protocol'
import type { AgentRun } from '../agent.ts'
import { filledHeaders } from '../upstream/filled-headers.ts'

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
    ...(run.resume.length > 0 && { resume: [...run.resume] }),
    // Whoever starts a run may pass what they like to the agent, but not who they are.
    forwardedProps: {
      ...run.forwardedProps,
      holdfast: { tenant: run.tenantId, user: run.userId },
    },
  }
}

/** The configured headers with their placeholders filled, and those of the protocol. */
export function requestHeaders(spec: AgUiAgentSpec, run: AgentRun): Record<string, string> {
  return {
    ...filledHeaders(spec.headers, run),
    'content-type': 'application/json',
    accept: 'text/event-stream',
    'accept-encoding': 'identity',
    'idempotency-key': run.runId,
  }
}
