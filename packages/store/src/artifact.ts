import { type RawBuilder, sql } from 'kysely'
import { visibleTo } from './event-log.ts'
import type { Principal } from './principal.ts'
import { row, rows, type Store } from './store.ts'

/** A file that an attempt has written, before anybody may know of it. */
export type ArtifactPointer = {
  readonly name: string
  readonly path: string
  readonly mediaType: string
  readonly bytes: number
}

/**
 * Makes files visible. Only a part of the statement that ends the run, and of its rows `shown`: so an artifact is always
 * one of the attempt that ended it, and an upload that nobody named is an orphan.
 */
export function artifactsOf(
  run: { readonly runId: string; readonly tenantId: string; readonly epoch: number },
  artifacts: readonly ArtifactPointer[],
): RawBuilder<unknown> {
  return sql`
    INSERT INTO holdfast.artifacts (run_id, name, tenant_id, epoch, path, media_type, bytes)
    SELECT ${run.runId}::uuid, a.name, ${run.tenantId}, ${run.epoch}::int, a.path, a.media_type, a.bytes
    FROM shown, unnest(${artifacts.map(({ name }) => name)}::text[], ${artifacts.map(({ path }) => path)}::text[],
                ${artifacts.map(({ mediaType }) => mediaType)}::text[],
                ${artifacts.map(({ bytes }) => bytes)}::bigint[]) AS a (name, path, media_type, bytes)`
}

/** `null`: an unknown, foreign or deleted run, or one without such a file. Index: primary keys. */
export async function readArtifact(
  store: Store,
  principal: Principal,
  runId: string,
  name: string,
): Promise<ArtifactPointer | null> {
  const found = await row(
    store,
    sql<{ path: string; media_type: string; bytes: number }>`
      SELECT a.path, a.media_type, a.bytes FROM holdfast.artifacts a
      JOIN holdfast.runs r ON r.id = a.run_id
      JOIN holdfast.conversations c ON c.id = r.conversation_id AND c.deleted_at IS NULL
      WHERE a.run_id = ${runId} AND a.name = ${name} AND ${visibleTo(principal)}`,
  )
  return found && { name, path: found.path, mediaType: found.media_type, bytes: found.bytes }
}

/** A file that was found, and what its path says of it. */
export type FoundFile = {
  readonly path: string
  readonly runId: string
  readonly epoch: number
  /** So old that its run would be known if there was one. */
  readonly old: boolean
}

/**
 * Which of the files belong to nobody: those of an attempt that was lost, those that the run's end did not name, and
 * old ones of a run that is not there. To be asked after the files were listed: a file of the current attempt
 * was written after its claim had committed. Takes no locks; index: primary keys.
 */
export async function orphansAmong(store: Store, files: readonly FoundFile[]): Promise<string[]> {
  if (files.length === 0) return []
  const orphans = await rows(
    store,
    sql<{ path: string }>`
      SELECT f.path
      FROM unnest(${files.map(({ path }) => path)}::text[], ${files.map(({ runId }) => runId)}::uuid[],
                  ${files.map(({ epoch }) => epoch)}::int[], ${files.map(({ old }) => old)}::bool[])
        AS f (path, run_id, epoch, old)
      LEFT JOIN holdfast.runs r ON r.id = f.run_id
      WHERE CASE WHEN r.id IS NULL THEN f.old
                 WHEN r.state IN ('queued', 'running') THEN f.epoch < r.execution_epoch
                 ELSE NOT EXISTS (SELECT FROM holdfast.artifacts a WHERE a.run_id = r.id AND a.path = f.path) END`,
  )
  return orphans.map(({ path }) => path)
}
