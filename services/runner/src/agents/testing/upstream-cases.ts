import { readdirSync, readFileSync } from 'node:fs'
import { type AgUiEvent, coalesce, type Message, type Tool } from '@holdfast/protocol'
import { expect } from 'vitest'
import { type Agent, AgentFailure, type AgentResult } from '../agent.ts'
import type { SseCaps } from '../upstream/sse-reader.ts'
import { recordedRun } from './recorded-run.ts'
import { type Script, scriptedUpstream } from './scripted-upstream.ts'

export const CORPUS = new URL('../../../../../test/conformance/upstream/', import.meta.url)

/** One fault of an upstream, and what it must amount to; test/conformance/upstream/README.md says what the keys mean. */
export type UpstreamCase = {
  rule: string
  response?: Pick<Script, 'status' | 'headers' | 'ending' | 'pieceBytes' | 'everyMs'>
  run?: {
    history?: Message[]
    usedIds?: string[]
    tools?: Tool[]
    idleTimeoutMs?: number
    progressTimeoutMs?: number
  }
  caps?: SseCaps
  events: AgUiEvent[]
  result?: AgentResult
  failure?: { code: string; retryable: boolean; retryAfterMs?: number }
}

export type NamedCase = { name: string; expected: UpstreamCase; bytes: Uint8Array }

/** The agent for a case, pointed at this address. */
export type AgentAt = (url: string, expected: UpstreamCase) => Agent

/** The cases of a folder of the corpus. */
export function readCases(folder: string): NamedCase[] {
  const from = new URL(folder, CORPUS)
  return readdirSync(from)
    .filter((file) => file.endsWith('.json'))
    .map((file) => {
      const name = file.slice(0, -'.json'.length)
      const expected: UpstreamCase = JSON.parse(readFileSync(new URL(file, from), 'utf8'))
      return { name, expected, bytes: readFileSync(new URL(`${name}.sse`, from)) }
    })
}

/** Serves the case to the agent; everything about it has to be as the corpus says. */
export async function replay(
  { expected, bytes }: NamedCase,
  pieceBytes: number | undefined,
  agentAt: AgentAt,
): Promise<void> {
  const run = recordedRun(runOf(expected))
  const ending = expected.response?.ending ?? 'end'
  await using upstream = await scriptedUpstream({
    ...(pieceBytes !== undefined && { pieceBytes }),
    ...expected.response,
    body: bytes,
    // A reset throws away what was not read yet, so it waits until all has been.
    ending: ending === 'reset' && bytes.length > 0 && expected.events.length === 0 ? 'cut' : ending,
    before: run.emitted(ending === 'reset' ? expected.events.length : 0),
  })
  const outcome = await agentAt(upstream.url, expected)
    .run(run)
    .catch((error: unknown) => error)
  if (expected.failure) {
    expect(outcome).toBeInstanceOf(AgentFailure)
    expect(outcome).toMatchObject(expected.failure)
  } else expect(outcome).toEqual(expected.result)
  expect(said(run.events)).toEqual(said(expected.events))
  expect(JSON.stringify(run.events)).not.toContain('sk-MARK')
  run.expectNoListeners()
  await upstream.allClosed()
  expect(upstream.requests).toHaveLength(1)
}

/** What a case says of the run. */
export function runOf({ run = {} }: UpstreamCase): Parameters<typeof recordedRun>[0] {
  const { usedIds = [], history, tools } = run
  return { usedIds: new Set(usedIds), ...(history && { history }), ...(tools && { tools }) }
}

/** Where deltas are cut depends on the wire; what they say does not. */
export const said = (events: readonly AgUiEvent[]) => coalesce([...events])
