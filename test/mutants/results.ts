import { rename, writeFile } from 'node:fs/promises'
import type { Mutant } from './mutant.ts'
import type { Outcome } from './run-tests.ts'

export type Result = {
  readonly name: string
  readonly invariant: string
  /** Only a test that failed has caught a mutant; one that hung might have hung anyway. */
  readonly verdict: 'caught' | 'survived' | 'hung' | 'not tried'
  readonly message?: string
  readonly seconds?: number
}

/** What is known so far: printed in the order of the list, and kept in `file`, if one is given, after every change. */
export function openResults(mutants: readonly Mutant[], file: string | undefined) {
  const results: Result[] = mutants.map(({ name, invariant }) => {
    return { name, invariant, verdict: 'not tried' }
  })
  const done = mutants.map(() => false)
  let printed = 0

  function summary() {
    const caught = results.filter(({ verdict }) => verdict === 'caught').length
    return { caught, all: results.length, results }
  }

  async function write() {
    if (file === undefined) return
    await writeFile(`${file}.new`, `${JSON.stringify(summary(), null, 2)}\n`)
    await rename(`${file}.new`, file)
  }

  let writing = write()
  return {
    summary,
    async set(at: number, outcome: Outcome, seconds: number): Promise<void> {
      const mutant = mutants[at]
      if (!mutant || outcome.kind === 'stopped') return
      const { name, invariant } = mutant
      results[at] = { name, invariant, ...verdictOf(outcome), seconds }
      done[at] = true
      for (; done[printed]; printed += 1) process.stdout.write(line(results[printed]))
      writing = writing.then(write)
      await writing
    },
  }
}

function verdictOf(
  outcome: Exclude<Outcome, { kind: 'stopped' }>,
): Pick<Result, 'verdict' | 'message'> {
  switch (outcome.kind) {
    case 'failed':
      return { verdict: 'caught', message: outcome.message }
    case 'passed':
      return { verdict: 'survived' }
    case 'hung':
      return { verdict: 'hung' }
    case 'nothing ran':
      return { verdict: 'survived', message: outcome.message }
  }
}

function line(result: Result | undefined): string {
  if (!result) return ''
  const { invariant, name, seconds, verdict, message } = result
  const said = message ? ` (${message})` : ''
  const word = verdict === 'caught' ? verdict : verdict.toUpperCase()
  return `${invariant} ${name}, ${seconds} s: ${word}${said}\n`
}
