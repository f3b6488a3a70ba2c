import { runnerProcess } from './runner-process.ts'

await runnerProcess(process.env, { reload: process.argv.includes('--reload') })
