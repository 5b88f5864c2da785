/** How a flat write gets its result, if several of them may share a statement. */
import type { TransactionStatement } from '../../postgres/pools/sessions.js';

/** A flat write of one request. */
export interface BatchedWrite {
  readonly statement: TransactionStatement;
  /** The text for many rows. */
  readonly batchText: string;
  /** The key of the row that it changes, or null for a new row: two changes of one row need two statements. */
  readonly key: string | null;
  /** Whether it may be sent again although it may have been done. */
  readonly isRepeatable: boolean;
  /** Identifies the caller. */
  readonly caller: string;
}

export interface WriteExecutor {
  /** How many statements carried 0, 1, 2 … writes, for metrics. */
  readonly sizes: Float64Array;
  /** Statements whose writes were sent again, one by one. */
  readonly splits: number;
  /** The cell of the row that was written, or null if there is none. */
  write(write: BatchedWrite): Promise<Buffer | null>;
}
