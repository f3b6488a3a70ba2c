import type {
  ContentPart,
  Context,
  Event,
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
} from '@ag-ui/core'

/** An AG-UI 1.0 event, the only thing a run's log holds. */
export type AgUiEvent = Event
export type {
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
}
