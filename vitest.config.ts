import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { defineConfig, type TestProjectConfiguration } from 'vitest/config'

/** Workspace packages are tested from their sources; nothing needs to be built first. */
const resolve = { conditions: ['holdfast-source', 'module', 'node'] }
// Where Vitest loads what starts the database.
const environments = { __vitest__: { resolve } }
const ssr = { resolve: { conditions: resolve.conditions, externalConditions: ['holdfast-source'] } }

const postgres = { globalSetup: ['test/support/postgres.ts'] }
// Testcontainers' own watcher for what is left behind is one more image to pull; the set-up brings one along.
const images = {
  globalSetup: ['test/containers/images.ts'],
  env: { TESTCONTAINERS_RYUK_DISABLED: 'true' },
}
// The same in the gate, so that what it says of a commit stays true; the nightly campaign draws elsewhere, and more.
const fuzz = {
  seed: Number(process.env['HOLDFAST_TEST_SEED'] ?? 20_261_130),
  bodies: Number(process.env['HOLDFAST_FUZZ_BODIES'] ?? 1000),
}
const chromium = findChromium()
const containers = hasContainerEngine()

export default defineConfig({
  test: {
    passWithNoTests: true,
    projects: [
      project('unit', ['{packages,services}/*/src/**/*.test.ts'], { provide: { fuzz } }),
      project('architecture', ['test/architecture/**/*.test.ts'], { testTimeout: 30_000 }),
      project('conformance', ['test/conformance/**/*.test.ts'], {
        ...postgres,
        testTimeout: 60_000,
      }),
      project('integration', ['test/integration/**/*.test.ts'], {
        ...postgres,
        testTimeout: 60_000,
      }),
      alone('chaos', 2, { ...postgres, testTimeout: 180_000 }),
      // They wait at probes for most of their time, and measure against bounds of seconds: two at a time.
      project('endings', ['test/endings/**/*.test.ts'], {
        ...postgres,
        testTimeout: 60_000,
        sequence: { groupOrder: 3 },
      }),
      ...(chromium
        ? [alone('browser', 4, { ...postgres, testTimeout: 120_000, provide: { chromium } })]
        : []),
      ...(containers ? [alone('containers', 5, { ...images, testTimeout: 60_000 })] : []),
    ],
  },
})

type TestOptions = NonNullable<Extract<TestProjectConfiguration, { test?: unknown }>['test']>

function project(name: string, include: string[], options: TestOptions): TestProjectConfiguration {
  const hookTimeout = Math.max(30_000, options.testTimeout ?? 0)
  // Named, because on a machine of two cores Vitest would put what has no order after everything else.
  const sequence = { groupOrder: 1 }
  // Most of a test's time is waiting for processes, so two files at a time pay even on two cores.
  const maxWorkers = Math.max(2, availableParallelism() - 1)
  return {
    resolve,
    ssr,
    environments,
    test: { name, include, testTimeout: 10_000, hookTimeout, maxWorkers, sequence, ...options },
  }
}

/** Suites that measure times or kill processes get the machine to themselves, one file after the other. */
function alone(name: string, groupOrder: number, options: TestOptions): TestProjectConfiguration {
  const include = [`test/${name}/**/*.test.ts`]
  return project(name, include, { ...options, fileParallelism: false, sequence: { groupOrder } })
}

function hasContainerEngine(): boolean {
  if (spawnSync('docker', ['info'], { stdio: 'ignore', timeout: 20_000 }).status === 0) return true
  leaveOut('container', 'no Docker engine answers here', 'HOLDFAST_REQUIRE_CONTAINERS')
  return false
}

function findChromium(): string | undefined {
  const path = process.env['PATH'] ?? ''
  const names = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable']
  const candidates = path.split(':').flatMap((folder) => names.map((name) => `${folder}/${name}`))
  const mac = ['Google Chrome', 'Chromium'].map(
    (app) => `/Applications/${app}.app/Contents/MacOS/${app}`,
  )
  const found = [...candidates, ...mac].find((file) => existsSync(file))
  if (!found) leaveOut('browser', 'no Chromium or Chrome is installed', 'HOLDFAST_REQUIRE_BROWSER')
  return found
}

/** Vitest reads this file more than once in a process; people should be told once. */
function leaveOut(suite: string, why: string, requiredBy: string): void {
  if (process.env[requiredBy] === '1') throw new Error(`the ${suite} suite is required, but ${why}`)
  const told = process as unknown as Record<symbol, true | undefined>
  const key = Symbol.for(`holdfast.left-out.${suite}`)
  if (!told[key]) process.stderr.write(`\nLEFT OUT: the ${suite} suite, because ${why}.\n\n`)
  told[key] = true
}
