import { defineAgent, type Run } from '@holdfast/agent-kit'
import { type Finding, search } from './search.ts'

const SOURCES = ['papers', 'news', 'web'] as const
const SEARCH_MS = 20_000

/**
 * Asks three sources at once, remembers what they found, and writes a report of it. When its runner dies, the next
 * attempt asks nobody a second time: a search that was done is a step with an outcome, and after the checkpoint the
 * agent goes straight on to the report.
 */
export default defineAgent({
  resumes: true,
  async run(run) {
    const question = questionOf(run)
    const findings = savedFindings(run) ?? (await research(run, question))
    const report = reportOf(question, findings)
    await run.text(lines(report, run))
    await run.artifact('report.md', { mediaType: 'text/markdown' }, report)
    return { findings: findings.length }
  },
})

async function research(run: Run, question: string): Promise<Finding[]> {
  await run.reasoning(`I look in ${SOURCES.join(', ')}.`)
  const found = await run.group((group) =>
    SOURCES.map((source) => group.spawn((own) => ask(own, source, question), { name: source })),
  )
  const findings = found.flat()
  await run.checkpoint({ findings })
  return findings
}

/** Reading does no harm when it is done twice, so a search whose runner died in it is simply tried again. */
function ask(run: Run, source: string, question: string): Promise<Finding[]> {
  return run.tool(
    `search_${source}`,
    { question },
    (call) =>
      call.run.timeout(SEARCH_MS, ({ signal }) =>
        search(source, question, { signal, idempotencyKey: call.idempotencyKey }),
      ),
    { policy: 'retry' },
  )
}

/** What was said before a checkpoint that is not current has to be said again, its tools included. */
function savedFindings(run: Run): Finding[] | null {
  if (!run.saved?.current) return null
  const { findings } = run.saved.data as { findings: Finding[] }
  return findings
}

function questionOf(run: Run): string {
  const asked = run.messages.findLast(({ role }) => role === 'user')?.content
  return typeof asked === 'string' ? asked : 'this'
}

function reportOf(question: string, findings: readonly Finding[]): string {
  const found = findings.map(({ title, url }, at) => `${at + 1}. [${title}](${url})`)
  return [`# ${question}`, '', ...(found.length > 0 ? found : ['Nothing was found.']), ''].join(
    '\n',
  )
}

/** Line by line, as a model would say it. */
async function* lines(report: string, run: Run) {
  for (const line of report.split(/(?<=\n)/)) {
    await run.sleep(20)
    yield line
  }
}
