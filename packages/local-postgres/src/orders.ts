/** What the keeper is told by its one argument, as JSON. */
export type Orders = {
  readonly postgres: string
  readonly dataFolder: string
  readonly logFile: string
  readonly port: number
  readonly settings: Readonly<Record<string, string>>
  readonly account?: { readonly uid: number; readonly gid: number }
  /** Removed when all is over, for a database that must leave nothing behind. */
  readonly removeFolder?: string
}

/** What the keeper tells. `failed`: the first start did not succeed; with the end of the server's log. */
export type KeeperNews =
  | { readonly type: 'ready' }
  | { readonly type: 'restarting' }
  | { readonly type: 'failed'; readonly log: string }
