// Goal: two users of one agent never meet in what it does outside. Method: both at once, and every header and field
// that their tool calls and model requests carry.
import { SignJWT } from 'jose'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { startToolServer, type ToolServer } from '../support/tool-server.ts'

const SECRET = 'a secret that is long enough for HS256'
// None of their names can stand in an id by chance.
const USERS = ['zoe', 'ivy', 'kim'] as const

let model: ModelServer
let tools: ToolServer
let holdfast: Holdfast

beforeAll(async () => {
  model = await startModelServer({
    scripts: [{ when: 'pay', calls: [{ name: 'tools__pay', arguments: '{}' }], says: 'Paid.' }],
  })
  tools = await startToolServer()
  const headers = { 'x-user': '{tenant}/{user}' }
  holdfast = await startHoldfast({
    env: { AUTH_JWT_SECRET: SECRET },
    runnerEnv: { OUTBOUND_ALLOW: '127.0.0.1' },
    agents: {
      agents: {
        payer: {
          type: 'openai',
          baseUrl: model.url,
          model: 'scripted',
          headers,
          mcpServers: { tools: { url: tools.url, headers } },
        },
      },
    },
  })
})

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await tools?.[Symbol.asyncDispose]()
  await model?.stop()
})

async function as(sub: string): Promise<Record<string, string>> {
  const jwt = new SignJWT({ sub, tenant: 'acme' }).setProtectedHeader({ alg: 'HS256' })
  return { authorization: `Bearer ${await jwt.sign(new TextEncoder().encode(SECRET))}` }
}

test('each call carries its own user and nothing of another', async () => {
  const sent = await Promise.all(
    USERS.flatMap((user) => [user, user]).map(async (user) => {
      const headers = await as(user)
      return { user, headers, ...(await send(holdfast.url, `pay for ${user}`, {}, headers)) }
    }),
  )
  await tools.call(sent.length - 1)
  for (const { user, runId } of sent) {
    const own = tools.calls.filter(({ meta }) => meta['holdfast/runId'] === runId)
    expect(own).toHaveLength(1)
    expect(own[0]?.headers['x-user']).toBe(`acme/${user}`)
    expect(own[0]?.meta).toMatchObject({ 'holdfast/tenant': 'acme', 'holdfast/user': user })
    const others = USERS.filter((other) => other !== user)
    const { headers, meta } = own[0] ?? {}
    expect(JSON.stringify([headers, meta])).not.toMatch(new RegExp(others.join('|')))
  }
  expect(tools.sessions).toBe(USERS.length)
  for (const call of tools.calls) call.answer(`paid by ${String(call.meta['holdfast/user'])}`)
  for (const { user, runId, headers } of sent) {
    const { body } = await ended(runId, headers)
    expect(body).toMatchObject({ outcome: 'success' })
    const { body: conversation } = await request(
      `${holdfast.url}/conversations/${String(body['conversationId'])}`,
      { headers },
    )
    expect(JSON.stringify(conversation['messages'])).toContain(`paid by ${user}`)
  }
})

async function ended(runId: string, headers: Record<string, string>) {
  const url = `${holdfast.url}/runs/${runId}`
  const events = await fetch(`${url}/events?after=0`, { headers })
  await events.text()
  return await request(url, { headers })
}
