import { execFile } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const readme = await readFile(new URL('../README.md', import.meta.url), 'utf8')
const examples = [...readme.matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, code = '']) => code)
const SAYS = [
  "{ soup: 'soup', plates: 6 }\n",
  "the roast is burnt\n{ status: 'done', value: 'soup' }\n",
  'true\n',
  'the receipt is written\ndrain\n',
  'closed\n',
  '1 rate limited\nno such city\n',
  '',
]

test('the examples of the README run as they stand and say what they promise', async () => {
  const folder = fileURLToPath(new URL('../dist/readme', import.meta.url))
  await mkdir(folder, { recursive: true })
  const said = examples.map(async (code, index) => {
    const file = `${folder}/example-${index + 1}.ts`
    await writeFile(file, code)
    const ran = await promisify(execFile)(process.execPath, ['--conditions=holdfast-source', file])
    return ran.stdout
  })
  expect(await Promise.all(said)).toEqual(SAYS)
})
