import type { Delivery, Finding, Histories, Stored } from '../history.ts'

/** I17: one logical notification for each ended run, always under the same id, and never before its result. */
export function checkNotifications(
  histories: Histories,
  stored: Stored,
  sinks: readonly string[],
): Finding[] {
  const found = [...stored.runs.values()].flatMap(({ runId }) => {
    const rows = stored.notifications.get(runId)?.length ?? 0
    const detail = `${rows} notifications`
    return rows === 1 ? [] : [{ invariant: 'I17 one notification a run', runId, detail }]
  })
  if (!stored.notifies) return found
  const deliveries = Map.groupBy(histories.deliveries, ({ runId }) => runId)
  for (const run of stored.runs.values()) {
    const mine = deliveries.get(run.runId) ?? []
    for (const sink of sinks) {
      const taken = mine.some((delivery) => delivery.sink === sink && delivery.answered < 300)
      if (taken) continue
      const detail = `${sink} has taken none of ${mine.length}`
      found.push({ invariant: 'I17 every endpoint is told', runId: run.runId, detail })
    }
  }
  return [...found, ...histories.deliveries.flatMap((delivery) => checkDelivery(delivery, stored))]
}

function checkDelivery(delivery: Delivery, stored: Stored): Finding[] {
  const { runId, eventId, state, sink } = delivery
  const say = (invariant: string, detail: string) => ({
    invariant,
    runId,
    detail: `${sink}: ${detail}`,
  })
  const run = stored.runs.get(runId)
  if (!run) return [say('I17 only runs are told of', eventId)]
  const found: Finding[] = []
  if (!delivery.signed) found.push(say('I17 a notification is signed', eventId))
  const [known] = stored.notifications.get(runId) ?? []
  if (known !== eventId) {
    found.push(say('I17 a notification keeps its id', `${eventId} and not ${known}`))
  }
  if (state !== run.state) {
    found.push(say('I17 a notification tells what is so', `${state} and not ${run.state}`))
  }
  if (delivery.found !== null && delivery.found !== run.state) {
    found.push(say('I17 it is told after it can be read', `it was ${delivery.found} then`))
  }
  return found
}
