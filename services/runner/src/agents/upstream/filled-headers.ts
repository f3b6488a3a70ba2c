import type { AgentRun } from '../agent.ts'

/** Who a request is for. */
export type ForWhom = Pick<AgentRun, 'tenantId' | 'userId' | 'conversationId' | 'runId' | 'epoch'>

/** The configured headers, names in lower case, with the placeholders in their values filled. */
export function filledHeaders(
  headers: Readonly<Record<string, string>>,
  run: ForWhom,
): Record<string, string> {
  const values: Record<string, string> = {
    tenant: run.tenantId,
    user: run.userId,
    conversationId: run.conversationId,
    runId: run.runId,
    attempt: String(run.epoch),
  }
  const filled = Object.entries(headers).map(([name, text]) => [
    name.toLowerCase(),
    text.replaceAll(/\{(\w+)\}/g, (written, key: string) =>
      Object.hasOwn(values, key) ? headerSafe(values[key] ?? '') : written,
    ),
  ])
  return Object.fromEntries(filled)
}

/** Ids come from callers: what no header may hold is percent-encoded, and so is the percent sign. */
function headerSafe(value: string): string {
  return value.replaceAll(/[^\x21-\x24\x26-\x7e]/gu, (character) =>
    [...new TextEncoder().encode(character)]
      .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`)
      .join(''),
  )
}
