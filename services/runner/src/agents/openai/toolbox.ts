import type { Tool } from '@holdfast/protocol'
import type { ChatTool } from './chat-request.ts'
import type { MadeCall } from './turn.ts'

/** What the model may call in this turn. */
export type Toolbox = {
  readonly offered: readonly ChatTool[]
  /** Its calls are left for the front end to answer: the run ends with them pending. */
  isFrontEnd(name: string): boolean
  refusal(call: MadeCall): string
}

export function openToolbox(frontEnd: readonly Tool[]): Toolbox {
  const names = new Set(frontEnd.map(({ name }) => name))
  return {
    offered: frontEnd.map(({ name, description, parameters }) => ({
      type: 'function',
      function: {
        name,
        ...(description && { description }),
        parameters: parameters ?? NO_PARAMETERS,
      },
    })),
    isFrontEnd: (name) => names.has(name),
    refusal: ({ name }) => `Error: there is no tool ${name}.`,
  }
}

const NO_PARAMETERS = { type: 'object', properties: {} }
