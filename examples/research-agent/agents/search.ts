export type Finding = { title: string; url: string }

/** `GET $SEARCH_URL/{source}?q=…`, which answers with `{ results: { title, url }[] }`. */
export async function search(
  source: string,
  question: string,
  { signal, idempotencyKey }: { signal: AbortSignal; idempotencyKey: string },
): Promise<Finding[]> {
  const base = process.env['SEARCH_URL']
  if (!base) throw new Error('SEARCH_URL is not set')
  const answer = await fetch(`${base}/${source}?q=${encodeURIComponent(question)}`, {
    signal,
    headers: { 'idempotency-key': idempotencyKey },
  })
  if (!answer.ok) throw new Error(`${source} answered ${answer.status}`)
  const { results } = (await answer.json()) as { results: Finding[] }
  return results.slice(0, 5)
}
