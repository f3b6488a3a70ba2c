import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
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
const run = promisify(execFile)
let containerRun = ''

export function imageOf(target: Target): string {
  return `holdfast-${target}:test`
}

/** Builds the images as a release does, once for all files. One after the other: they share their stages. */
export async function setup(project: TestProject): Promise<void> {
  containerRun = `holdfast-test-${randomUUID().slice(0, 8)}`
  project.provide('containerRun', containerRun)
  for (const target of TARGETS) {
    // The host's network, because a build may only reach the package registry over it.
    const options = ['--network', 'host', '--target', target, '--tag', imageOf(target)]
    await run('docker', ['build', ...options, '.'], { cwd: ROOT, maxBuffer: 2 ** 26 })
  }
}

/** Disposing removes a deployment; this removes what was left because nobody came to dispose it. */
export async function teardown(): Promise<void> {
  const label = `label=${RUN_LABEL}=${containerRun}`
  await removeAll(['ps', '--all', '--quiet', '--filter', label], ['rm', '--force', '--volumes'])
  const name = `name=${containerRun}`
  await removeAll(['network', 'ls', '--quiet', '--filter', name], ['network', 'rm'])
}

async function removeAll(list: readonly string[], remove: readonly string[]): Promise<void> {
  const ids = (await run('docker', [...list])).stdout.split('\n').filter(Boolean)
  if (ids.length) await run('docker', [...remove, ...ids])
}
