import { type ChildProcess, type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Readable, Writable } from 'node:stream'
import type { McpServerSpec } from '@holdfast/protocol'
import { asError, within } from '@holdfast/std'
import { getDefaultEnvironment } from '@modelcontextprotocol/sdk/client/stdio.js'
import { ReadBuffer, serializeMessage } from '@modelcontextprotocol/sdk/shared/stdio.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import type { Logger } from 'pino'
import { MESSAGE_BYTES_MAX } from './mcp-limits.ts'

type Command = Extract<McpServerSpec, { command: string }>
type ServerProcess = ChildProcessByStdio<Writable, Readable, Readable>

/** How long a server may take to end by itself, and again after SIGTERM. */
const EXIT_MS_MAX = 1000
const STDERR_LINE_CHARS_MAX = 2000

/**
 * An MCP server as a child process. It gets a process group of its own, so that Ctrl-C in a terminal does not reach it
 * before the runs that use it have ended, and so that what it starts ends with it. When this process is killed, a guard
 * that waits for just that kills the group.
 */
export function stdioTransport({ command, args, env }: Command, log: Logger): Transport {
  const buffer = new ReadBuffer({ maxBufferSize: MESSAGE_BYTES_MAX })
  let child: ServerProcess | undefined

  function read(bytes: Buffer) {
    try {
      buffer.append(bytes)
      for (let message = buffer.readMessage(); message; message = buffer.readMessage()) {
        transport.onmessage?.(message)
      }
    } catch (error) {
      transport.onerror?.(asError(error))
      // What comes behind a message that cannot be read cannot be told apart any more.
      if (child) killGroup(child, 'SIGKILL')
    }
  }

  const transport: Transport = {
    async start() {
      const started = spawn(command, args, {
        env: { ...getDefaultEnvironment(), ...env },
        stdio: ['pipe', 'pipe', 'pipe'],
        detached: true,
      })
      child = started
      started.stdout.on('data', read)
      started.stderr.on('data', (bytes: Buffer) => {
        log.debug({ stderr: String(bytes).slice(0, STDERR_LINE_CHARS_MAX) }, 'an MCP server said')
      })
      started.stdin.on('error', (error) => transport.onerror?.(error))
      started.on('error', (error) => transport.onerror?.(error))
      started.once('close', () => transport.onclose?.())
      await once(started, 'spawn')
      const guard = startGuard(started.pid ?? 0)
      started.once('exit', () => {
        // What it started and left behind is its own.
        killGroup(started, 'SIGKILL')
        guard.kill('SIGKILL')
      })
    },
    async send(message) {
      if (!child?.stdin.writable) throw new Error('the MCP server has ended')
      if (!child.stdin.write(serializeMessage(message))) await once(child.stdin, 'drain')
    },
    async close() {
      buffer.clear()
      if (child) await end(child)
    },
  }
  return transport
}

/** First by the end of its input, then as is asked, then as is not. */
async function end(child: ServerProcess): Promise<void> {
  if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'close').then(() => true)
  child.stdin.end()
  if (await within(EXIT_MS_MAX, ended)) return
  killGroup(child, 'SIGTERM')
  if (await within(EXIT_MS_MAX, ended)) return
  killGroup(child, 'SIGKILL')
  await within(EXIT_MS_MAX, ended)
}

function killGroup({ pid }: ChildProcess, signal: NodeJS.Signals): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, signal)
  } catch (error) {
    if (asError(error).message.includes('ESRCH')) return
    throw error
  }
}

/** Its input ends when this process does, however that happens. */
function startGuard(pid: number): ChildProcess {
  const script = 'read -r nothing; kill -s KILL -- "-$0"'
  return spawn('sh', ['-c', script, `${pid}`], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  })
}
