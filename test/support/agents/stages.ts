import { defineAgent, type Run } from '@holdfast/agent-kit'

const STAGES = 5

/** Five stages, each of which asks a server of the test's that decides when it is done. */
export default defineAgent({
  resumes: true,
  async run(run) {
    const from = run.saved?.current ? Number(run.saved.data) : 0
    for (let stage = from + 1; stage <= STAGES; stage += 1) {
      await run.tool('stage', { stage }, (call) => ask(call, `/stage/${stage}`), {
        policy: 'retry',
      })
      await run.text(`${stage} `)
      await run.checkpoint(stage)
    }
    return { from }
  },
})

type Call = Parameters<Parameters<Run['tool']>[2]>[0]

async function ask({ signal, idempotencyKey }: Call, path: string): Promise<unknown> {
  const answer = await fetch(`${process.env['STAGES_URL']}${path}`, {
    signal,
    headers: { 'idempotency-key': idempotencyKey },
  })
  if (!answer.ok) throw new Error(`it answered ${answer.status}`)
  return answer.json()
}
