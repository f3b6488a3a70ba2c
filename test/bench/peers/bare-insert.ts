import Fastify from 'fastify'
import pg from 'pg'

/** What the least durable thing behind HTTP costs: one row, one transaction, 202. */
const pool = new pg.Pool({ connectionString: process.env['DATABASE_URL'], max: 10 })
await pool.query('CREATE TABLE turns (id uuid PRIMARY KEY DEFAULT uuidv7(), body jsonb NOT NULL)')
const app = Fastify()
app.post('/runs', async (request, reply) => {
  const { rows } = await pool.query<{ id: string }>({
    name: 'insert',
    text: 'INSERT INTO turns (body) VALUES ($1) RETURNING id',
    values: [request.body],
  })
  return reply.code(202).send({ runId: rows[0]?.id })
})
await app.listen({ port: 0, host: '127.0.0.1' })
const address = app.server.address()
process.send?.({ port: typeof address === 'object' ? address?.port : undefined })
process.on('SIGTERM', () => process.exit(0))
