import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { TestProject } from 'vitest/node'

declare module 'vitest' {
  interface ProvidedContext {
    /** What every container and network of this run of the suite is named after. */
    containerRun: string
  }
}

export const TARGETS = ['migrate', 'runner', 'bff'] as const
export type Target = (typeof TARGETS)[number]

/** Marks every container of the suite, so that none can be left behind by a test that was killed. */
export const RUN_LABEL = 'holdfast.test.run'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const RUN_MS = 20_000
const run = promisify(execFile)
let containerRun = ''
let cleaner: ChildProcess | undefined

export function imageOf(target: Target): string {
  return `holdfast-${target}:test`
}

/** Builds the images as a release does, once for all files. One after the other: they share their stages. */
export async function setup(project: TestProject): Promise<void> {
  containerRun = `holdfast-test-${randomUUID().slice(0, 8)}`
  project.provide('containerRun', containerRun)
  cleaner = startCleaner()
  for (const target of TARGETS) {
    // The host's network, because a build may only reach the package registry over it.
    const options = ['--network', 'host', '--target', target, '--tag', imageOf(target)]
    await run('docker', ['build', ...options, '.'], { cwd: ROOT, maxBuffer: 2 ** 26 })
  }
}

export async function teardown(): Promise<void> {
  cleaner?.stdin?.end()
  await (cleaner && once(cleaner, 'exit'))
}

/** One container of the image to its end, outside any deployment. */
export async function runImage(
  target: Target,
  env: Readonly<Record<string, string>>,
): Promise<{ code: number; stderr: string }> {
  const variables = Object.entries(env).flatMap(([name, value]) => ['--env', `${name}=${value}`])
  const options = { timeout: RUN_MS }
  return run('docker', ['run', '--rm', ...variables, imageOf(target)], options).then(
    ({ stderr }) => ({ code: 0, stderr }),
    ({ code, stderr }: { code: number; stderr: string }) => ({ code, stderr }),
  )
}

/**
 * A process that removes what carries this run's name as soon as this one ends, in whatever way: disposing removes
 * a deployment, but nobody comes to dispose it after a kill.
 */
function startCleaner(): ChildProcess {
  const script = `cat
    docker ps --all --quiet --filter label=${RUN_LABEL}=${containerRun} | xargs -r docker rm --force --volumes
    docker network ls --quiet --filter name=${containerRun} | xargs -r docker network rm`
  return spawn('sh', ['-c', script], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] })
}
