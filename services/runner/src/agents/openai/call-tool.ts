import { createHash } from 'node:crypto'
import type { OpenAiAgentSpec } from '@holdfast/protocol'
import { asError } from '@holdfast/std'
import type { AgentRun } from '../agent.ts'
import { fieldsOf } from '../loose-json.ts'
import { McpFailure } from '../mcp/mcp-failure.ts'
import { resultText } from '../mcp/result-text.ts'
import type { SessionPool } from '../mcp/session-pool.ts'
import type { ServerTool, Toolbox } from './toolbox.ts'
import type { MadeCall } from './turn.ts'

export type CallDeps = {
  readonly spec: OpenAiAgentSpec
  readonly run: AgentRun
  readonly sessions: SessionPool
  readonly toolbox: Toolbox
}

/**
 * Calls a server's tool as a step of the run: its intent is durable before, its result after. What goes wrong is a
 * result too, for the model to deal with.
 * @param place of the call in the turn; the same call of another attempt is the same step
 * @throws what ends the attempt: the signal's reason, or that an earlier call is in doubt
 */
export async function callTool(
  call: MadeCall,
  place: string,
  { spec, run, sessions, toolbox }: CallDeps,
  signal: AbortSignal,
): Promise<string> {
  const found = toolbox.serverTools.get(call.name)
  if (!found) return `Error: there is no tool ${call.name}.`
  const given = argumentsOf(call)
  if (!given) return 'Error: the arguments are not a JSON object. The tool was not called.'
  const { policy } = found
  // Nobody can ask a server what became of a call, so whoever wants it asked is asked themselves.
  const lookup = policy === 'ask' ? { lookup: async () => ({ kind: 'unknown' }) as const } : {}
  const options = { kind: 'tool', policy, signal, ...lookup }
  return await run.step(stepKey(call, place), options, async (step) => {
    const { tenantId, userId, runId } = run
    const meta = {
      'holdfast/idempotencyKey': step.idempotencyKey,
      'holdfast/runId': runId,
      'holdfast/tenant': tenantId,
      'holdfast/user': userId,
    }
    const request = { name: found.tool.name, arguments: given, meta, timeoutMs: spec.toolTimeoutMs }
    return await answered(found, signal, run, () =>
      sessions.lend(found.server, run, signal, (session) => session.call(request, signal)),
    )
  })
}

/** A call that was not taken is made once more, on a new session; one whose answer is lost only if it does no harm. */
async function answered(
  { policy, server, tool }: ServerTool,
  signal: AbortSignal,
  { log, assertHeld }: AgentRun,
  call: () => Promise<Parameters<typeof resultText>[0]>,
): Promise<string> {
  for (let tries = 0; ; tries += 1) {
    try {
      assertHeld()
      return resultText(await call())
    } catch (error) {
      signal.throwIfAborted()
      if (!(error instanceof McpFailure)) throw error
      log.warn({ err: error, server, tool: tool.name }, 'a tool call failed')
      const again = error.kind === 'refused' || (error.kind === 'lost' && policy === 'retry')
      if (!again || tries > 0) return meaningOf(error)
    }
  }
}

/** A server that answers knows what the model should do better; what only broke is nothing to read about. */
function meaningOf({ kind, cause }: McpFailure): string {
  switch (kind) {
    case 'refused':
      return 'Error: the tool cannot be reached.'
    case 'lost':
      return 'Error: the connection to the tool broke. Whether it did its work is not known.'
    case 'timeout':
      return 'Error: the tool did not answer in time. Whether it did its work is not known.'
    case 'answered':
      return `Error: ${asError(cause).message}`.slice(0, ERROR_CHARS_MAX).toWellFormed()
  }
}

const ERROR_CHARS_MAX = 2000

function argumentsOf(call: MadeCall): Record<string, unknown> | undefined {
  try {
    const given = fieldsOf(JSON.parse(call.arguments))
    return given && { ...given }
  } catch {
    return undefined
  }
}

/** With what is asked in it: should a model be asked anew, another question is another step. */
function stepKey({ name, arguments: given }: MadeCall, place: string): string {
  const digest = createHash('sha256').update(given).digest('base64url').slice(0, 16)
  return `${name} ${place} ${digest}`
}
