import { defineAgent } from '@holdfast/agent-kit'

/** Calls a tool that does something outside, under the policy that the message names; none: the default. */
export default defineAgent({
  async run(run) {
    const asked = run.messages.at(-1)?.content
    const policy = asked === 'retry' || asked === 'ask' || asked === 'stop' ? asked : undefined
    const url = `${process.env['STAGES_URL']}/pay`
    const headers = (key: string) => ({ 'idempotency-key': key })
    const paid = await run.tool(
      'pay',
      { amount: 7 },
      async ({ signal, idempotencyKey }) =>
        (await fetch(url, { method: 'POST', signal, headers: headers(idempotencyKey) })).json(),
      {
        ...(policy && { policy }),
        async lookup({ signal, idempotencyKey }) {
          const found = await fetch(url, { signal, headers: headers(idempotencyKey) })
          return { kind: 'done', result: await found.json() }
        },
      },
    )
    await run.text(`Paid: ${JSON.stringify(paid)}`)
  },
})
