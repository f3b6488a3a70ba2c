import type { Server } from '../server.ts'
import { sessionsEnded } from './ended-sessions.ts'

/** How many pages sessions have looked at so far. Asked on a connection that stays, whose own share is the same before and after. */
export async function buffersOf({ admin }: Server): Promise<number> {
  await sessionsEnded(admin)
  const [row] = await admin<{ buffers: string }>(
    `SELECT sum(hits + reads) AS buffers FROM pg_stat_io
     WHERE backend_type = 'client backend' AND object = 'relation'`,
  )
  return Number(row?.buffers)
}
