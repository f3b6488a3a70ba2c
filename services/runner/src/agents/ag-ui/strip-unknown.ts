import * as z from 'zod'

/**
 * The value without properties that the schema does not describe, at any depth. What the schema
 * leaves open (state, metadata, tool results) and values of the wrong shape stay as they are.
 */
export function stripUnknown(value: unknown, schema: unknown): unknown {
  const target = unwrapped(schema)
  if (target instanceof z.ZodArray) {
    if (!Array.isArray(value)) return value
    return value.map((item) => stripUnknown(item, target.element))
  }
  if (target instanceof z.ZodDiscriminatedUnion) {
    return stripUnknown(value, optionFor(value, target))
  }
  if (target instanceof z.ZodUnion) {
    const fitting = target.options.find((option) => z.safeParse(option, value).success)
    return stripUnknown(value, fitting)
  }
  if (target instanceof z.ZodObject) return stripObject(value, target)
  return value
}

function stripObject(value: unknown, schema: z.ZodObject): unknown {
  // JSON Patch operations are open by their RFC: a reader ignores members it does not know.
  if (!isRecord(value) || z.globalRegistry.get(schema)?.specOpen === true) return value
  const known = Object.entries(value).filter(([key]) => Object.hasOwn(schema.shape, key))
  return Object.fromEntries(
    known.map(([key, inner]) => [key, stripUnknown(inner, schema.shape[key])]),
  )
}

function unwrapped(schema: unknown): unknown {
  let current = schema
  for (;;) {
    if (current instanceof z.ZodPipe) current = current.in
    else if (current instanceof z.ZodOptional || current instanceof z.ZodNullable) {
      current = current.unwrap()
    } else if (current instanceof z.ZodDefault) current = current.unwrap()
    else return current
  }
}

function optionFor(value: unknown, union: z.ZodDiscriminatedUnion): unknown {
  if (!isRecord(value)) return undefined
  const tag = value[union.def.discriminator]
  return union.options.find((option) => {
    const literal = option instanceof z.ZodObject && option.shape[union.def.discriminator]
    return literal instanceof z.ZodLiteral && literal.values.has(tag as string)
  })
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
