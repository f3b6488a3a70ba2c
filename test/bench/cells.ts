import type { Cell } from './cell.ts'
import { runsCell } from './cells/runs.ts'
import { streamingCell } from './cells/streaming.ts'

export const CELLS: readonly Cell[] = [streamingCell, runsCell]
