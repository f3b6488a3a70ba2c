import type { Interrupt } from '@holdfast/protocol'

const INTERRUPTION = Symbol.for('holdfast.interruption')

/** A run's end that waits for answers; made by `run.interrupt`. */
export type Interruption = { readonly interrupts: readonly Interrupt[] }

export function interruption(interrupts: readonly Interrupt[]): Interruption {
  return Object.freeze({ interrupts, [INTERRUPTION]: true })
}

export function isInterruption(value: unknown): value is Interruption {
  return typeof value === 'object' && value !== null && INTERRUPTION in value
}
