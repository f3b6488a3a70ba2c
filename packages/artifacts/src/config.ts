import { join } from 'node:path'
import { HoldfastError } from '@holdfast/std'
import * as z from 'zod'

const S3_URL =
  /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/([\w.!*'()-]+(?:\/[\w.!*'()-]+)*))?\/?$/

/** What runners and BFFs read of the environment to find the files; both must be told the same. */
export const ArtifactVariables = {
  HOLDFAST_DATA_DIR: z.string().default('.holdfast'),
  ARTIFACTS_URL: z.string().regex(S3_URL, 's3://BUCKET or s3://BUCKET/PREFIX').optional(),
  AWS_REGION: z
    .string()
    .regex(/^[a-z0-9-]+$/, 'the name of a region')
    .default('us-east-1'),
  AWS_ENDPOINT_URL_S3: z
    .string()
    .refine((text) => /^https?:$/.test(URL.parse(text)?.protocol ?? ''), 'an http(s) URL')
    .optional(),
  AWS_ACCESS_KEY_ID: z.string().optional(),
  AWS_SECRET_ACCESS_KEY: z.string().optional(),
  AWS_SESSION_TOKEN: z.string().optional(),
}
type Variables = z.infer<z.ZodObject<typeof ArtifactVariables>>

export type ArtifactPlace =
  | { readonly kind: 'folder'; readonly folder: string }
  | ({ readonly kind: 's3' } & S3Place)

export type S3Place = {
  readonly bucket: string
  /** Without slashes at its ends; empty: none. */
  readonly prefix: string
  readonly region: string
  /** `undefined`: Amazon's of the region. */
  readonly endpoint: string | undefined
  readonly accessKeyId: string
  readonly secretAccessKey: string
  readonly sessionToken: string | undefined
}

/** @throws HoldfastError invalid/invalid_config in one line, when a bucket is named without credentials */
export function artifactPlace(env: Variables): ArtifactPlace {
  if (!env.ARTIFACTS_URL) {
    return { kind: 'folder', folder: join(env.HOLDFAST_DATA_DIR, 'artifacts') }
  }
  const [, bucket = '', prefix = ''] = S3_URL.exec(env.ARTIFACTS_URL) ?? []
  return {
    kind: 's3',
    bucket,
    prefix,
    region: env.AWS_REGION,
    endpoint: env.AWS_ENDPOINT_URL_S3,
    accessKeyId: given(env, 'AWS_ACCESS_KEY_ID'),
    secretAccessKey: given(env, 'AWS_SECRET_ACCESS_KEY'),
    sessionToken: env.AWS_SESSION_TOKEN,
  }
}

function given(env: Variables, name: 'AWS_ACCESS_KEY_ID' | 'AWS_SECRET_ACCESS_KEY'): string {
  const value = env[name]
  if (value) return value
  throw new HoldfastError('invalid', 'invalid_config', `${name} must be set when ARTIFACTS_URL is`)
}
