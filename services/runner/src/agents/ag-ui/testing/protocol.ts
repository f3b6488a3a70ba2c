import { fieldsOf } from '../../loose-json.ts'
import type { Protocol } from '../../testing/every-cut.ts'
import { readAnswer } from '../read-answer.ts'

/** AG-UI's runs end with RUN_FINISHED; how is its own affair. */
export const agUi: Protocol = {
  read: readAnswer,
  isEnding: (value) => fieldsOf(value)?.['type'] === 'RUN_FINISHED',
}
