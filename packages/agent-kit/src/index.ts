export { Cancelled, type CancelReason, DeadlineExceeded, isCancellation } from './cancelled.ts'
export { type ClosingOptions, closing, type Source } from './closing.ts'
export type { Deadline, Limit } from './deadline.ts'
export {
  type AgentDefinition,
  type DefinedAgent,
  defineAgent,
  isDefinedAgent,
} from './define-agent.ts'
export { type FailureHandler, failuresOf, on, takeApart } from './failures.ts'
export type { Child, Group, Left, Outcome } from './group.ts'
export { type Interruption, interruption, isInterruption } from './interruption.ts'
export type { Report } from './report.ts'
export type { Resource } from './resources.ts'
export type { Ask, Log, OpenCall, Run, Saved, SharedState } from './run.ts'
export { type Scope, type Scoped, type ScopeOptions, withScope, withScopeOf } from './scope.ts'
export type { AftermathCall, EffectAnswer, EffectCall, EffectOptions } from './step.ts'
