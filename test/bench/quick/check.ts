/** One ratio that must hold on any machine, because both of its sides were measured on it by turns. */
export type Check = {
  readonly promise: string
  readonly value: number
  readonly unit: string
  readonly holds: boolean
}

export function atLeast(promise: string, value: number, limit: number, unit: string): Check {
  return { promise: `${promise} is at least ${limit}${unit}`, value, unit, holds: value >= limit }
}

export function atMost(promise: string, value: number, limit: number, unit: string): Check {
  return { promise: `${promise} is at most ${limit}${unit}`, value, unit, holds: value <= limit }
}
