import { shutdownRequested } from '@holdfast/std'
import { runMigrations } from './run-migrations.ts'

// An image's first process gets no default for SIGTERM. What is not committed yet is rolled back.
const interrupted = shutdownRequested().then(() => 1)
process.exit(await Promise.race([runMigrations(process.env), interrupted]))
