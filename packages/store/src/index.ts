export { type Append, type Appended, appendEvents } from './append.ts'
export { type ArtifactPointer, type FoundFile, orphansAmong, readArtifact } from './artifact.ts'
export { type Attachment, readAttachment } from './attachment.ts'
export { type AttemptInput, readAttemptInput } from './attempt-input.ts'
export { type Audited, audit } from './audit.ts'
export { type Cancelled, cancelRun, cancelThread } from './cancel.ts'
export { saveCheckpoint } from './checkpoint.ts'
export {
  type Claimed,
  claimForEnding,
  claimQueued,
  type EndingCause,
  takeOver,
} from './claim.ts'
export {
  type ConversationSummary,
  type ConversationView,
  listConversations,
  readConversation,
  renameConversation,
} from './conversation.ts'
export { createRun } from './create-run.ts'
export type { CreateRun, CreateRunOutcome, RunReceipt } from './create-run-request.ts'
export { type Deleted, deleteConversation, purgeDeleted } from './delete-conversation.ts'
export {
  type ClaimedDelivery,
  claimDeliveries,
  type DeliveryResult,
  expandNotifications,
  pruneDelivered,
  recordDelivery,
} from './delivery.ts'
export { endOverdueQueued, type Swept, unparkMissedHeads } from './end-queued.ts'
export { type LogEvent, type RunHead, readEvents, readHead, tailRuns } from './event-log.ts'
export { type Finished, finishRun } from './finish.ts'
export { saveFold } from './fold-record.ts'
export type { Lease } from './lease.ts'
export { migrate, type SchemaStatus, schemaStatus } from './migrate.ts'
export {
  listNotifications,
  type NotificationView,
  notificationFigures,
  redriveNotification,
} from './notification.ts'
export { isDataError } from './pg-error.ts'
export { type PreludeView, readPrelude } from './prelude.ts'
export {
  endLeasesOf,
  holdPresence,
  lookForOwners,
  type OwnersSeen,
  type Presence,
} from './presence.ts'
export type { Principal } from './principal.ts'
export { dropPartition, ensurePartitions, queueFigures, readiness } from './readiness.ts'
export { type Released, releaseRun } from './release.ts'
export {
  type Ownership,
  type Renewal,
  readOwnership,
  renewLeases,
} from './renew.ts'
export { listRuns, type RunFilter, type RunView, readRun } from './run.ts'
export {
  type AgentRecord,
  listRunners,
  type RunnerRecord,
  registerRunner,
  removeRunner,
  touchRunner,
} from './runner-record.ts'
export { type SpanWrite, writeSpans } from './spans.ts'
export { pruneStaleWrites, recordStaleWrite } from './stale-write.ts'
export {
  beginStep,
  endStep,
  readStep,
  recordLostCalls,
  type StepBegun,
  type StepEnd,
  type StepIntent,
  type StepRecorded,
  withdrawStep,
} from './steps.ts'
export { newId, openStore, type Store, type StoreOptions, syncClock } from './store.ts'
export { readTimeline } from './timeline.ts'
export { QUERIES as VIOLATION_QUERIES, type Violation, violations } from './violations.ts'
export { openWakeups, type Topic, type Wakeups } from './wakeups.ts'
export { whyNotFurther } from './why.ts'
