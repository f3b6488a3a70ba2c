import type { Message } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { chatMessages, systemMessage, withResults } from './chat-messages.ts'
import { roundMessages } from './turn.ts'

test('a conversation keeps its calls with their results, and no thoughts', () => {
  const messages: Message[] = [
    { id: 's', role: 'developer', content: 'Be kind.' },
    { id: 'u1', role: 'user', content: 'what time is it?' },
    { id: 'r1', role: 'reasoning', content: 'Hmm.' },
    {
      id: 'a1',
      role: 'assistant',
      toolCalls: [{ id: 'c1', type: 'function', function: { name: 'now', arguments: '{}' } }],
    },
    { id: 't1', role: 'tool', toolCallId: 'c1', content: 'noon' },
    { id: 'a2', role: 'assistant', content: 'Noon.' },
    { id: 'a3', role: 'assistant', content: '' },
  ]
  expect(chatMessages(messages)).toEqual([
    { role: 'system', content: 'Be kind.' },
    { role: 'user', content: 'what time is it?' },
    {
      role: 'assistant',
      content: null,
      tool_calls: [{ id: 'c1', type: 'function', function: { name: 'now', arguments: '{}' } }],
    },
    { role: 'tool', tool_call_id: 'c1', content: 'noon' },
    { role: 'assistant', content: 'Noon.' },
  ])
})

test('pictures, sounds and files are passed on as the provider takes them', () => {
  const data = (mimeType: string) => ({ type: 'data' as const, value: 'AAAA', mimeType })
  const message: Message = {
    id: 'u1',
    role: 'user',
    content: [
      { type: 'text', text: 'look' },
      { type: 'image', source: data('image/png') },
      { type: 'image', source: { type: 'url', value: 'https://x.test/a.png' } },
      { type: 'audio', source: data('audio/mpeg') },
      { type: 'document', source: data('application/pdf'), metadata: { filename: 'a.pdf' } },
      { type: 'document', source: data('application/pdf') },
      { type: 'document', source: { type: 'file', value: 'file-1' } },
      { type: 'video', source: { type: 'url', value: 'https://x.test/a.mp4' } },
    ],
  }
  const pdf = 'data:application/pdf;base64,AAAA'
  expect(chatMessages([message])).toEqual([
    {
      role: 'user',
      content: [
        { type: 'text', text: 'look' },
        { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
        { type: 'image_url', image_url: { url: 'https://x.test/a.png' } },
        { type: 'input_audio', input_audio: { data: 'AAAA', format: 'mp3' } },
        { type: 'file', file: { file_data: pdf, filename: 'a.pdf' } },
        { type: 'file', file: { file_data: pdf, filename: 'file.pdf' } },
        { type: 'file', file: { file_id: 'file-1' } },
        { type: 'video_url', video_url: { url: 'https://x.test/a.mp4' } },
      ],
    },
  ])
})

test('the front end’s context stands behind the operator’s words', () => {
  expect(systemMessage('Be brief.', [{ description: 'page', value: '/cart' }])).toEqual([
    { role: 'system', content: 'Be brief.\n\nContext of the application:\npage: /cart' },
  ])
  expect(systemMessage(undefined, [])).toEqual([])
})

test('arguments that are not JSON do not go back to the provider', () => {
  const call = { id: 'c1', name: 'now', arguments: '{"cut', result: 'Error' }
  const round = { messageId: 'm1', text: '', calls: [call], finishReason: 'tool_calls' }
  expect(roundMessages({ earlier: [], rounds: [round], usage: [] })).toMatchObject([
    { tool_calls: [{ function: { name: 'now', arguments: '{}' } }] },
    { role: 'tool', tool_call_id: 'c1', content: 'Error' },
  ])
})

test('the result of a call of an earlier turn stands behind its call', () => {
  const made = (id: string) => ({
    id,
    type: 'function' as const,
    function: { name: 'x', arguments: '' },
  })
  const result = (id: string) => ({ role: 'tool' as const, tool_call_id: id, content: id })
  const calls = { role: 'assistant' as const, content: null, tool_calls: [made('a'), made('b')] }
  const user = { role: 'user' as const, content: 'go on' }
  const answered = [{ id: 'b', result: 'b' }]
  expect(withResults([calls, result('a'), user], answered)).toEqual([
    calls,
    result('a'),
    result('b'),
    user,
  ])
  expect(withResults([calls, result('a')], answered)).toEqual([calls, result('a'), result('b')])
})
