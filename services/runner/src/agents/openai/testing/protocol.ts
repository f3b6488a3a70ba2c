import { EventType } from '@holdfast/protocol'
import { fieldsOf, objectsOf, textOf } from '../../loose-json.ts'
import { createRunIds } from '../../run-ids.ts'
import type { Protocol } from '../../testing/every-cut.ts'
import { createCompletion } from '../completion.ts'
import { readCompletion } from '../read-completion.ts'

/** Completions end by a reason; `[DONE]` says only that nothing more comes. */
export const openAi: Protocol = {
  read: (answer, reading) => {
    const completion = createCompletion(createRunIds(reading.run))
    return readCompletion(answer, { ...reading, completion })
  },
  isEnding: (value) =>
    objectsOf(fieldsOf(value)?.['choices'])
      .filter((choice) => (choice['index'] ?? 0) === 0)
      .some((choice) => textOf(choice['finish_reason']) !== ''),
  isLater: ({ type }) => type === EventType.TOOL_CALL_RESULT,
}
