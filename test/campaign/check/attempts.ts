import type {
  Asked,
  Counted,
  Finding,
  Histories,
  Stored,
  StoredAttempt,
  StoredRun,
} from '../history.ts'

/** Attempts of one run that follow each other are written in one statement, in no order. */
const STATEMENT_MS = 250
/** For a socket's end to be seen by the other side, on a machine that is busy. */
const CLOSE_MS = 3000
/** For a request that was on its way when its run was given to somebody else. */
const ARRIVE_MS = 1000

/** I1, I14, I19: attempts one after the other, turns in order, upstreams never asked by who has lost. */
export function checkAttempts(
  histories: Histories,
  stored: Stored,
  counted: readonly Counted[],
): Finding[] {
  const asked = Map.groupBy(histories.asked, ({ runId }) => runId)
  const conversations = Map.groupBy(stored.runs.values(), (run) => run.conversationId)
  return [
    ...[...conversations.values()].flatMap(checkTurns),
    ...[...stored.attempts.values()].flatMap(checkSequence),
    ...[...asked.values()].flatMap((requests) => checkRequests(requests, stored)),
    ...counted.flatMap((runner) => checkLedger(runner, stored)),
  ]
}

function checkTurns(runs: readonly StoredRun[]): Finding[] {
  const begun = runs
    .filter(({ startedAtMs }) => startedAtMs !== null)
    .toSorted((one, other) => one.turn - other.turn)
  return begun.slice(1).flatMap((run, at) => {
    const before = begun[at]
    const endedAtMs = before?.finishedAtMs ?? Number.POSITIVE_INFINITY
    if (endedAtMs <= Number(run.startedAtMs)) return []
    const detail = `turn ${run.turn} began before turn ${before?.turn} had ended`
    return [{ invariant: 'I19 turns run in order, one at a time', runId: run.runId, detail }]
  })
}

function checkSequence(attempts: readonly StoredAttempt[]): Finding[] {
  return attempts.flatMap(({ runId, epoch, startedAtMs }, at) => {
    const before = attempts[at - 1]
    if (!before) return []
    const found: Finding[] = []
    if (epoch <= before.epoch) {
      found.push({
        invariant: 'I1 each attempt has an epoch of its own',
        runId,
        detail: `${epoch}`,
      })
    }
    if (before.endedAtMs === null || before.endedAtMs > startedAtMs + STATEMENT_MS) {
      const detail = `attempt ${epoch} began before ${before.epoch} had ended`
      found.push({ invariant: 'I19 one attempt at a time', runId, detail })
    }
    return found
  })
}

function checkRequests(requests: readonly Asked[], stored: Stored): Finding[] {
  const found: Finding[] = []
  const run = stored.runs.get(requests[0]?.runId ?? '')
  let newest = { epoch: 0, atMs: 0 }
  for (const request of requests) {
    const { runId, epoch } = request
    const say = (invariant: string, detail: string) => found.push({ invariant, runId, detail })
    if (!run) {
      say('I18 only what was accepted is executed', `${request.script} was asked`)
      continue
    }
    const lateMs = request.atMs - newest.atMs
    if (epoch < newest.epoch && lateMs > ARRIVE_MS) {
      say('I3 who has lost asks nobody', `${epoch} asked ${lateMs} ms after ${newest.epoch}`)
    }
    if (epoch === newest.epoch) say('I16 an attempt asks once', `${epoch} asked twice`)
    if (epoch > newest.epoch) newest = request
    if (request.idempotencyKey !== runId) {
      say('I16 the key is the same in every attempt', request.idempotencyKey)
    }
    const due = JSON.stringify(saidBefore(run, stored))
    const said = JSON.stringify(request.said)
    if (said !== due) say('I19 an agent hears the turns up to its own', `${said} and not ${due}`)
    const closedAtMs = request.closedAtMs()
    const attempt = stored.attempts.get(runId)?.find((each) => each.epoch === epoch)
    if (closedAtMs === null) say('I14 upstreams are closed', `epoch ${epoch} is still connected`)
    else if (attempt?.endedAtMs && attempt.outcome !== 'lost') {
      const afterMs = Math.round(closedAtMs - attempt.endedAtMs)
      if (afterMs > CLOSE_MS) say('I14 upstreams are closed first', `${afterMs} ms after the end`)
    }
  }
  return found
}

/** What the user said in this turn and the ones before. */
function saidBefore(run: StoredRun, stored: Stored): string[] {
  const turnOf = (runId: string) => stored.runs.get(runId)?.turn ?? Number.POSITIVE_INFINITY
  return (stored.messages.get(run.conversationId) ?? []).flatMap(({ runId, message }) => {
    const isSaid = message.role === 'user' && turnOf(runId) <= run.turn
    return isSaid && typeof message.content === 'string' ? message.content : []
  })
}

/** A runner that lives has written a row for every write that was refused to it. */
function checkLedger({ runner, staleWrites }: Counted, stored: Stored): Finding[] {
  const rows = stored.staleWrites.filter((each) => each.runner === runner).length
  if (rows >= staleWrites) return []
  const detail = `runner ${runner} counted ${staleWrites} and wrote down ${rows}`
  return [{ invariant: 'every refused write has its row', runId: null, detail }]
}
