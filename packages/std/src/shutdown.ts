/**
 * Resolves with why the process should end: a SIGTERM or SIGINT, or a parent that went away
 * (its IPC channel closed). Later signals are ignored: a drain that has begun is not hurried.
 */
export function shutdownRequested(): Promise<NodeJS.Signals | 'parent_gone'> {
  return new Promise((resolve) => {
    process.on('SIGTERM', resolve)
    process.on('SIGINT', resolve)
    if (process.connected) process.on('disconnect', () => resolve('parent_gone'))
  })
}
