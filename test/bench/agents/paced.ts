import { defineAgent, type Run } from '@holdfast/agent-kit'

/** Says one word every `everyMs` for `forMs`; each carries the wall clock's time at which it was made. */
export default defineAgent({
  async run(run) {
    const asked = run.messages.at(-1)?.content
    if (typeof asked !== 'string') throw new Error('expected everyMs and forMs as JSON')
    const { everyMs, forMs } = JSON.parse(asked) as { everyMs: number; forMs: number }
    await run.text(words(run, everyMs, forMs))
  },
})

/** By an absolute schedule with a phase of its own, so that runs do not speak in step. */
async function* words(run: Run, everyMs: number, forMs: number) {
  let atMs = performance.now() + Math.random() * everyMs
  for (const endMs = atMs + forMs; atMs < endMs; atMs += everyMs) {
    const leftMs = atMs - performance.now()
    if (leftMs > 0) await run.sleep(leftMs)
    yield `t${Date.now()} word `
  }
}
