/** Five event types that AG-UI had before REASONING took their place; agents still send them. */
const SUCCESSORS: Readonly<Record<string, { type: string; names: 'span' | 'message' }>> = {
  THINKING_START: { type: 'REASONING_START', names: 'span' },
  THINKING_END: { type: 'REASONING_END', names: 'span' },
  THINKING_TEXT_MESSAGE_START: { type: 'REASONING_MESSAGE_START', names: 'message' },
  THINKING_TEXT_MESSAGE_CONTENT: { type: 'REASONING_MESSAGE_CONTENT', names: 'message' },
  THINKING_TEXT_MESSAGE_END: { type: 'REASONING_MESSAGE_END', names: 'message' },
}

/**
 * Rewrites THINKING_* to REASONING_*. They carried no ids, so each START begins a new one under
 * `idPrefix`; everything else passes as it is.
 */
export function createThinkingRewriter(idPrefix: string): (value: unknown) => unknown {
  const count = { span: 0, message: 0 }
  return (value) => {
    if (typeof value !== 'object' || value === null || !('type' in value)) return value
    const type = String(value.type)
    const successor = Object.hasOwn(SUCCESSORS, type) ? SUCCESSORS[type] : undefined
    if (!successor) return value
    const { names } = successor
    if (successor.type.endsWith('START')) count[names] += 1
    const rewritten = {
      ...value,
      type: successor.type,
      messageId: `${idPrefix}.${names}${Math.max(1, count[names])}`,
    }
    return successor.type === 'REASONING_MESSAGE_START'
      ? { ...rewritten, role: 'reasoning' }
      : rewritten
  }
}
