/** Product limits: constants, not configuration, because all sides must agree on them. */
export const LIMITS = {
  /** The message of a turn: its text, or its content parts as JSON. */
  messageBytesMax: 1 << 20,
  /** Parts of a message's content. */
  contentPartsMax: 100,
  /** Bytes that are stored beside a conversation's messages. */
  conversationAttachmentBytesMax: 64 << 20,
  /** Of these, what an attempt's agent is given, the newest first. */
  attemptAttachmentBytesMax: 8 << 20,
  /** All messages of a conversation as one snapshot, as JSON. */
  conversationBytesMax: 8 << 20,
  /** Turns waiting behind the first unfinished one. */
  queuedTurnsMax: 20,
  /** One event as JSON, a snapshot of a full conversation included; a larger one ends the run with `limit_exceeded`. */
  eventBytesMax: 9 << 20,
  /** Interrupts or tool results that one turn answers. */
  answersMax: 1000,
  /** What a step gave, or a checkpoint keeps, as JSON. */
  stepBytesMax: 1 << 20,
  checkpointBytesMax: 1 << 20,
  clientTurnIdCharsMax: 128,
  /** One artifact; it is streamed, so it costs no memory. */
  artifactBytesMax: 1 << 30,
  artifactsMax: 100,
  artifactNameBytesMax: 255,
  deadlineMsMax: 30 * 86_400_000,
  /** A flush of the appender over all its runs. */
  flushEventsMax: 2000,
  flushBytesMax: 256 << 10,
} as const
