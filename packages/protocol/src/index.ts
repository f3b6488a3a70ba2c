export { EventType } from '@ag-ui/core'
export { type AgentInput, isAgentInput, readAgentInput } from './agent-input.ts'
export {
  type AgentLimits,
  type AgentSpec,
  type AgentsFile,
  type AgUiAgentSpec,
  agentLimits,
  BUILT_IN_AGENTS,
  defaultAgent,
  type McpServerSpec,
  type OpenAiAgentSpec,
  parseAgentsFile,
} from './agents-file.ts'
export {
  type Answers,
  type AnswersOutcome,
  answersTo,
  hasExpired,
  type Pending,
  type ToolResult,
} from './answers.ts'
export {
  attachmentUrl,
  type MediaPart,
  mapMedia,
  referenceOf,
  sentBytesOf,
} from './attachment.ts'
export { type Closing, closingEvents } from './closing.ts'
export { coalesce } from './coalesce.ts'
export { type EndCause, endingOf, type RunEnding } from './ending.ts'
export type {
  AgUiEvent,
  ContentPart,
  Context,
  Interrupt,
  JsonPatch,
  Message,
  PartSource,
  ResumeEntry,
  RunAgentInput,
  TokenUsage,
  Tool,
  ToolMessage,
  UserMessage,
} from './event.ts'
export {
  emptyFold,
  type Fold,
  foldEvents,
  type UnansweredCall,
  unansweredToolCalls,
} from './fold.ts'
export { comment, frame, parseCursor, retry } from './framing.ts'
export { agentHistory, type HistoryOptions, type MessageStatus } from './history.ts'
export { patched } from './json-patch.ts'
export { LIMITS } from './limits.ts'
export {
  asEndpoint,
  DeliveryState,
  isNotifyAllowed,
  NotificationVariables,
} from './notification-settings.ts'
export type { OpenConstruct, OpenKind } from './open-constructs.ts'
export { type Prelude, preludeEvents } from './prelude.ts'
export { PROBLEMS, Problem, type ProblemCode } from './problem.ts'
export {
  CancelBody,
  CancelQuery,
  CancelReceipt,
  CancelThreadBody,
  ConversationPage,
  ConversationSummary,
  ConversationView,
  CreateRunBody,
  DeleteConversationQuery,
  EventsQuery,
  ForeignId,
  ListConversationsQuery,
  ListRunsQuery,
  NotificationPage,
  NotificationsQuery,
  NotificationView,
  OnActive,
  OnActiveQuery,
  Readiness,
  RenameBody,
  RunnerPage,
  RunPage,
  RunReceipt,
  RunView,
  TimelineView,
  UserContent,
} from './rest.ts'
export {
  AttemptReason,
  isTerminal,
  RUN_ERROR_MESSAGES,
  type RunCommand,
  RunErrorCode,
  RunOutcome,
  RunState,
  type TerminalState,
  TRANSITIONS,
} from './run-state.ts'
export { joinSurrogates, sanitize, withoutNulls } from './sanitize.ts'
export { WhyReason, WhyView, whyInWords } from './why.ts'
export { attemptEvent, type Withdrawal, withdrawalEvents } from './withdrawal.ts'
