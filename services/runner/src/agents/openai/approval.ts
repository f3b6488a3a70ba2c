import type { Interrupt, ResumeEntry } from '@holdfast/protocol'
import { fieldsOf } from '../loose-json.ts'
import type { MadeCall } from './turn.ts'

/** Asks people whether a call may be made. */
export function approvalOf({ id, name }: MadeCall): Interrupt {
  return {
    id: interruptId(id),
    reason: 'tool_call',
    message: `May ${name} be called?`,
    toolCallId: id,
    responseSchema: {
      type: 'object',
      properties: { approved: { type: 'boolean' } },
      required: ['approved'],
    },
  }
}

/** Whether people were asked about the call, whatever they said. */
export function wasAsked(callId: string, answers: readonly ResumeEntry[]): boolean {
  return answers.some((entry) => entry.interruptId === interruptId(callId))
}

/** Only a plain yes is one. */
export function isApproved(callId: string, answers: readonly ResumeEntry[]): boolean {
  const answer = answers.find((entry) => entry.interruptId === interruptId(callId))
  if (answer?.status !== 'resolved') return false
  return answer.payload === true || fieldsOf(answer.payload)?.['approved'] === true
}

function interruptId(callId: string): string {
  return `${callId}:approval`
}
