export { type Cluster, openCluster } from './cluster.ts'
export { type PostgresServer, startServer } from './server.ts'
