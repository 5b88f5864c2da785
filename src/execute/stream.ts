/**
 * Rows one batch at a time, through a cursor: PostgreSQL produces what the consumer has taken, no more, so memory stays
 * constant. The consumer's leaving ends the statement at once, also while PostgreSQL is still at work on it.
 */
import { invalidQuery } from '../errors.js';
import type { Database, Pool } from './database.js';

/** Enough to make the round trips cheap, little enough to keep a batch of wide rows small. */
const BATCH = 500;

export interface StreamOptions {
  readonly text: string;
  readonly parameters: (string | null)[];
  /** Milliseconds one batch may take; 0 for no limit. */
  readonly batchTimeout: number;
  /** Takes the cells of a batch; answers whether more are wanted. */
  readonly take: (cells: readonly Buffer[]) => Promise<boolean>;
  /** Registers what is to be called when the consumer leaves. */
  readonly onAbort: (listener: () => void) => void;
}

export async function streamRows(database: Database, options: StreamOptions): Promise<void> {
  const connection = await database.streams.reserve();
  let failed = true;
  try {
    await readAll(connection, options);
    failed = false;
  } finally {
    // A statement that fails after some rows spoils the next result of its connection (porsager/postgres#1181): this one
    // is thrown away.
    if (failed) await connection`select 1`.catch(() => {});
    connection.release();
  }
}

async function readAll(connection: Awaited<ReturnType<Pool['reserve']>>, options: StreamOptions): Promise<void> {
  const query = connection.unsafe(options.text, options.parameters as string[], { prepare: true }).raw();
  let timedOut = false;
  let left = false;
  options.onAbort(() => {
    left = true;
    query.cancel();
  });
  if (left) return;
  let timer: NodeJS.Timeout | null = null;
  const arm = (): void => {
    if (options.batchTimeout === 0) return;
    timer = setTimeout(() => {
      timedOut = true;
      query.cancel();
    }, options.batchTimeout);
  };
  arm();
  try {
    await query.cursor(BATCH, async (rows) => {
      if (timer) clearTimeout(timer);
      const cells = (rows as unknown as Buffer[][]).filter((row) => row !== undefined).map((row) => row[0] as Buffer);
      const more = await options.take(cells);
      if (!more || left) return connection.CLOSE;
      arm();
    });
  } catch (error) {
    if (timedOut) throw invalidQuery('The query ran longer than DATABASE_STATEMENT_TIMEOUT allows');
    if (!left) throw error;
  } finally {
    if (timer) clearTimeout(timer);
  }
}
