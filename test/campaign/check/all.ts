import type { Counted, Finding, Histories, Stored } from '../history.ts'
import { checkAttempts } from './attempts.ts'
import { checkEndings } from './endings.ts'
import { checkLogs } from './logs.ts'
import { checkNotifications } from './notifications.ts'
import { checkRequests } from './requests.ts'

export type Evidence = {
  readonly histories: Histories
  readonly stored: Stored
  readonly counted: readonly Counted[]
  /** Endpoints that are told of every run. */
  readonly sinks: readonly string[]
}

/** Holds what everybody wrote down against what the database says. A healthy campaign finds nothing. */
export async function checkAll(evidence: Evidence): Promise<Finding[]> {
  const { histories, stored, counted, sinks } = evidence
  return [
    ...checkRequests(histories, stored),
    ...(await checkLogs(histories, stored)),
    ...checkEndings(histories, stored),
    ...checkAttempts(histories, stored, counted),
    ...checkNotifications(histories, stored, sinks),
  ]
}
