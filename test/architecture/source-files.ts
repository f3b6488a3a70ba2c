import { readdir, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))

/** One import, as written. `from` is a path below the root. */
export type Import = { readonly from: string; readonly specifier: string }

export type SourceFile = {
  /** Below the root, with slashes. */
  readonly path: string
  /** `packages/store`, `services/bff`, `test`, ... */
  readonly workspace: string
  readonly text: string
}

const SKIPPED = new Set(['node_modules', 'dist', '.git', '.holdfast'])

export async function sourceFiles(): Promise<SourceFile[]> {
  const tops = ['packages', 'services', 'test', 'examples', 'scripts']
  const paths = (await Promise.all(tops.map((top) => walk(join(ROOT, top))))).flat()
  return Promise.all(
    paths.map(async (path) => {
      const [top = '', second = ''] = path.split('/')
      const workspace = top === 'test' || top === 'scripts' ? top : `${top}/${second}`
      return { path, workspace, text: await readFile(join(ROOT, path), 'utf8') }
    }),
  )
}

async function walk(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => [])
  const found = await Promise.all(
    entries.map(async (entry) => {
      const path = join(folder, entry.name)
      if (entry.isDirectory()) return SKIPPED.has(entry.name) ? [] : walk(path)
      return /\.(ts|mts|mjs|js)$/.test(entry.name) ? [relative(ROOT, path)] : []
    }),
  )
  return found.flat()
}

/** Static imports, re-exports and `import('…')` of a literal. */
export function importsOf({ path, text }: SourceFile): Import[] {
  const statements = text.matchAll(
    /(?:^|\n)\s*(?:import|export)\s(?:[^'"`;]*?\sfrom\s+)?['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/g,
  )
  return [...statements].map((match) => ({ from: path, specifier: match[1] ?? match[2] ?? '' }))
}
