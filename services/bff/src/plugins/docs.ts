import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import { Problem } from '@holdfast/protocol'
import type { FastifyInstance } from 'fastify'
import { jsonSchemaTransform } from 'fastify-type-provider-zod'
import * as z from 'zod'

/** The OpenAPI document at /openapi.json, readable at /docs. Must stand before the routes. */
export async function docsPlugin(app: FastifyInstance): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Holdfast',
        description:
          'Runs of AI agents that outlive everything around them. Errors are RFC 9457 problems.',
        version: '1',
      },
      components: {
        securitySchemes: { bearer: { type: 'http', scheme: 'bearer', bearerFormat: 'JWT' } },
      },
      security: [{ bearer: [] }],
    },
    transform: (route) => {
      const { schema, url } = jsonSchemaTransform(route)
      const response = { ...(schema.response as object | undefined), default: PROBLEM_RESPONSE }
      return { url, schema: schema.hide ? schema : { ...schema, response } }
    },
  })
  await app.register(swaggerUi, { routePrefix: '/docs' })
  app.get('/openapi.json', { schema: { hide: true } }, () => app.swagger())
}

const PROBLEM_RESPONSE = {
  description: 'A problem, RFC 9457',
  content: { 'application/problem+json': { schema: problemSchema() } },
}

function problemSchema(): Record<string, unknown> {
  const { $schema: _, ...schema } = z.toJSONSchema(Problem)
  return schema
}
