import * as z from 'zod'
import { RUN_ERROR_MESSAGES, RunErrorCode, RunOutcome, RunState } from './run-state.ts'

const Time = z.string()

/** Why a run is not further: a code for programs, and the facts that belong to it. */
export const WhyReason = z.discriminatedUnion('code', [
  z.object({
    code: z.literal('ended'),
    state: RunState,
    at: Time,
    outcome: RunOutcome,
    errorCode: RunErrorCode.nullable(),
  }),
  /** `behind` is the turn right before it, `active` the one that the conversation is at. */
  z.object({
    code: z.literal('parked'),
    behindRunId: z.string(),
    behindTurn: z.int(),
    activeRunId: z.string(),
  }),
  z.object({ code: z.literal('unparking') }),
  z.object({ code: z.literal('backing_off'), until: Time }),
  z.object({ code: z.literal('no_runner'), agent: z.string() }),
  z.object({
    code: z.literal('runners_unavailable'),
    agent: z.string(),
    full: z.int(),
    draining: z.int(),
    silent: z.int(),
  }),
  z.object({ code: z.literal('due'), since: Time }),
  /** It may not be executed (again): the next sweep of any runner ends it. */
  z.object({
    code: z.literal('to_be_ended'),
    cause: z.enum([
      'cancel',
      'deadline_exceeded',
      'queue_timeout',
      'attempts_exhausted',
      'runner_lost',
    ]),
  }),
  z.object({
    code: z.literal('executing'),
    runner: z.string(),
    leaseUntil: Time,
    attempt: z.int(),
  }),
  z.object({ code: z.literal('runner_silent'), runner: z.string(), lastSeen: Time.nullable() }),
  z.object({ code: z.literal('lease_passed'), runner: z.string().nullable(), at: Time.nullable() }),
  z.object({ code: z.literal('cancel_pending'), since: Time }),
  z.object({ code: z.literal('step_pending'), step: z.string(), since: Time }),
  z.object({ code: z.literal('in_doubt'), step: z.string(), since: Time }),
])
export type WhyReason = z.infer<typeof WhyReason>

export const WhyView = z.object({
  runId: z.string(),
  state: RunState,
  /** For people: one sentence a reason, the most important first. */
  why: z.string(),
  reasons: z.array(WhyReason).readonly(),
})
export type WhyView = z.infer<typeof WhyView>

/** The same for people. */
export function whyInWords(reasons: readonly WhyReason[]): string {
  return reasons.map(sentence).join(' ')
}

function sentence(reason: WhyReason): string {
  switch (reason.code) {
    case 'ended':
      return ended(reason)
    case 'parked': {
      const active =
        reason.activeRunId === reason.behindRunId
          ? ''
          : `; the conversation is at run ${reason.activeRunId}`
      return `It is parked behind run ${reason.behindRunId} (turn ${reason.behindTurn})${active}.`
    }
    case 'unparking':
      return 'It is parked although no turn is unfinished before it; the next sweep makes it due.'
    case 'backing_off':
      return `It is backing off until ${reason.until}.`
    case 'no_runner':
      return `No runner has agent ${reason.agent}.`
    case 'runners_unavailable':
      return unavailable(reason)
    case 'due':
      return `It has been due since ${reason.since}; the next runner with a free slot claims it.`
    case 'to_be_ended':
      return `The next sweep ends it: ${CAUSES[reason.cause]}.`
    case 'executing':
      return `Runner ${reason.runner} executes attempt ${reason.attempt}; its lease is held until ${reason.leaseUntil}.`
    case 'runner_silent':
      return reason.lastSeen === null
        ? `Runner ${reason.runner} is not registered any more; the run is taken over when its lease passes.`
        : `Runner ${reason.runner} has been silent since ${reason.lastSeen}; the run is taken over when its lease passes.`
    case 'lease_passed':
      return `The lease of ${reason.runner ?? 'its runner'} passed at ${reason.at ?? 'an unknown time'}; it waits to be taken over.`
    case 'cancel_pending':
      return `A cancel is pending since ${reason.since} and waits for its runner to stop.`
    case 'step_pending':
      return `It waits for step ${reason.step}, begun at ${reason.since}.`
    case 'in_doubt':
      return `Step ${reason.step} is in doubt: it began at ${reason.since}, and its result is not known.`
  }
}

const CAUSES = {
  cancel: 'it was cancelled',
  deadline_exceeded: 'it passed its deadline',
  queue_timeout: 'it waited for too long',
  attempts_exhausted: 'its attempts are used up',
  runner_lost: 'its runner was lost, and its agent does not allow another attempt',
} as const

function ended({ state, at, outcome, errorCode }: Extract<WhyReason, { code: 'ended' }>): string {
  if (errorCode)
    return `It ended as ${state} at ${at}: ${RUN_ERROR_MESSAGES[errorCode]} (${errorCode})`
  if (outcome === 'interrupt') {
    return `It ended as ${state} at ${at} with a question that waits for an answer.`
  }
  return `It ended as ${state} at ${at} (${outcome}).`
}

function unavailable(reason: Extract<WhyReason, { code: 'runners_unavailable' }>): string {
  const counts = (['full', 'draining', 'silent'] as const)
    .filter((what) => reason[what] > 0)
    .map((what) => `${reason[what]} ${what}`)
  return `No runner with agent ${reason.agent} can take it: ${counts.join(', ')}.`
}
