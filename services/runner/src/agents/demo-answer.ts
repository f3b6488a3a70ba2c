import type { Message } from '@holdfast/protocol'
import type { AgentRun } from './agent.ts'

/** What a user message asks the demo agent to do; commands may stand together in one message. */
export type DemoCommands = {
  /** The message without the commands. */
  text: string
  think: boolean
  state: boolean
  activity: boolean
  fail: boolean
  /** What the user is asked; the run ends with an interrupt. */
  ask?: string
  /** What a tool call wants the user's consent for; the run ends with an interrupt. */
  approve?: string
  /** A front-end tool's name, and its arguments as JSON. */
  call?: { name: string; argumentsJson: string }
  /** What the tool is to be called with. */
  tool?: string
  slowSeconds?: number
  longWords?: number
  fileWords?: number
}

/** What `/file` leaves behind. */
export const DEMO_FILE = 'words.txt'

const COMMAND = /(?<!\S)\/(tool|ask|approve|call|slow|fail|long|file|think|state|activity)(?!\S)/

/** Reads the last user message: `/tool weather /slow 3`. */
export function demoCommands(messages: readonly Message[]): DemoCommands {
  const asked = textOf(messages.findLast((message) => message.role === 'user'))
  const [before = '', ...parts] = asked.split(COMMAND)
  const commands: DemoCommands = {
    text: before.trim(),
    think: false,
    state: false,
    activity: false,
    fail: false,
  }
  for (let index = 0; index < parts.length; index += 2) {
    apply(commands, parts[index] ?? '', (parts[index + 1] ?? '').trim())
  }
  return commands
}

/** The same conversation is always answered with the same text. */
export function answerTo(run: AgentRun, commands: DemoCommands): string {
  if (commands.longWords !== undefined) return longText(commands.longWords)
  const turn = run.messages.filter((message) => message.role === 'user').length
  const said = commands.text === '' ? 'You gave me only commands.' : `You said: “${commands.text}”.`
  const sentences = [`This is turn ${turn} of our conversation.`, said]
  if (commands.tool !== undefined) {
    const characters = [...commands.tool].length
    sentences.push(`The lookup of “${commands.tool}” found ${count(characters, 'character')}.`)
  }
  if (commands.think) sentences.push('I thought about it first.')
  if (commands.state) sentences.push('I left a note in the state.')
  if (commands.fileWords !== undefined) {
    sentences.push(`I wrote ${count(commands.fileWords, 'word')} into ${DEMO_FILE}.`)
  }
  if (commands.activity) sentences.push('I showed how far I was.')
  if (run.context.length > 0) {
    sentences.push(`Your page told me ${count(run.context.length, 'thing')} about where we are.`)
  }
  if (run.tools.length > 0) {
    sentences.push(`Your page offers ${count(run.tools.length, 'tool')}.`)
  }
  sentences.push(
    commands.fail
      ? 'Now I fail, as you asked.'
      : 'I can call a tool (/tool), think (/think), take my time (/slow SECONDS), ' +
          'write a lot (/long WORDS), leave a file (/file WORDS), change the state (/state), ' +
          'show activity (/activity), ask you (/ask QUESTION), ask for your consent (/approve WHAT), ' +
          'call a tool of your page (/call NAME) and fail (/fail).',
  )
  return sentences.join(' ')
}

function apply(commands: DemoCommands, name: string, rest: string): void {
  if (name === 'think' || name === 'state' || name === 'activity' || name === 'fail') {
    commands[name] = true
    addText(commands, rest)
  } else if (name === 'tool') {
    commands.tool = rest === '' ? 'holdfast' : rest
  } else if (name === 'ask') {
    commands.ask = rest === '' ? 'What shall I do?' : rest
  } else if (name === 'approve') {
    commands.approve = rest === '' ? 'everything' : rest
  } else if (name === 'call') {
    const [, tool = '', argumentsJson = ''] = /^(\S*)\s*([\s\S]*)$/.exec(rest) ?? []
    commands.call = { name: tool, argumentsJson: isJson(argumentsJson) ? argumentsJson : '{}' }
  } else {
    const [, number = '', text = ''] = /^(\d+(?:\.\d+)?)?\s*([\s\S]*)$/.exec(rest) ?? []
    if (name === 'slow') commands.slowSeconds = number === '' ? 5 : Math.min(Number(number), 86_400)
    else commands[`${name === 'long' ? 'long' : 'file'}Words`] = wordsIn(number)
    addText(commands, text)
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch {
    return false
  }
}

function addText(commands: DemoCommands, text: string): void {
  commands.text = [commands.text, text].filter((part) => part !== '').join(' ')
}

function wordsIn(number: string): number {
  return number === '' ? 500 : Math.min(Math.floor(Number(number)), 200_000)
}

export function longText(words: number): string {
  return Array.from({ length: words }, (_, index) => `word${index + 1}`).join(' ')
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}

function textOf(message: Message | undefined): string {
  if (message?.role !== 'user') return ''
  if (typeof message.content === 'string') return message.content
  return message.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(' ')
}
