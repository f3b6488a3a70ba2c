import { invariant } from '@holdfast/std'
import type { Cancelled } from './cancelled.ts'
import type { Deadline } from './deadline.ts'
import type { Report } from './report.ts'
import type { Disposer } from './resources.ts'

/** What all scopes of one tree have in common. */
export type Settings = {
  /** So long code may take to stop after it was cancelled, in milliseconds. */
  readonly stopMs: number
  /** So long one resource may take to be disposed of, in milliseconds. */
  readonly disposeMs: number
  readonly report: (report: Report) => void
}

/** One scope as the tree sees it. Cancels run down the tree itself, so no signal needs a listener. */
export type ScopeNode = {
  readonly path: string
  readonly settings: Settings
  readonly parent: ScopeNode | null
  readonly isShield: boolean
  readonly signal: AbortSignal
  /** Resolves when it is cancelled. */
  readonly cancelled: Promise<void>
  /** Scopes in it that have not been left, and what whoever began each is to get. */
  readonly inner: Map<ScopeNode, Promise<unknown>>
  readonly disposers: Disposer[]
  /** A limit of its own, if it has one. */
  deadline: Deadline | null
  /** Since when it has only itself to wait for after a cancel (`performance.now()`). */
  quietSinceMs: number
  hasLeft: boolean
  cancel(cancelled: Cancelled): void
  /** `inner` is in this scope while it is `alive`; whoever began it has `result`. */
  hold(inner: ScopeNode, alive: Promise<unknown>, result: Promise<unknown>): void
}

export function openNode(
  parent: ScopeNode | null,
  { name, settings, isShield = false }: { name: string; settings: Settings; isShield?: boolean },
): ScopeNode {
  const controller = new AbortController()
  const cancelled = Promise.withResolvers<void>()
  const node: ScopeNode = {
    path: parent ? `${parent.path} > ${name}` : name,
    settings,
    parent,
    isShield,
    signal: controller.signal,
    cancelled: cancelled.promise,
    inner: new Map(),
    disposers: [],
    deadline: null,
    quietSinceMs: 0,
    hasLeft: false,
    cancel(reason) {
      if (controller.signal.aborted) return
      // The innermost first: each may then react to what ends in it before its own time is up.
      for (const one of node.inner.keys()) if (!one.isShield) one.cancel(reason)
      node.quietSinceMs = performance.now()
      controller.abort(reason)
      cancelled.resolve()
    },
    hold(inner, alive, result) {
      const left = () => {
        node.inner.delete(inner)
        node.quietSinceMs = performance.now()
      }
      node.inner.set(inner, result)
      alive.then(left, left)
    },
  }
  return node
}

/** @throws InvariantError when the scope has been left: nothing may begin in it any more */
export function assertOpen(node: ScopeNode, what: string): void {
  invariant(!node.hasLeft, `${what} needs a scope that has not been left: ${node.path}`)
}

/** The time until the earliest deadline that holds here; Infinity if there is none. */
export function leftMs(node: ScopeNode): number {
  const own = node.deadline?.leftMs() ?? Number.POSITIVE_INFINITY
  return node.isShield || !node.parent ? own : Math.min(own, leftMs(node.parent))
}
