import { createClockAgent } from './clock-agent.ts'
import { serveAgent } from './serve.ts'

const { MODEL_BASE_URL, MODEL, MODEL_API_KEY, PORT = '0' } = process.env
if (!MODEL_BASE_URL || !MODEL) {
  process.stderr.write('MODEL_BASE_URL and MODEL must be set\n')
  process.exit(1)
}

const server = serveAgent(
  createClockAgent({ baseUrl: MODEL_BASE_URL, name: MODEL, apiKey: MODEL_API_KEY ?? 'none' }),
)
server.listen(Number(PORT), '127.0.0.1', () => {
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : PORT
  process.stdout.write(`Mastra agent is ready at http://127.0.0.1:${port}\n`)
})

function end() {
  server.close(() => process.exit(0))
  server.closeAllConnections()
}
process.once('SIGTERM', end)
process.once('SIGINT', end)
