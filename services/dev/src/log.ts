import { type Logger, pino } from 'pino'
import pretty from 'pino-pretty'

/** JSON lines on standard error, made readable where a person looks at them. */
export function openLog(level: string): Logger {
  const options = { name: 'dev', level }
  if (process.stderr.isTTY) return pino(options, pretty({ destination: 2, sync: true }))
  return pino(options, pino.destination({ dest: 2, sync: true }))
}
