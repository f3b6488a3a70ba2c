import {
  Cancelled,
  failuresOf,
  isInterruption,
  type Report,
  type Run,
  withScopeOf,
} from '@holdfast/agent-kit'
import { sanitize } from '@holdfast/protocol'
import { abortCauseOf } from '../../abort.ts'
import { type Agent, AgentFailure, type AgentResult, type AgentRun } from '../agent.ts'
import { asJson } from './json.ts'
import type { LoadedModule } from './modules.ts'
import { runContext } from './run-context.ts'
import type { Strays } from './strays.ts'
import { openTurn, type Turn } from './turn.ts'

/** Less than the runner waits for an agent, so that the kit says which part of it did not stop. */
const STOP_MS = 3000
const DISPOSE_MS = 1500

/** An agent of the user's, in this process. Each attempt keeps the code that it began with. */
export function createModuleAgent(module: LoadedModule, strays: Strays): Agent {
  return {
    type: 'module',
    get resumes() {
      return module.current.resumes ?? false
    },
    async run(run) {
      const agent = module.current
      const turn = openTurn(run)
      const stop = new AbortController()
      const onAbort = () => stop.abort(reasonOf(run.signal))
      if (run.signal.aborted) onAbort()
      run.signal.addEventListener('abort', onAbort, { once: true })
      const died = Promise.withResolvers<never>()
      died.promise.catch(() => undefined)
      function die(error: Error) {
        died.reject(error)
        stop.abort(new Cancelled('cancel', { cause: error }))
      }
      try {
        const returned = await strays.within({ log: run.log, die }, () =>
          withScopeOf<Run, unknown>(
            (scope) => runContext(turn, scope),
            (context) => agent.run(context),
            {
              signal: stop.signal,
              name: 'agent',
              stopMs: STOP_MS,
              disposeMs: DISPOSE_MS,
              onReport: (report) => warn(run, report),
            },
          ),
        )
        return resultOf(turn, returned)
      } catch (error) {
        run.signal.throwIfAborted()
        // What killed it is the reason; that it was stopped for it is not.
        if (stop.signal.aborted) await died.promise
        throw failureOf(turn, error)
      } finally {
        run.signal.removeEventListener('abort', onAbort)
        // Nothing that listens to the agent's signal outlives it.
        stop.abort(new Cancelled('cancel'))
      }
    },
  }
}

function reasonOf(signal: AbortSignal): Cancelled {
  return new Cancelled(abortCauseOf(signal) ?? 'cancel', { cause: signal.reason })
}

function warn(run: AgentRun, { kind, scope, ms }: Report) {
  run.log.error({ scope, ms: Math.round(ms), kind }, 'the agent does not end as it should')
}

function resultOf({ usage }: Turn, returned: unknown): AgentResult {
  const spent = usage.length > 0 ? { usage } : {}
  if (isInterruption(returned)) {
    return { outcome: 'interrupt', interrupts: sanitize(returned.interrupts), ...spent }
  }
  return { outcome: 'success', result: sanitize(asJson('what run returned', returned)), ...spent }
}

/** One of ours has a code of its own, however deep it lies; anything else is the agent's own failure. */
function failureOf({ usage }: Turn, error: unknown): AgentFailure {
  const spent = usage.length > 0 ? { usage } : {}
  const ours = failuresOf(error)
    .flatMap(causes)
    .find((one) => one instanceof AgentFailure)
  if (ours) return new AgentFailure(ours.code, ours.message, { cause: error, ...spent })
  return new AgentFailure('agent_error', 'the agent failed', { cause: error, ...spent })
}

function causes(error: Error): Error[] {
  const chain: Error[] = []
  for (let at: unknown = error; at instanceof Error && chain.length < 20; at = at.cause) {
    chain.push(at)
  }
  return chain
}
