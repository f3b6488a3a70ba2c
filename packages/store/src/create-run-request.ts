import type { Context, RunState, Tool, UserMessage } from '@holdfast/protocol'

export type CreateRun = {
  readonly clientTurnId: string
  /** REST: an id of ours. */
  readonly conversationId?: string | undefined
  /** AG-UI: the caller's thread; an unknown one makes a conversation. */
  readonly threadId?: string | undefined
  readonly agent?: string | undefined
  readonly message: UserMessage['content']
  /** AG-UI: the caller's id of the message. One that is stored in the thread already is a repeat. */
  readonly messageId?: string | undefined
  /** AG-UI: what the caller calls the run. */
  readonly wireRunId?: string | undefined
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
  | {
      readonly kind:
        | 'turn_mismatch'
        | 'turn_gone'
        | 'not_found'
        | 'unknown_agent'
        | 'conversation_full'
    }
