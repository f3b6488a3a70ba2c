import type {
  Context,
  ResumeEntry,
  RunState,
  Tool,
  ToolResult,
  UserMessage,
} from '@holdfast/protocol'

export type CreateRun = {
  readonly clientTurnId: string
  /** REST: an id of ours. */
  readonly conversationId?: string | undefined
  /** AG-UI: the caller's thread; an unknown one makes a conversation. */
  readonly threadId?: string | undefined
  readonly agent?: string | undefined
  /** May be left out by a turn that answers what is pending. */
  readonly message?: UserMessage['content'] | undefined
  /** AG-UI: the caller's id of the message. One that is stored in the thread already is a repeat. */
  readonly messageId?: string | undefined
  /** AG-UI: what the caller calls the run. */
  readonly wireRunId?: string | undefined
  /** Answers to all pending interrupts. */
  readonly resume?: readonly ResumeEntry[] | undefined
  /** Results of the front end's own tools. */
  readonly toolResults?: readonly ToolResult[] | undefined
  /** AG-UI: results that are not pending belong to the client's history and are left out. */
  readonly ignoreSettled?: boolean | undefined
  /** A run whose turn, and those behind it, are not shown any more. */
  readonly replaces?: string | undefined
  readonly onActive: 'reject' | 'enqueue' | 'cancel'
  readonly notifyUrl?: string | undefined
  readonly deadlineMs?: number | undefined
  readonly context?: readonly Context[] | undefined
  readonly state?: unknown
  readonly tools?: readonly Tool[] | undefined
  readonly forwardedProps?: Record<string, unknown> | undefined
}

export type RunReceipt = {
  readonly runId: string
  readonly conversationId: string
  readonly threadId: string
  readonly agent: string
  readonly state: RunState
  readonly sequence: number
}

export type CreateRunOutcome =
  /** `cancelled`: running runs that were marked to make room; their owners have to be woken. */
  | { readonly kind: 'created'; readonly run: RunReceipt; readonly cancelled: readonly string[] }
  | { readonly kind: 'repeated'; readonly run: RunReceipt }
  | { readonly kind: 'conversation_busy'; readonly activeRunId: string }
  /** What is answered is not pending (any more), or something that is pending would stay without its one answer. */
  | { readonly kind: 'interrupt_closed' | 'answers_incomplete'; readonly ids: readonly string[] }
  /** A content part that cannot be kept. */
  | {
      readonly kind: 'invalid_content'
      readonly errors: readonly { readonly path: string; readonly message: string }[]
    }
  | {
      readonly kind:
        | 'turn_mismatch'
        | 'turn_gone'
        | 'not_found'
        | 'unknown_agent'
        | 'unknown_attachment'
        | 'conversation_full'
        /** AG-UI: a message is brought under an id that another one has. */
        | 'message_id_taken'
    }

type Refusal = Exclude<CreateRunOutcome, { kind: 'created' | 'repeated' }>

/** Thrown to roll back: a refused request leaves no trace. */
export class Refused extends Error {
  readonly outcome: Refusal
  constructor(outcome: Refusal) {
    super(outcome.kind)
    this.outcome = outcome
  }
}
