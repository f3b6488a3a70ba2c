export {
  type Client,
  type ClientOptions,
  type Conversation,
  createClient,
  type FoldedRun,
} from './client.ts'
export type { Followed } from './follow.ts'
