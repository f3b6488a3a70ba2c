import type { Cancel, Finding, Histories, Stored, StoredRun, View } from '../history.ts'

const ENDED = new Set(['succeeded', 'failed', 'stopped'])

/** What a run of each agent may fail with besides what ends any run that had bad luck. */
const FAILURES: Readonly<Record<string, readonly string[]>> = {
  silent: ['stalled', 'upstream_timeout'],
  failing: ['upstream_error', 'upstream_truncated'],
  breaking: ['upstream_error', 'upstream_truncated', 'agent_error'],
  truncated: ['upstream_truncated'],
  doubtful: ['in_doubt'],
  brittle: ['runner_lost'],
}
const BAD_LUCK = ['attempts_exhausted', 'deadline_exceeded']

/** I4, I10, I11: every run ends, once, for a reason there is; every asker is told the same; a cancel counts. */
export function checkEndings(histories: Histories, stored: Stored): Finding[] {
  return [
    ...[...stored.runs.values()].flatMap(checkRun),
    ...histories.views.flatMap((view) => checkView(view, stored.runs.get(view.runId))),
    ...histories.cancels.flatMap((cancel) => checkCancel(cancel, stored.runs.get(cancel.runId))),
  ]
}

function checkRun({ runId, state, agent, errorCode }: StoredRun): Finding[] {
  if (!ENDED.has(state)) return [{ invariant: 'I4 every run ends', runId, detail: state }]
  if (state !== 'failed') return []
  if ([...BAD_LUCK, ...(FAILURES[agent] ?? [])].includes(errorCode ?? '')) return []
  const detail = `a run of ${agent} failed with ${errorCode}`
  return [{ invariant: 'a run fails for a reason there is', runId, detail }]
}

function checkView(view: View, run: StoredRun | undefined): Finding[] {
  const { runId } = view
  if (!run) return []
  const told = `${view.state} (${view.outcome}) of ${view.sequence} events`
  const isSame =
    view.state === run.state && view.outcome === run.outcome && view.sequence === run.sequence
  if (ENDED.has(view.state) && !isSame) {
    const detail = `told ${told}, ended as ${run.state} (${run.outcome}) of ${run.sequence}`
    return [{ invariant: 'I11 an ending stays as it was told', runId, detail }]
  }
  if (view.afterTheEnd && !ENDED.has(view.state)) {
    return [{ invariant: 'I10 the end is told after it committed', runId, detail: `told ${told}` }]
  }
  if (view.sequence > run.sequence || view.state === 'unknown') {
    return [{ invariant: 'I11 nothing that was told is undone', runId, detail: `told ${told}` }]
  }
  return []
}

function checkCancel({ runId, status, state }: Cancel, run: StoredRun | undefined): Finding[] {
  if (!run) return []
  if (status === 200 && state === run.state) return []
  if (status === 202 && run.state === 'stopped') return []
  const detail = `a cancel was answered ${status} ${state}, and the run ended as ${run.state}`
  return [{ invariant: 'a cancel that was answered counts', runId, detail }]
}
