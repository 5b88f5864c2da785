/**
 * Imports: rows are written in batches, each one chain, all in one transaction. A batch that fails is undone and tried in parts,
 * only to learn which of its rows are wrong: then nothing of the file is kept.
 */
import { ServiceError, serviceUnavailable } from '../errors.js';
import { readCells, withoutGenerated } from '../plan/file-cell.js';
import type { PlannedWrite } from '../plan/write.js';
import { Conflict } from '../postgres/conflicts.js';
import type { ImportFormat } from '../request/import-file.js';
import type { OnConflict } from '../request/on-conflict.js';
import type { Input } from '../request/parse-context.js';
import { fromWrite, staleness } from '../sqlstate.js';
import { advancePastTable } from './sequences.js';
import type { RequestClient } from './stages.js';
import { namingOf } from './write-errors.js';
import type { Writer, WriteSession } from './writer.js';
import type { Writes } from './writes.js';

/** Rows of a batch, and about how many characters they hold: one document carries all of them. */
const BATCH = 1_000;
const BATCH_SIZE = 1_048_576;

export interface RowError {
  readonly row: number;
  readonly error: ServiceError;
}

/** Rows that could not be written, with their numbers. */
export class ImportFailure extends Error {
  readonly errors: readonly RowError[];

  constructor(errors: readonly RowError[]) {
    super('rows could not be imported');
    this.errors = errors;
  }
}

export interface ImportOptions {
  readonly collection: string;
  readonly rows: AsyncIterable<readonly Input[]>;
  readonly format: ImportFormat;
  readonly maxErrors: number;
  readonly onConflict?: OnConflict | null;
  readonly progress?: (rows: number) => void;
}

/** Answers how many rows were written. */
export async function importRows(
  writes: Writes,
  options: ImportOptions,
  writer: Writer,
  client: RequestClient,
): Promise<number> {
  const { collection: name, onConflict = null } = options;
  return writes.session(name, writer, client, onConflict, async ({ write, ...session }) => {
    const { collection, model } = session;
    const errors: RowError[] = [];
    let count = 0;
    let skipped = 0;
    const writing: WriteSession = {
      ...session,
      write: async (planned, rows) => {
        const left = await write(planned, rows);
        skipped += left;
        return left;
      },
    };
    let batch: Input[] = [];
    let size = 0;
    let running: Promise<void> = Promise.resolve();
    // A batch is read and planned while the one before it is written.
    const flush = async (): Promise<void> => {
      if (batch.length === 0) return;
      const rows = batch;
      const [first, last] = [count - rows.length + 1, count];
      batch = [];
      size = 0;
      const planned = await planRows(writing, rows);
      await running;
      if (errors.length >= options.maxErrors) return;
      running = writeRows(planned, rows, first).then(() => options.progress?.(last));
      running.catch(() => {});
    };
    // Of rows that cannot be written together each half is tried, so that few wrong ones are found by few statements.
    const writeRows = async (planned: Plan, rows: readonly Input[], first: number): Promise<void> => {
      const failure = await tryRows(writing, planned, rows.length);
      if (failure === null) return;
      if (rows.length === 1) {
        errors.push({ row: first, error: rowError(failure, writing) });
        return;
      }
      const middle = Math.ceil(rows.length / 2);
      for (const [from, to] of [
        [0, middle],
        [middle, rows.length],
      ] as const) {
        if (errors.length >= options.maxErrors) return;
        const part = rows.slice(from, to);
        await writeRows(await planRows(writing, part), part, first + from);
      }
    };
    try {
      for await (const rows of options.rows) {
        for (const row of rows) {
          const cells = options.format === 'csv' ? readCells(collection, row, model) : row;
          batch.push(withoutGenerated(collection, cells, model));
          count++;
          size += sizeOf(row);
          if (batch.length === BATCH || size > BATCH_SIZE) await flush();
        }
        if (errors.length >= options.maxErrors) break;
      }
      await flush();
      await running;
    } finally {
      // Nothing of it may be sent behind the end of the transaction.
      await running.catch(() => {});
    }
    if (errors.length > 0) throw new ImportFailure(errors);
    return count - skipped;
  });
}

/** Texts are all that can be large; what lies deeper is counted as its parts. */
function sizeOf(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (value === null || typeof value !== 'object') return 8;
  let size = 0;
  for (const each of Object.values(value)) size += sizeOf(each);
  return size;
}

/** The plan of a batch, or why there is none. */
type Plan = PlannedWrite | Failure;

class Failure {
  readonly reason: unknown;

  constructor(reason: unknown) {
    this.reason = reason;
  }
}

function planRows({ plan }: WriteSession, rows: readonly Input[]): Promise<Plan> {
  return plan(rows).catch((error: unknown) => new Failure(error));
}

/** Answers why the rows were not written; null where they were. */
async function tryRows(
  writing: WriteSession,
  planned: Plan,
  rows: number,
  before: Conflict | null = null,
): Promise<unknown> {
  if (planned instanceof Failure) return planned.reason;
  const { session, write } = writing;
  // Sent together with the batch: what fails here fails there as well.
  const begun = session.query('savepoint batch');
  begun.catch(() => {});
  try {
    await write(planned, rows);
    // Nobody has to wait for it: it fails only with the connection, and so does what comes behind it.
    session.query('release savepoint batch').catch(() => {});
    return null;
  } catch (error) {
    await begun;
    await session.query('rollback to savepoint batch');
    if (!(error instanceof Conflict)) return error;
    if (error.isSame(before)) return error.cause;
    if (before) return serviceUnavailable('database', 'Other requests write the same items: nothing was imported');
    await advancePastTable(error.collection, session);
    return tryRows(writing, planned, rows, error);
  }
}

/** Only what is wrong with the row itself is reported as such. */
function rowError(failure: unknown, { model, access }: WriteSession): ServiceError {
  if (staleness(failure) === 'certain')
    throw serviceUnavailable('database', 'Its schema changed during the import: nothing was imported');
  const error = fromWrite(failure, namingOf(model, access));
  if (!(error instanceof ServiceError) || error.status >= 500 || error.code === 'REQUESTS_EXCEEDED') throw error;
  return error;
}
