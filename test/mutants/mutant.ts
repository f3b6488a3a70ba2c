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

/** All, or those whose names contain one of `parts`, in the order of the list. */
export async function readMutants(parts: readonly string[]): Promise<Mutant[]> {
  const all: Mutant[] = JSON.parse(await readFile(new URL('mutants.json', import.meta.url), 'utf8'))
  if (parts.length === 0) return all
  return all.filter(({ name }) => parts.some((part) => name.includes(part)))
}

/** The file's text with the mutant in it. */
export function broken(text: string, { name, file, find, replace }: Mutant): string {
  if (!text.includes(find)) throw new Error(`${name}: ${file} does not contain ${find}`)
  const changed = text.replaceAll(find, () => replace)
  // A file that does not parse makes every test fail and proves nothing.
  if (file.endsWith('.ts')) stripTypeScriptTypes(changed)
  return changed
}
