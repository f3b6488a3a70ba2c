import * as z from 'zod'
import { isAttachable, isBase64, isDataUrl, sentBytesOf } from './attachment.ts'
import { LIMITS } from './limits.ts'
import { DeliveryState } from './notification-settings.ts'
import { RunErrorCode, RunOutcome, RunState } from './run-state.ts'

/** Ids that callers bring are kept as they are, but an index must be able to hold them. */
export const ForeignId = z.string().min(1).max(256)

const Metadata = z.record(z.string(), z.unknown())
const ATTACHABLE = 'must be a media type of pictures, sound, films, text or documents'
const Source = z.discriminatedUnion('type', [
  z.object({
    type: z.literal('data'),
    value: z.string().min(1).refine(isBase64, 'must be base64, with its padding'),
    mimeType: z.string().refine(isAttachable, ATTACHABLE),
  }),
  z.object({
    type: z.literal('url'),
    value: z.string().refine(isUsableUrl, `as a data URL it ${ATTACHABLE} with base64`),
    mimeType: z.string().optional(),
  }),
  z.object({
    type: z.literal('file'),
    value: z.string(),
    provider: z.string().optional(),
    mimeType: z.string().optional(),
  }),
])

/** What is elsewhere is the caller's and the agent's affair; what comes along is looked at. */
function isUsableUrl(value: string): boolean {
  if (!isDataUrl(value)) return true
  const sent = sentBytesOf({ type: 'url', value })
  return sent !== null && sent.base64 !== '' && isBase64(sent.base64) && isAttachable(sent.mimeType)
}

const mediaPart = <T extends string>(type: T) =>
  z.object({
    type: z.literal(type),
    id: z.string().optional(),
    source: Source,
    metadata: Metadata.optional(),
  })

/** What a user says: text, or AG-UI content parts. */
export const UserContent = z.union([
  z.string().min(1),
  z
    .array(
      z.discriminatedUnion('type', [
        z.object({
          type: z.literal('text'),
          id: z.string().optional(),
          text: z.string(),
          metadata: Metadata.optional(),
        }),
        mediaPart('image'),
        mediaPart('audio'),
        mediaPart('video'),
        mediaPart('document'),
      ]),
    )
    .min(1)
    .max(LIMITS.contentPartsMax),
])
export type UserContent = z.infer<typeof UserContent>

const ResumeEntry = z.object({
  interruptId: z.string().min(1),
  status: z.enum(['resolved', 'cancelled']),
  payload: z.unknown().optional(),
  metadata: Metadata.optional(),
})

const ToolResult = z.object({
  toolCallId: z.string().min(1),
  content: z.union([z.string(), UserContent]),
  error: z.string().nullish(),
})

const Tool = z.object({
  name: z.string(),
  description: z.string(),
  parameters: z.unknown().optional(),
  metadata: Metadata.optional(),
})
const Context = z.object({ description: z.string(), value: z.string() })
export const OnActive = z.enum(['reject', 'enqueue', 'cancel'])

/** The body of POST /runs. An optional field that is null counts as left out. */
export const CreateRunBody = z.object({
  message: UserContent.nullish(),
  clientTurnId: z.string().min(1).max(LIMITS.clientTurnIdCharsMax),
  conversationId: z.string().nullish(),
  agent: ForeignId.nullish(),
  onActive: OnActive.nullish(),
  notifyUrl: z.string().max(2048).nullish(),
  deadlineMs: z.int().min(1).max(LIMITS.deadlineMsMax).nullish(),
  context: z.array(Context).nullish(),
  state: z.unknown().optional(),
  tools: z.array(Tool).nullish(),
  forwardedProps: z.record(z.string(), z.unknown()).nullish(),
  resume: z.array(ResumeEntry).max(LIMITS.answersMax).nullish(),
  toolResults: z.array(ToolResult).max(LIMITS.answersMax).nullish(),
  replaces: z.string().nullish(),
})
export type CreateRunBody = z.infer<typeof CreateRunBody>

export const RunReceipt = z.object({
  runId: z.string(),
  conversationId: z.string(),
  state: RunState,
  sequence: z.int(),
  links: z.object({ self: z.string(), events: z.string(), cancel: z.string() }),
})
export type RunReceipt = z.infer<typeof RunReceipt>

const Time = z.string()

const Attempt = z.object({
  epoch: z.int(),
  runner: z.string(),
  startedAt: Time,
  endedAt: Time.nullable(),
  outcome: z.string().nullable(),
})

export const RunView = z.object({
  runId: z.string(),
  conversationId: z.string(),
  agent: z.string(),
  state: RunState,
  outcome: RunOutcome.nullable(),
  epoch: z.int(),
  attemptsUsed: z.int(),
  sequence: z.int(),
  createdAt: Time,
  startedAt: Time.nullable(),
  finishedAt: Time.nullable(),
  cancelRequestedAt: Time.nullable(),
  error: z.object({ code: RunErrorCode, message: z.string() }).nullable(),
  result: z.unknown(),
  usage: z.array(z.unknown()).readonly(),
  attempts: z.array(Attempt).readonly(),
  inDoubt: z
    .array(z.object({ step: z.string(), idempotencyKey: z.string(), since: Time }))
    .readonly(),
  artifacts: z
    .array(
      z.object({
        name: z.string(),
        mediaType: z.string(),
        bytes: z.int(),
        url: z.string(),
        createdAt: Time,
      }),
    )
    .readonly(),
})
export type RunView = z.infer<typeof RunView>

/** What happened to a run, for people who look for the reason. */
export const TimelineView = z.object({
  runId: z.string(),
  state: RunState,
  attempts: z.array(Attempt.extend({ reason: z.string() })).readonly(),
  spans: z
    .array(
      z.object({
        key: z.string(),
        kind: z.string(),
        parent: z.string().nullable(),
        epoch: z.int(),
        start: Time,
        end: Time.nullable(),
        outcome: z.enum(['done', 'failed', 'cancelled', 'in_doubt']).nullable(),
      }),
    )
    .readonly(),
  /** Nobody held the run; `to` is null while nobody does. */
  leaseGaps: z
    .array(z.object({ afterEpoch: z.int(), from: Time, to: Time.nullable(), ms: z.number() }))
    .readonly(),
  staleWrites: z
    .array(
      z.object({
        operation: z.string(),
        epoch: z.int(),
        currentEpoch: z.int(),
        runner: z.string(),
        lateMs: z.number().nullable(),
        refusedAt: Time,
      }),
    )
    .readonly(),
})
export type TimelineView = z.infer<typeof TimelineView>

const PageQuery = z.object({
  limit: z.coerce.number().int().min(1).max(100).default(20),
  cursor: z.string().max(1024).optional(),
})
const Flag = z.enum(['true', 'false'])

export const ListRunsQuery = PageQuery.extend({
  state: RunState.optional(),
  agent: z.string().optional(),
  conversationId: z.string().optional(),
  all: Flag.optional(),
})
export const RunPage = z.object({ runs: z.array(RunView), nextCursor: z.string().nullable() })

export const CancelBody = z.object({ reason: z.string().max(1000).nullish() }).nullish()
export const CancelQuery = z.object({ wait: z.coerce.number().min(0).max(30).optional() })
export const CancelReceipt = z.object({
  runId: z.string(),
  state: RunState,
  cancelRequestedAt: Time.nullable(),
})
export type CancelReceipt = z.infer<typeof CancelReceipt>

/** The body of POST /ag-ui/{agent}/cancel. */
export const CancelThreadBody = z.object({ threadId: ForeignId, runId: ForeignId.nullish() })
export const OnActiveQuery = z.object({ onActive: OnActive.optional() })

export const EventsQuery = z.object({ after: z.string().optional() })

export const ConversationSummary = z.object({
  conversationId: z.string(),
  externalId: z.string().nullable(),
  title: z.string().nullable(),
  createdAt: Time,
  updatedAt: Time,
})
export const ListConversationsQuery = PageQuery
export const ConversationPage = z.object({
  conversations: z.array(ConversationSummary),
  nextCursor: z.string().nullable(),
})

/** One snapshot: `messages` hold the running answer as far as `activeRun.sequence`. */
export const ConversationView = ConversationSummary.extend({
  messages: z
    .array(
      z.object({
        turn: z.int(),
        index: z.int(),
        runId: z.string(),
        status: z.enum(['complete', 'partial']),
        createdAt: Time,
        message: z.unknown(),
      }),
    )
    .readonly(),
  activeRun: z
    .object({
      runId: z.string(),
      state: RunState,
      sequence: z.int(),
      open: z.array(z.unknown()).readonly(),
    })
    .nullable(),
  queuedRuns: z
    .array(z.object({ runId: z.string(), turn: z.int(), message: z.unknown() }))
    .readonly(),
  pendingInterrupts: z.array(z.looseObject({ id: z.string(), runId: z.string() })).readonly(),
  state: z.unknown(),
})

export const RenameBody = z.object({ title: z.string().min(1).max(500) })
export const DeleteConversationQuery = z.object({ cancel: Flag.optional() })

export const RunnerPage = z.object({
  runners: z.array(
    z.object({
      bootId: z.string(),
      name: z.string(),
      pid: z.int().nullable(),
      agents: z.array(z.string()).readonly(),
      capacity: z.int(),
      running: z.int(),
      lastSeen: Time,
      draining: z.boolean(),
      metricsUrl: z.string().nullable(),
    }),
  ),
})
export const NotificationsQuery = PageQuery.extend({
  state: DeliveryState.optional(),
  runId: z.string().optional(),
})

/** A notification and how far it got. It is dead when one endpoint was given up, delivered when all confirmed. */
export const NotificationView = z.object({
  eventId: z.string(),
  type: z.string(),
  runId: z.string(),
  conversationId: z.string(),
  state: DeliveryState,
  createdAt: Time,
  deliveries: z
    .array(
      z.object({
        endpoint: z.string(),
        state: DeliveryState,
        attempts: z.int(),
        nextAttemptAt: Time.nullable(),
        lastStatus: z.int().nullable(),
        lastError: z.string().nullable(),
        deliveredAt: Time.nullable(),
      }),
    )
    .readonly(),
})
export const NotificationPage = z.object({
  notifications: z.array(NotificationView),
  nextCursor: z.string().nullable(),
})
export const Readiness = z.object({
  status: z.enum(['ready', 'not_ready']),
  reasons: z.array(z.string()),
})
