/**
 * Rows one batch at a time, through a cursor: PostgreSQL produces what the consumer has taken, no more, so memory stays
 * constant. The consumer's leaving ends the statement at once, also while PostgreSQL is still at work on it.
 */
import { invalidQuery } from '../errors.js';
import { type Database, joinerOf } from './database.js';
import type { Session } from './sessions.js';

/** Rows of the first batch; the next ones are sized by the bytes of the last, to keep batches of wide rows small. */
const FIRST_BATCH = 50;
const MOST_ROWS = 4_000;
const BATCH_BYTES = 524_288;

export interface StreamOptions {
  readonly text: string;
  readonly parameters: (string | null)[];
  readonly prepare: boolean;
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
  await database.streams.use(async (session) => {
    let failed = true;
    try {
      failed = await readAll(session, options);
    } finally {
      // A statement that fails after some rows spoils the next result of its connection (porsager/postgres#1181): this one
      // is thrown away.
      if (failed && !session.lost) await session.query('select 1').catch(() => {});
    }
  });
}

/** Answers whether the statement was cancelled. */
async function readAll(session: Session, options: StreamOptions): Promise<boolean> {
  const query = session.query(options.text, options.parameters, { prepare: options.prepare }).raw();
  const joiner = options.joined ? joinerOf(session.client) : undefined;
  let timedOut = false;
  let left = false;
  let working = false;
  let cancelled: Promise<unknown> | null = null;
  // As the driver's own `cancel`, which hides when the cancellation has arrived: until then it could hit the next statement of
  // this backend. While the portal is suspended there is nothing to cancel: the stream is closed instead.
  const cancel = (): void => {
    const { canceller } = query as unknown as { canceller: (query: unknown) => Promise<unknown> };
    cancelled ??= canceller(query).catch(() => {});
  };
  options.onAbort(() => {
    left = true;
    if (working) cancel();
  });
  if (left) return false;
  working = true;
  let timer: NodeJS.Timeout | null = null;
  const arm = (): void => {
    if (options.batchTimeout === 0) return;
    timer = setTimeout(() => {
      timedOut = true;
      cancel();
    }, options.batchTimeout);
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
  if (options.joined) joiner?.begin(options.joined.separator, options.joined.apart);
  try {
    await query.cursor(FIRST_BATCH, async (rows) => {
      working = false;
      if (timer) clearTimeout(timer);
      const cells = (rows as unknown as Buffer[][]).filter((row) => row !== undefined).map((row) => row[0] as Buffer);
      const count = joiner ? joiner.rows - rowsBefore : cells.length;
      rowsBefore += count;
      resize(query, cells, count);
      taking = take(cells);
      if (!(await taking) || left) return session.client.CLOSE as never;
      working = true;
      arm();
    });
    await taking;
  } catch (error) {
    if (timedOut) throw invalidQuery('The query ran longer than DATABASE_STATEMENT_TIMEOUT allows');
    if (!left) throw error;
  } finally {
    working = false;
    joiner?.end();
    if (timer) clearTimeout(timer);
    await cancelled;
  }
  if (failures.length > 0) throw failures[0];
  return cancelled !== null;
}

/** The driver reads the size anew for each batch. */
function resize(query: unknown, cells: readonly Buffer[], count: number): void {
  const bytes = cells.reduce((sum, cell) => sum + cell.length, 0);
  const rows = Math.floor((BATCH_BYTES * count) / Math.max(bytes, 1));
  (query as { cursorRows: number }).cursorRows = Math.max(1, Math.min(MOST_ROWS, rows));
}
