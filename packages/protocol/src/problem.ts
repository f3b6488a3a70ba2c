import * as z from 'zod'

/** Every refusal a caller may meet, with its title. A retired code is never used again. */
export const PROBLEMS = {
  invalid_request: 'The request is malformed',
  unauthorized: 'A valid token is needed',
  foreign_origin: 'This origin may not do that',
  not_found: 'There is nothing here',
  conversation_busy: 'The conversation has an unfinished run',
  interrupt_closed: 'The interrupt is not pending any more',
  answers_incomplete: 'Something that is pending would stay without its one answer',
  cursor_ahead: 'The cursor lies beyond the end of the log',
  cursor_gone: 'The log before this point was pruned',
  turn_gone: "This turn's run was deleted",
  artifact_gone: 'The file is not there any more',
  body_too_large: 'The request body is too large',
  message_too_large: 'The message is too large',
  conversation_full: 'The conversation is full',
  unsupported_media_type: 'The content type is not supported',
  turn_mismatch: 'The same turn was sent before with another body',
  unknown_agent: 'No such agent was ever recorded',
  unknown_attachment: 'The conversation has no such attachment',
  rate_limited: 'Too many requests',
  overloaded: 'The service cannot answer right now',
  not_implemented: 'This is not implemented yet',
  internal: 'An internal error',
} as const

export type ProblemCode = keyof typeof PROBLEMS

/** RFC 9457 problem details as all errors of the API are sent, with what single codes add. */
export const Problem = z.object({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  detail: z.string(),
  code: z.string(),
  errors: z.array(z.object({ path: z.string(), message: z.string() })).optional(),
  activeRunId: z.string().optional(),
  floor: z.int().optional(),
  /** Ids of interrupts or tool calls that are not pending, or that lack their answer. */
  ids: z.array(z.string()).optional(),
})
export type Problem = z.infer<typeof Problem>
