import { stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import type { DefinedAgent } from '@holdfast/agent-kit'
import { asError, loop } from '@holdfast/std'
import type { Logger } from 'pino'
import { loadModule } from './load-module.ts'
import { type Graph, openGraph } from './user-modules.ts'

const LOOK_EVERY_MS = 300

/** A module's agent, as its file is now, or as it was when it last could be loaded. */
export type LoadedModule = { readonly current: DefinedAgent }

export type Modules = AsyncDisposable & {
  /**
   * Loads the file, relative to the agents file.
   * @throws HoldfastError invalid/invalid_module, which names the file and the reason
   */
  load(path: string): Promise<LoadedModule>
}

/** The user's modules. With `reload`, a changed file is used by whatever begins after the change. */
export function openModules(options: { folder: string; reload: boolean; log: Logger }): Modules {
  const { log } = options
  const loaded: Loaded[] = []
  const looking = loop({
    name: 'module reload',
    everyMs: LOOK_EVERY_MS,
    onError: (error) => log.warn({ err: error }, 'looking for changed modules failed'),
    async round() {
      for (const module of loaded) await refresh(module, log)
    },
  })
  if (options.reload) looking.start().catch(() => undefined)
  return {
    async load(path) {
      const file = resolve(options.folder, path)
      const graph = openGraph(file)
      const current = await loadModule(file, graph.url(0))
      const module: Loaded = { file, graph, version: 0, current, stamp: '' }
      module.stamp = await stampOf(module)
      loaded.push(module)
      return module
    },
    [Symbol.asyncDispose]: () => looking.stop(),
  }
}

type Loaded = {
  readonly file: string
  readonly graph: Graph
  version: number
  current: DefinedAgent
  /** What its files looked like when they were last read. */
  stamp: string
}

async function refresh(module: Loaded, log: Logger): Promise<void> {
  const stamp = await stampOf(module)
  if (stamp === module.stamp) return
  module.stamp = stamp
  module.version += 1
  const { file, graph, version } = module
  try {
    module.current = await loadModule(file, graph.url(version))
    log.info({ file }, 'a changed agent was loaded; runs that begin from now on use it')
  } catch (error) {
    log.error(
      { reason: asError(error).message },
      'a changed agent is broken; the last good one stays',
    )
  }
  // A new import brings new files, whose stamps are part of what is loaded now.
  module.stamp = await stampOf(module)
}

/** Of the file and everything of the user's that it imports, in its last version or in any before. */
async function stampOf({ graph }: Loaded): Promise<string> {
  const stamps = [...graph.files].sort().map(async (path) => {
    const found = await stat(path).catch(() => null)
    return found ? `${path} ${found.mtimeMs} ${found.size}` : `${path} gone`
  })
  return (await Promise.all(stamps)).join('\n')
}
