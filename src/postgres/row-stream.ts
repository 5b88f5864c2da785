/**
 * Rows one batch at a time, through a cursor: PostgreSQL produces what the consumer has taken, no more, so memory stays
 * constant. The consumer's leaving ends the statement at once, also while PostgreSQL is still at work on it.
 */
import { ranTooLong } from '../errors.js';
import type { Database } from './database.js';
import type { StreamConnection } from './stream-connection.js';
import { ANSWER_MARGIN_MS } from './watchdog.js';
import type { BoundStatement } from './wire-query.js';

/** Rows of the first batch; the next ones are sized by the bytes of the last, to keep batches of wide rows small. */
const FIRST_BATCH_ROWS = 50;
const MAX_BATCH_ROWS = 4_000;
const BATCH_BYTES = 524_288;

export interface StreamOptions extends BoundStatement {
  /** Who reads: connections are shared out fairly. */
  readonly reader: string;
  /** Milliseconds one batch may take; 0 for no limit. */
  readonly batchTimeout: number;
  /** The byte that cells may be joined by, and how many come alone before those; null where each has to come alone. */
  readonly joined: { readonly separator: number; readonly apart: number } | null;
  /** Takes the cells of a batch; answers whether more are wanted. */
  readonly take: (cells: readonly Buffer[]) => Promise<boolean>;
  /** Registers what is to be called when the consumer leaves. */
  readonly onAbort: (listener: () => void) => void;
}

export async function streamRows(database: Database, options: StreamOptions): Promise<void> {
  await database.streams.use(async (connection) => {
    connection.isClean = false;
    connection.isClean = await readAll(connection, options);
  }, options.reader);
}

/** Answers whether the connection may be used again: not where the statement was stopped. */
async function readAll(connection: StreamConnection, options: StreamOptions): Promise<boolean> {
  const query = connection.query(options.text, options.parameters, options.prepare).raw();
  const { joiner } = connection;
  let timedOut = false;
  let left = false;
  let working = false;
  let stopped: Promise<void> | null = null;
  // While the portal is suspended there is nothing to stop: the stream is closed instead.
  const stop = (): void => {
    stopped ??= connection.stop(query);
  };
  options.onAbort(() => {
    left = true;
    if (working) stop();
  });
  if (left) return true;
  working = true;
  let timers: readonly NodeJS.Timeout[] = [];
  const disarm = (): void => timers.forEach(clearTimeout);
  const arm = (): void => {
    if (options.batchTimeout === 0) return;
    const late = (): void => {
      timedOut = true;
      stop();
    };
    // Where PostgreSQL cannot be heard of it any more, the connection is given up.
    timers = [
      setTimeout(late, options.batchTimeout),
      setTimeout(() => connection.destroy(), options.batchTimeout + ANSWER_MARGIN_MS),
    ];
  };
  arm();
  let rowsBefore = 0;
  const failures: unknown[] = [];
  // The driver does not wait for the last batch to be taken, and what is thrown here it does not catch: the process would end.
  const take = async (cells: readonly Buffer[]): Promise<boolean> => {
    try {
      return await options.take(cells);
    } catch (error) {
      failures.push(error);
      return false;
    }
  };
  let taking = Promise.resolve(true);
  joiner.refused = null;
  joiner.memory.clear();
  if (options.joined) joiner.begin(options.joined.separator, options.joined.apart);
  const reading = query.cursor(FIRST_BATCH_ROWS, async (rows) => {
    working = false;
    disarm();
    const cells = (rows as unknown as Buffer[][]).filter((row) => row !== undefined).map((row) => row[0] as Buffer);
    const count = joiner.active ? joiner.rows - rowsBefore : cells.length;
    rowsBefore += count;
    resize(query, cells, count);
    connection.stalledSince = performance.now();
    taking = take(cells).finally(() => {
      connection.stalledSince = null;
    });
    const isWanted = await taking;
    joiner.memory.clear();
    if (!isWanted || left) return connection.client.CLOSE as never;
    working = true;
    arm();
  });
  try {
    await connection.answer(reading);
    await taking;
  } catch (error) {
    if (timedOut) throw ranTooLong();
    if (joiner.refused) throw joiner.refused;
    if (!left) throw error;
  } finally {
    working = false;
    joiner.end();
    joiner.memory.clear();
    disarm();
    await stopped;
  }
  if (failures.length > 0) throw failures[0];
  return stopped === null;
}

/** The driver reads the size anew for each batch. */
function resize(query: unknown, cells: readonly Buffer[], count: number): void {
  const bytes = cells.reduce((sum, cell) => sum + cell.length, 0);
  const rows = Math.floor((BATCH_BYTES * count) / Math.max(bytes, 1));
  (query as { cursorRows: number }).cursorRows = Math.max(1, Math.min(MAX_BATCH_ROWS, rows));
}
