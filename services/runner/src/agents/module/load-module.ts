import { fileURLToPath } from 'node:url'
import { type DefinedAgent, isDefinedAgent } from '@holdfast/agent-kit'
import { asError, HoldfastError, within } from '@holdfast/std'

/**
 * Imports a file and checks that its default export is an agent.
 * @param url the file's, as this version of it is to be imported
 * @throws HoldfastError invalid/invalid_module, in one line with the file and the reason
 */
export async function loadModule(file: string, url: string): Promise<DefinedAgent> {
  let namespace: Namespace | undefined
  try {
    namespace = await within<Namespace>(IMPORT_MS, import(url))
  } catch (error) {
    throw refused(file, reasonOf(file, error), error)
  }
  if (!namespace) throw refused(file, `it is not imported within ${IMPORT_MS / 1000} s`)
  if (isDefinedAgent(namespace.default)) return namespace.default
  const found =
    'default' in namespace
      ? `its default export is ${kindOf(namespace.default)}`
      : 'it has no default export'
  throw refused(file, `${found}; expected export default defineAgent({ … })`)
}

type Namespace = { readonly default?: unknown }

/** A top-level `await` may never end. */
const IMPORT_MS = 30_000

function refused(file: string, reason: string, cause?: unknown): HoldfastError {
  return new HoldfastError('invalid', 'invalid_module', `module ${file}: ${reason}`, { cause })
}

/** A syntax error, which may be in a file that this one imports, says where it is only at the top of its stack. */
function reasonOf(file: string, thrown: unknown): string {
  const error = asError(thrown)
  const said = error.message
    .replaceAll(/\s*\n\s*/g, ' ')
    .replaceAll(/[?&]holdfast=[\d.]+| imported from \S*\/load-module\.[jt]s/g, '')
  const [, url, line] = /^(file:\/\/\S*?):(\d+)\n/.exec(error.stack ?? '') ?? []
  if (!(error instanceof SyntaxError) || !url) return `${error.name}: ${said}`
  const broken = fileURLToPath(url)
  return `${error.name}: ${said} (line ${line}${broken === file ? '' : ` of ${broken}`})`
}

function kindOf(value: unknown): string {
  if (typeof value === 'function') return 'a function'
  return value === null ? 'null' : `a plain ${typeof value}`
}
