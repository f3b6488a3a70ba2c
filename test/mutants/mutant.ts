import { readFile } from 'node:fs/promises'
import { stripTypeScriptTypes } from 'node:module'

/** A known-bad build: one place of the code broken on purpose, and the test that has to notice. */
export type Mutant = {
  readonly name: string
  readonly invariant: string
  readonly file: string
  /** Every place where it stands is changed. */
  readonly find: string
  readonly replace: string
  readonly test: string
  /** Part of the name of the one test that is enough. */
  readonly only?: string
}

/** Those whose names contain `part`, in the order of the list. */
export async function readMutants(part: string): Promise<Mutant[]> {
  const all: Mutant[] = JSON.parse(await readFile(new URL('mutants.json', import.meta.url), 'utf8'))
  return all.filter(({ name }) => name.includes(part))
}

/** The file's text with the mutant in it. */
export function broken(text: string, { name, file, find, replace }: Mutant): string {
  if (!text.includes(find)) throw new Error(`${name}: ${file} does not contain ${find}`)
  const changed = text.replaceAll(find, () => replace)
  // A file that does not parse makes every test fail and proves nothing.
  stripTypeScriptTypes(changed)
  return changed
}
