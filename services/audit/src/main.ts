import { shutdownRequested } from '@holdfast/std'
import { runAudit } from './run-audit.ts'

// An image's first process gets no default for SIGTERM. What was not asked by then is not known.
const interrupted = shutdownRequested().then(() => 2)
process.exit(await Promise.race([runAudit(process.env, process.argv.slice(2)), interrupted]))
