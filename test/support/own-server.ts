import { once } from 'node:events'
import { migrate } from '@holdfast/store'
import type { TestDatabase } from './database.ts'
import { startTemporary } from './postgres.ts'
import { connect } from './sql.ts'

/** A PostgreSQL server that a test has for itself, with one migrated database. Disposing stops it. */
export type OwnServer = TestDatabase & {
  /** Ends the server and resolves when it accepts connections again: at once (`SIGQUIT`), or as it does for operators. */
  restart(how: 'SIGQUIT' | 'SIGINT'): Promise<void>
}

export async function openOwnServer(): Promise<OwnServer> {
  const server = await startTemporary()
  await migrate(server.url, { info() {} })
  return {
    url: server.url,
    async restart(how) {
      const before = await postmasterPid(server.url)
      process.kill(before, how)
      for (;;) {
        const now = await postmasterPid(server.url).catch(() => before)
        if (now !== before) return
        await once(AbortSignal.timeout(50), 'abort')
      }
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
}

/** The server's own file says it. */
async function postmasterPid(url: string): Promise<number> {
  await using sql = await connect(url)
  const [file] = await sql<{ text: string }>(`SELECT pg_read_file('postmaster.pid') AS text`)
  return Number(file?.text.split('\n')[0])
}
