import { defineAgent, type Run } from '@holdfast/agent-kit'

/** What a turn's message asks this agent to do; each is one way in which an author's code may go. */
const WAYS: Readonly<Record<string, (run: Run) => unknown>> = {
  /** Three tools at once, of which one throws. */
  async three(run) {
    await run.group((group) => {
      for (const city of ['Lisbon', 'Tokyo']) {
        group.spawn((own) => own.tool('weather', { city }, (call) => call.run.sleep(60_000)))
      }
      group.spawn((own) =>
        own.tool('weather', { city: 'Nowhere' }, async (call) => {
          await call.run.sleep(50)
          throw new Error('the provider says: secret')
        }),
      )
    })
  },
  /** What a model would be given. */
  history: (run) => run.messages,
  principal: (run) => run.principal,
  throws() {
    throw new Error('the provider says: secret')
  },
  /** Goes on although it was told to stop, and speaks again. */
  async deaf(run) {
    await run.text('I begin. ')
    await run.sleep(60_000).catch(() => undefined)
    const until = performance.now() + 8000
    while (performance.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 50))
      await run.text('I go on. ').catch(() => undefined)
    }
  },
  /** Leaves a promise behind that fails, and goes on. */
  async strays(run) {
    const _forgotten = Promise.reject(new Error('nobody awaits this'))
    await run.sleep(50)
    await run.text('I went on.')
  },
  /** A part of it dies where nobody can catch it. */
  async explodes(run) {
    await run.text('I begin. ')
    setTimeout(() => {
      throw new Error('nobody catches this')
    }, 20)
    await run.sleep(60_000)
  },
  async waits(run) {
    await run.text('I wait. ')
    await run.sleep(2000)
    await run.text('I am done.')
  },
  async file(run) {
    await run.artifact('report.txt', { mediaType: 'text/plain' }, 'all is well')
  },
  asks: (run) => run.interrupt({ reason: 'approval', message: 'Send it?' }),
}

export default defineAgent({
  async run(run) {
    const asked = run.messages.at(-1)?.content
    const way = typeof asked === 'string' ? WAYS[asked] : undefined
    if (!way) throw new Error('there is no such way')
    return await way(run)
  },
})
