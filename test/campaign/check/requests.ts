import { type Finding, type Histories, type Stored, type Turn, turnKey } from '../history.ts'

/** I18, I20: what was accepted is there, once; what was refused left no trace; nobody saw what is another's. */
export function checkRequests(histories: Histories, stored: Stored): Finding[] {
  return [
    ...histories.turns.flatMap((turn) => checkTurn(turn, stored)),
    ...histories.trespasses.flatMap(({ runId, user, status }) =>
      status === 404
        ? []
        : [finding('I20 a foreign run looks unknown', runId, `${user} was answered ${status}`)],
    ),
  ]
}

function checkTurn(turn: Turn, stored: Stored): Finding[] {
  const found: Finding[] = []
  const accepted = turn.answers.filter(({ status }) => status === 200 || status === 202)
  const runIds = new Set(accepted.flatMap(({ runId }) => runId ?? []))
  const known = stored.turns.get(turnKey(turn.user, turn.clientTurnId))
  const first = known ?? [...runIds][0] ?? null
  const of = `turn ${turn.clientTurnId} of ${turn.user}`
  if (runIds.size > 1) {
    found.push(finding('I18 one turn is one run', first, `${of} is ${[...runIds].join(' and ')}`))
  }
  for (const runId of runIds) {
    const run = stored.runs.get(runId)
    if (!run) found.push(finding('I18 an accepted run exists', runId, `${of} is lost`))
    else if (run.user !== turn.user) {
      found.push(finding('I20 a run is its sender’s', runId, `${of} belongs to ${run.user}`))
    }
    if (known !== undefined && known !== runId) {
      found.push(finding('I18 one turn is one run', runId, `${of} is stored as ${known}`))
    }
  }
  if (accepted.filter(({ status }) => status === 202).length > 1) {
    found.push(finding('I18 a turn is accepted once', first, `${of} was answered 202 twice`))
  }
  const isRefused = accepted.length === 0 && turn.answers.length > 0 && turn.unanswered === 0
  if (isRefused && known !== undefined) {
    found.push(finding('I18 what is refused leaves no trace', known, of))
  }
  return [...found, ...turn.answers.flatMap((answer) => checkAnswer(turn, answer, stored))]
}

function checkAnswer(turn: Turn, answer: Turn['answers'][number], stored: Stored): Finding[] {
  const { status, code, activeRunId } = answer
  const of = `turn ${turn.clientTurnId} of ${turn.user}`
  if (status === 200 || status === 202) return checkRoom(turn, answer, stored)
  const isBusy = status === 409 && code === 'conversation_busy' && turn.onActive === 'reject'
  if (!isBusy) {
    return [
      finding('a turn is accepted or told that another runs', null, `${of}: ${status} ${code}`),
    ]
  }
  const active = activeRunId === null ? undefined : stored.runs.get(activeRunId)
  if (!active || active.user !== turn.user) {
    return [finding('I18 a refusal names the active run', activeRunId, of)]
  }
  // Ended before the request was even sent: then it was nobody's obstacle.
  const wasOver = active.finishedAtMs !== null && active.finishedAtMs < answer.sentAtMs
  return wasOver ? [finding('I18 a refusal names an unfinished run', activeRunId, of)] : []
}

/** `cancel` makes room: whatever was unfinished before it has ended, or was stopped. */
function checkRoom(turn: Turn, answer: Turn['answers'][number], stored: Stored): Finding[] {
  const run = answer.runId === null ? undefined : stored.runs.get(answer.runId)
  if (!run || turn.onActive !== 'cancel') return []
  return [...stored.runs.values()].flatMap((before) => {
    if (before.conversationId !== run.conversationId || before.turn >= run.turn) return []
    const hadEnded = before.finishedAtMs !== null && before.finishedAtMs <= run.createdAtMs
    if (hadEnded || before.state === 'stopped') return []
    const detail = `${before.state} although turn ${run.turn} came to stop it`
    return [finding('stop-and-send stops what runs', before.runId, detail)]
  })
}

function finding(invariant: string, runId: string | null, detail: string): Finding {
  return { invariant, runId, detail }
}
