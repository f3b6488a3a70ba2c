import { registerHooks } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'

const KIT = '@holdfast/agent-kit'
const TAG = 'holdfast'

/** What a file of the user's can be: ESM, in JavaScript or TypeScript, or JSON. */
const RELOADABLE = /\.(?:m?[jt]s|json)$/

/** A module of the agents file with all files of the user's that it imports, in whatever version. */
export type Graph = {
  readonly url: (version: number) => string
  readonly files: ReadonlySet<string>
}

const graphs: Set<string>[] = []

/**
 * Makes the imports of user's files work wherever they lie: `@holdfast/agent-kit` is the runner's own copy, and a
 * version of a file is a version of what it imports as well. Their packages stay as Node finds them.
 */
export function openGraph(file: string): Graph {
  if (graphs.length === 0) registerHooks({ resolve, load })
  const files = new Set([file])
  const index = graphs.push(files) - 1
  return {
    url: (version) => tagged(pathToFileURL(file).href, `${index}.${version}`),
    files,
  }
}

type Hooks = Required<Parameters<typeof registerHooks>[0]>

const resolve: Hooks['resolve'] = (specifier, context, next) => {
  const tag = tagOf(context.parentURL)
  if (tag === null) return next(specifier, context)
  if (specifier === KIT) return next(specifier, { ...context, parentURL: import.meta.url })
  const found = next(specifier, context)
  if (!isReloadable(found.url)) return found
  graphs[Number.parseInt(tag, 10)]?.add(fileURLToPath(found.url))
  return { ...found, url: tagged(found.url, tag) }
}

/** An agent's folder needs no package.json to say that its files are modules. */
const load: Hooks['load'] = (url, context, next) => {
  const isTypeless = context.format === undefined || context.format === null
  if (tagOf(url) === null || !isTypeless) return next(url, context)
  const { pathname } = new URL(url)
  if (/\.m?ts$/.test(pathname)) return next(url, { ...context, format: 'module-typescript' })
  return next(url, pathname.endsWith('.js') ? { ...context, format: 'module' } : context)
}

function isReloadable(url: string): boolean {
  if (!url.startsWith('file:')) return false
  const { pathname } = new URL(url)
  return RELOADABLE.test(pathname) && !pathname.includes('/node_modules/')
}

function tagOf(url: string | undefined): string | null {
  return url?.startsWith('file:') ? new URL(url).searchParams.get(TAG) : null
}

function tagged(href: string, tag: string): string {
  const url = new URL(href)
  url.searchParams.set(TAG, tag)
  return url.href
}
