import {
  BedrockAgentCoreClient,
  InvokeAgentRuntimeCommand,
} from '@aws-sdk/client-bedrock-agentcore'
import { defineAgent, type Run } from '@holdfast/agent-kit'
import { answerOf } from './answer.ts'

const { AGENT_RUNTIME_ARN, AGENT_RUNTIME_QUALIFIER = 'DEFAULT' } = process.env
if (!AGENT_RUNTIME_ARN) throw new Error('AGENT_RUNTIME_ARN is not set')

/** Region, credentials and endpoint as the AWS SDK finds them. Holdfast decides what is tried again. */
const client = new BedrockAgentCoreClient({ maxAttempts: 1 })

/**
 * An agent that runs in Bedrock AgentCore. What it does there is an effect that nobody can look into, so the invocation
 * is a step with the policy `stop`: when a runner dies in the middle of it, the run says `in_doubt` and the agent is
 * not invoked a second time.
 */
export default defineAgent({
  async run(run) {
    let isSaid = false
    const answer = await run.step('invoke', { policy: 'stop' }, (call) => {
      isSaid = true
      return call.run.text((signal) => invoke(run, signal))
    })
    // An attempt before this one has had the answer, and what it had said was withdrawn with it.
    if (!isSaid) await run.text(answer)
  },
})

async function* invoke(run: Run, signal: AbortSignal): AsyncGenerator<string> {
  const input = {
    agentRuntimeArn: AGENT_RUNTIME_ARN,
    qualifier: AGENT_RUNTIME_QUALIFIER,
    // A conversation is one session of the runtime; an id has at least 33 characters.
    runtimeSessionId: `holdfast-${run.conversationId}`,
    runtimeUserId: `${run.principal.tenant}/${run.principal.user}`,
    contentType: 'application/json',
    accept: 'text/event-stream, application/json',
    payload: new TextEncoder().encode(JSON.stringify({ prompt: promptOf(run) })),
  }
  const answer = await client.send(new InvokeAgentRuntimeCommand(input), { abortSignal: signal })
  if (!answer.response) throw new Error('the runtime answered nothing')
  const body = answer.response.transformToWebStream()
  yield* answerOf(body, answer.contentType ?? '', signal)
}

/** The runtime keeps its session's memory, so it gets what is new. */
function promptOf(run: Run): string {
  const asked = run.messages.findLast(({ role }) => role === 'user')?.content
  if (typeof asked !== 'string') throw new Error('this agent reads text')
  return asked
}
