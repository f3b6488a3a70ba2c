import { createHash } from 'node:crypto'

/** An attempt, as far as its files are concerned. */
export type AttemptOfFiles = {
  readonly tenantId: string
  readonly runId: string
  readonly epoch: number
}

/** All files of a run. */
export function runFolder({ tenantId, runId }: Omit<AttemptOfFiles, 'epoch'>): string {
  return `${tenantPart(tenantId)}/${runId}`
}

/**
 * A path of its own for every write of every attempt: no two attempts share a folder, and within one `count` tells
 * writes apart, so that the name in it is only for people.
 */
export function artifactPath(attempt: AttemptOfFiles, count: number, name: string): string {
  return `${runFolder(attempt)}/${attempt.epoch}/${count}-${slug(name, 80)}`
}

const OF_AN_ATTEMPT = /^[^/]+\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/(\d{1,9})\/[^/]+$/

/** Whose file it is; `null`: none of ours. */
export function attemptOfPath(path: string): { runId: string; epoch: number } | null {
  const [, runId, epoch] = OF_AN_ATTEMPT.exec(path) ?? []
  return runId === undefined ? null : { runId, epoch: Number(epoch) }
}

/** Two tenants never share a part, also where paths are compared without case. */
function tenantPart(tenantId: string): string {
  if (/^[a-z0-9][a-z0-9_-]{0,63}$/.test(tenantId)) return tenantId
  const hash = createHash('sha256').update(tenantId).digest('hex').slice(0, 16)
  return `${slug(tenantId, 40)}.${hash}`
}

function slug(text: string, charsMax: number): string {
  const plain = text.normalize('NFKD').replace(/[^A-Za-z0-9._-]+/g, '_')
  return plain.slice(0, charsMax).replace(/^\.+/, '_') || '_'
}
