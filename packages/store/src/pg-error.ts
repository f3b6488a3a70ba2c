import { asError, HoldfastError } from '@holdfast/std'

/** SQLSTATEs and socket errors that pass by themselves: the caller may come again. */
const TEMPORARY = new Set([
  '28000', // invalid_authorization: credentials that are being changed
  '28P01', // invalid_password
  '3D000', // invalid_catalog_name: a database that is not made yet
  '25006', // read_only_sql_transaction: a standby, or a primary that was demoted
  '40001', // serialization_failure
  '40P01', // deadlock_detected
  '53000', // insufficient_resources
  '53100', // disk_full
  '53200', // out_of_memory
  '53300', // too_many_connections
  '55P03', // lock_not_available
  '57014', // query_canceled: the statement timeout
  '57P01', // admin_shutdown
  '57P02', // crash_shutdown
  '57P03', // cannot_connect_now
  '57P05', // idle_session_timeout
  '25P03', // idle_in_transaction_session_timeout
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
])

/**
 * A failed statement as our own failure: what is temporary becomes `unavailable`/`overloaded`;
 * everything else is a bug or a data error and stays what it is.
 */
export function translate(error: unknown): Error {
  const failure = asError(error)
  if (failure instanceof HoldfastError) return failure
  if (isTemporary(failure)) {
    return new HoldfastError('unavailable', 'overloaded', 'The database does not answer in time.', {
      cause: failure,
    })
  }
  return failure
}

/** The SQLSTATE, or the socket's error code, of a failed statement. */
function sqlState(error: unknown): string | undefined {
  const cause = error instanceof HoldfastError ? error.cause : error
  if (cause instanceof AggregateError) return sqlState(cause.errors[0])
  if (typeof cause !== 'object' || cause === null || !('code' in cause)) return undefined
  return typeof cause.code === 'string' ? cause.code : undefined
}

/** The data was refused (class 22 or 23): repeating the same statement fails again. */
export function isDataError(error: unknown): boolean {
  const state = sqlState(error)
  return state?.length === 5 && (state.startsWith('22') || state.startsWith('23'))
}

/** Another transaction holds the same unique value. */
export function isUniqueViolation(error: unknown, constraint: string): boolean {
  const cause = error instanceof HoldfastError ? error.cause : error
  return (
    sqlState(cause) === '23505' &&
    typeof cause === 'object' &&
    cause !== null &&
    'constraint' in cause &&
    cause.constraint === constraint
  )
}

function isTemporary(error: Error): boolean {
  const state = sqlState(error)
  if (state !== undefined) return TEMPORARY.has(state) || state.startsWith('08')
  return isConnectionLoss(error)
}

// The driver and its pool report some losses of a connection by words alone.
function isConnectionLoss(error: unknown): boolean {
  const { message } = asError(error instanceof HoldfastError ? error.cause : error)
  return /connection (terminated|timeout|ended)|query read timeout|timeout exceeded when trying to connect|not queryable|read ETIMEDOUT|timeout expired/i.test(
    message,
  )
}
