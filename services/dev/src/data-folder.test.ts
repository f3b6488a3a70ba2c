import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished, test } from 'vitest'
import { claimDataFolder } from './data-folder.ts'

const HOLDER = `
  const { claimDataFolder } = await import(process.argv[1])
  const lock = await claimDataFolder(process.argv[2])
  process.stdout.write('held')
  setInterval(() => lock, 1000)`

async function folderHeldByAnotherProcess() {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-lock-'))
  const module = fileURLToPath(new URL('./data-folder.ts', import.meta.url))
  const args = ['--conditions=holdfast-source', '--input-type=module', '-e', HOLDER, module, folder]
  const holder = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const exited = once(holder, 'exit')
  onTestFinished(async () => {
    holder.kill('SIGKILL')
    await exited
    await rm(folder, { recursive: true })
  })
  await once(holder.stdout, 'data')
  return { folder, holder, exited }
}

test('a folder that a living process holds is refused with one line that names it', async () => {
  const { folder } = await folderHeldByAnotherProcess()
  const refusal = claimDataFolder(folder)
  await expect(refusal).rejects.toMatchObject({ code: 'folder_taken' })
  await expect(refusal).rejects.toThrow(new RegExp(`^another Holdfast is running on ${folder}.*$`))
})

test('the lock of a process that was killed is free at once', async () => {
  const { folder, holder, exited } = await folderHeldByAnotherProcess()
  holder.kill('SIGKILL')
  await exited
  const lock = await claimDataFolder(folder)
  lock[Symbol.dispose]()
})
