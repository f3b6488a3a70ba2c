/**
 * A copy of what is to be stored, as JSON keeps it; `undefined` stays.
 * @throws TypeError that names what is not JSON
 */
export function asJson(what: string, value: unknown): unknown {
  if (value === undefined) return undefined
  let json: string | undefined
  try {
    json = JSON.stringify(value)
  } catch (error) {
    throw new TypeError(`${what} is not JSON`, { cause: error })
  }
  if (json === undefined) throw new TypeError(`${what} is not JSON`)
  return JSON.parse(json)
}
