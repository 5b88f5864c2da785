/**
 * Rows one batch at a time, through a portal: PostgreSQL produces what the consumer has taken, no more, so memory stays
 * constant. The consumer's leaving ends the statement at once, also while PostgreSQL is still at work on it.
 */
import { ranTooLong } from '../../base/errors.js';
import { BatchMemory } from '../wire/response-memory.js';
import { type Joining, RowBatch } from '../wire/row-batch.js';
import { ANSWER_MARGIN_MS } from '../wire/watchdog.js';
import type { BoundStatement } from '../wire/wire-query.js';
import type { Database } from './database.js';
import type { StreamSession } from './stream-session.js';

/** Rows of the first batch; the next ones are sized by the bytes of the last, to keep batches of wide rows small. */
const FIRST_BATCH_ROWS = 50;
const MAX_BATCH_ROWS = 4_000;
const BATCH_BYTES = 524_288;

interface RowStreamOptions extends BoundStatement {
  /** Who reads: connections are shared out fairly. */
  readonly reader: string;
  /** Milliseconds one batch may take; 0 for no limit. */
  readonly batchTimeout: number;
  /** Null where each cell has to come alone. */
  readonly joined: Joining | null;
  /** Takes the cells of a batch; answers whether more are wanted. */
  readonly take: (cells: readonly Buffer[]) => Promise<boolean>;
  /** Told at the end how long PostgreSQL has worked, and how many rows it gave. */
  readonly done: (ms: number, rows: number, failed: boolean) => void;
  /** Registers what is to be called when the consumer leaves. */
  readonly onAbort: (listener: () => void) => void;
}

export async function streamRows(database: Database, options: RowStreamOptions): Promise<void> {
  const memory = new BatchMemory(database.responseMemory);
  await database.streams.use(
    (session) => readAll(session, memory, options).finally(() => memory.clear()),
    options.reader,
  );
}

async function readAll(session: StreamSession, memory: BatchMemory, options: RowStreamOptions): Promise<void> {
  const { text, parameters, prepare, joined, batchTimeout } = options;
  const batch = new RowBatch(memory, joined, (refused) => session.refuse(refused));
  let timedOut = false;
  let left = false;
  let working = false;
  let cancelled: Promise<void> | null = null;
  let workedMs = 0;
  let rowsSent = 0;
  let failed = false;
  const cancel = (): void => {
    cancelled ??= session.cancel();
  };
  // While the portal is suspended there is nothing to cancel: it is closed instead.
  options.onAbort(() => {
    left = true;
    if (working) cancel();
  });
  if (left) return;
  const late = (): void => {
    timedOut = true;
    cancel();
  };
  const within = async <Answer>(ask: () => Promise<Answer>): Promise<Answer> => {
    // Where PostgreSQL cannot be reached, the connection is closed.
    const timers =
      batchTimeout === 0
        ? []
        : [setTimeout(late, batchTimeout), setTimeout(() => session.destroy(), batchTimeout + ANSWER_MARGIN_MS)];
    working = true;
    const begun = performance.now();
    try {
      return await ask();
    } finally {
      workedMs += performance.now() - begun;
      working = false;
      timers.forEach(clearTimeout);
    }
  };
  // A reader that fails wants no more: the statement is ended in order.
  const failures: unknown[] = [];
  const take = (cells: readonly Buffer[]): Promise<boolean> =>
    options.take(cells).catch((error: unknown) => {
      failures.push(error);
      return false;
    });
  try {
    const statement = { text, parameters, prepare, decoder: batch };
    let isSuspended = await within(() => session.execute(statement, FIRST_BATCH_ROWS));
    for (;;) {
      const rows = nextBatchRows(batch);
      rowsSent += batch.rows;
      session.stalledSince = performance.now();
      const cells = batch.take();
      const isWanted = cells.length === 0 || (await session.whileOpen(take(cells)));
      session.stalledSince = null;
      memory.clear();
      if (!isSuspended) break;
      if (!isWanted || left) {
        await within(() => session.closePortal());
        break;
      }
      isSuspended = await within(() => session.fetch(rows));
    }
  } catch (error) {
    failed = true;
    if (timedOut) throw ranTooLong();
    if (!left) throw error;
  } finally {
    session.stalledSince = null;
    options.done(workedMs, rowsSent, failed);
    await cancelled;
  }
  if (failures.length > 0) throw failures[0];
}

function nextBatchRows({ rows, bytes }: RowBatch): number {
  return Math.max(1, Math.min(MAX_BATCH_ROWS, Math.floor((BATCH_BYTES * rows) / Math.max(bytes, 1))));
}
