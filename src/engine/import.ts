/**
 * Imports: rows are written in batches, each one chain, all in one transaction. A batch that fails is undone and its rows
 * are tried one by one, only to learn which of them are wrong: then nothing of the file is kept.
 */
import { ServiceError, serviceUnavailable } from '../errors.js';
import { readCells, withoutGenerated } from '../plan/file-cell.js';
import { Conflict } from '../postgres/conflicts.js';
import type { ImportFormat } from '../request/import.js';
import type { OnConflict } from '../request/on-conflict.js';
import type { Input } from '../request/parse-context.js';
import { fromWrite, staleness } from '../sqlstate.js';
import { advancePastTable } from './sequences.js';
import type { RequestClient } from './stages.js';
import { namesOf } from './write-errors.js';
import type { Writer, WriteSession } from './writer.js';
import type { Writes } from './writes.js';

/** Rows of a batch, and about how many characters they hold: one document carries all of them. */
const BATCH = 500;
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
  readonly rows: AsyncIterable<Input>;
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
      write: async (rows) => {
        const left = await write(rows);
        skipped += left;
        return left;
      },
    };
    let batch: Input[] = [];
    let size = 0;
    const flush = async (): Promise<void> => {
      if (batch.length === 0) return;
      const first = count - batch.length + 1;
      const rows = batch;
      batch = [];
      size = 0;
      const failed = await tryRows(writing, rows);
      if (failed) await findErrors(writing, rows, first, errors, options.maxErrors);
      options.progress?.(count);
    };
    for await (const row of options.rows) {
      const cells = options.format === 'csv' ? readCells(collection, row, model) : row;
      batch.push(withoutGenerated(collection, cells, model));
      count++;
      size += sizeOf(row);
      if (batch.length === BATCH || size > BATCH_SIZE) await flush();
      if (errors.length >= options.maxErrors) break;
    }
    await flush();
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

async function tryRows(
  writing: WriteSession,
  rows: readonly Input[],
  before: Conflict | null = null,
): Promise<unknown> {
  const { session, write } = writing;
  await session.query('savepoint batch');
  try {
    await write(rows);
    await session.query('release savepoint batch');
    return null;
  } catch (error) {
    await session.query('rollback to savepoint batch');
    if (!(error instanceof Conflict)) return error;
    if (error.isSame(before)) return error.cause;
    if (before) return serviceUnavailable('database', 'Others write the same items: nothing was imported');
    await advancePastTable(error.collection, session);
    return tryRows(writing, rows, error);
  }
}

async function findErrors(
  writing: WriteSession,
  rows: readonly Input[],
  first: number,
  errors: RowError[],
  most: number,
): Promise<void> {
  for (const [position, row] of rows.entries()) {
    if (errors.length >= most) return;
    const failure = await tryRows(writing, [row]);
    if (failure === null) continue;
    if (staleness(failure) === 'certain')
      throw serviceUnavailable('database', 'Its schema changed during the import: nothing was imported');
    const error = fromWrite(failure, namesOf(writing.model, writing.access));
    // Only what is wrong with the row itself is reported as such.
    if (!(error instanceof ServiceError) || error.status >= 500 || error.code === 'REQUESTS_EXCEEDED') throw error;
    errors.push({ row: first + position, error });
  }
}
