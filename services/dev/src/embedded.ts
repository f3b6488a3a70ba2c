import { openCluster, type PostgresServer, startServer } from '@holdfast/local-postgres'
import type { Logger } from 'pino'

/** Modest sizes for a machine that does other things too; durability is left as it is. */
const SETTINGS = {
  shared_buffers: '128MB',
  max_connections: '200',
  log_min_messages: 'warning',
  jit: 'off',
}

/** The embedded PostgreSQL of the data folder, made at the first start. */
export async function startEmbedded(
  folder: string,
  log: Logger,
  signal: AbortSignal,
): Promise<PostgresServer> {
  const cluster = await openCluster(folder, signal)
  const onRestart = () => log.error('PostgreSQL ended by itself and is started again')
  const server = await startServer(cluster, { settings: SETTINGS, onRestart }, signal)
  log.info({ dataFolder: cluster.dataFolder }, 'PostgreSQL is up')
  return server
}
