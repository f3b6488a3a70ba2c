import { type SpawnOptions, spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'

/**
 * Runs a short program to its end, in a process group of its own: a Ctrl-C during the start must not
 * make `id` fail and so look like a user that does not exist. Rejects if it cannot be started.
 */
export async function runProgram(
  file: string,
  args: readonly string[],
  options: Pick<SpawnOptions, 'uid' | 'gid' | 'cwd' | 'env'> = {},
): Promise<{ ok: boolean; stdout: string; stderr: string }> {
  const child = spawn(file, args, {
    ...options,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close'),
  ])
  return { ok: code === 0, stdout: stdout.trim(), stderr: stderr.trim() }
}
