import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** The path of an agents file that lives as long as the campaign. */
export async function writeAgents(agents: object, cleanup: AsyncDisposableStack): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-agents-'))
  cleanup.defer(() => rm(folder, { recursive: true, force: true }))
  const path = join(folder, 'agents.json')
  await writeFile(path, JSON.stringify(agents))
  return path
}
