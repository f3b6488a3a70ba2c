import { shutdownRequested } from '@holdfast/std'

// Asked for first, and the rest loaded after: a signal during the start is a clean end as well.
const shutdown = shutdownRequested()
const { dev } = await import('./dev.ts')
process.exit(await dev(process.env, shutdown))
