/**
 * Imports: rows are written in batches, each one chain, all in one transaction. A batch that fails is undone and tried in parts,
 * only to learn which of its rows are wrong: then nothing of the file is kept.
 */
import { invalidPayload, ServiceError, serviceUnavailable } from '../../base/errors.js';
import { isObject, parseJson } from '../../base/exact-json.js';
import { fromWrite, staleness } from '../../base/sqlstate.js';
import { keyNames } from '../../compiler/model/item-key.js';
import type { Collection, Field, Model, Relation } from '../../compiler/model/model.js';
import { keyPayload } from '../../compiler/plan/write/key.js';
import { isMadeByDatabase } from '../../compiler/plan/write/payload-fields.js';
import type { Payload } from '../../compiler/plan/write/payload-row.js';
import type { PlannedWrite } from '../../compiler/plan/write/write.js';
import type { OnConflict } from '../../compiler/request/on-conflict.js';
import type { Input } from '../../compiler/request/parse-context.js';
import type { RequestClient } from '../../server/execute/stages.js';
import type { Writer } from '../../server/execute/writer.js';
import type { ImportTransaction } from '../../server/execute/writes/import-write.js';
import { advancePastTable } from '../../server/execute/writes/sequences.js';
import { namingOf } from '../../server/execute/writes/write-errors.js';
import type { Writes } from '../../server/execute/writes/writes.js';
import { Conflict, isConflict } from '../../server/postgres/pools/conflicts.js';
import type { ImportFormat } from './import-file.js';

/** Rows of a batch, and about how many characters they hold: one document carries all of them. */
const BATCH = 1_000;
const BATCH_SIZE = 1_048_576;

interface RowError {
  readonly row: number;
  readonly error: ServiceError;
}

/** Rows that could not be written, with their numbers. */
export class ImportFailure extends Error {
  constructor(readonly errors: readonly RowError[]) {
    super('rows could not be imported');
  }
}

interface ImportOptions {
  readonly collection: string;
  readonly rows: AsyncIterable<readonly Input[]>;
  readonly format: ImportFormat;
  readonly maxErrors: number;
  readonly onConflict?: OnConflict | null;
  readonly progress?: (rows: number) => void;
}

/** Answers how many rows were written. Nothing is kept of an attempt that meets a change of the schema: it is repeated. */
export async function importRows(
  writes: Writes,
  options: ImportOptions,
  writer: Writer,
  client: RequestClient,
): Promise<number> {
  const rows = new KeptRows(options.rows);
  const { onConflict = null } = options;
  const into = { name: options.collection, onConflict, mayRepeat: () => rows.isWhole };
  try {
    return await writes.inImport(into, { writer, client }, (transaction) =>
      new Attempt(options, transaction).run(rows.read()),
    );
  } finally {
    await rows.close();
  }
}

/** One attempt to write the whole file, in one transaction. */
class Attempt {
  readonly #writing: ImportTransaction;
  readonly #errors: RowError[] = [];
  #count = 0;
  #skipped = 0;
  #batch: Input[] = [];
  #size = 0;
  #running: Promise<void> = Promise.resolve();

  constructor(
    private readonly options: ImportOptions,
    transaction: ImportTransaction,
  ) {
    this.#writing = {
      ...transaction,
      write: async (planned, rows) => {
        const left = await transaction.write(planned, rows);
        this.#skipped += left;
        return left;
      },
    };
  }

  async run(pieces: AsyncIterable<readonly Input[]>): Promise<number> {
    const { collection, model } = this.#writing;
    try {
      for await (const rows of pieces) {
        for (const row of rows) {
          this.#count++;
          const cells = this.options.format === 'csv' ? this.#readCells(row) : row;
          this.#batch.push(withoutGenerated(collection, cells, model));
          this.#size += sizeOf(row);
          if (this.#batch.length === BATCH || this.#size > BATCH_SIZE) await this.#flush();
        }
        if (this.#isHopeless) break;
      }
      await this.#flush();
      await this.#running;
    } finally {
      // Nothing of it may be sent behind the end of the transaction.
      await this.#running.catch(() => {});
    }
    if (this.#errors.length > 0) throw new ImportFailure(this.#errors);
    return this.#count - this.#skipped;
  }

  #readCells(row: Input): Payload {
    const { collection, model } = this.#writing;
    return readCells(collection, linkedByKey(this.#writing, row, this.#count), model);
  }

  get #isHopeless(): boolean {
    return this.#errors.length >= this.options.maxErrors;
  }

  /** A batch is read and planned while the one before it is written. */
  async #flush(): Promise<void> {
    if (this.#batch.length === 0) return;
    const rows = this.#batch;
    const [first, last] = [this.#count - rows.length + 1, this.#count];
    this.#batch = [];
    this.#size = 0;
    if (this.#writing.isHooked) await this.#running;
    const planned = await planRows(this.#writing, rows);
    await this.#running;
    if (this.#isHopeless) return;
    this.#running = this.#write(planned, rows, first).then(() => this.options.progress?.(last));
    this.#running.catch(() => {});
  }

  /** Writes the rows together. If this fails, it tries each half, so a few wrong rows are found with few statements. */
  async #write(planned: Plan, rows: readonly Input[], first: number): Promise<void> {
    const failure = await tryRows(this.#writing, planned, rows.length);
    if (failure === null) return;
    if (staleness(failure) === 'certain' || isConflict(failure)) throw failure;
    if (rows.length === 1) {
      this.#errors.push({ row: first, error: rowError(failure, this.#writing) });
      return;
    }
    const middle = Math.ceil(rows.length / 2);
    for (const [from, to] of [
      [0, middle],
      [middle, rows.length],
    ] as const) {
      if (this.#isHopeless) return;
      const part = rows.slice(from, to);
      await this.#write(await planRows(this.#writing, part), part, first + from);
    }
  }
}

/** The plan of a batch, or why there is none. */
type Plan = PlannedWrite | Failure;

class Failure {
  constructor(readonly reason: unknown) {}
}

function planRows({ plan }: ImportTransaction, rows: readonly Input[]): Promise<Plan> {
  return plan(rows).catch((error: unknown) => new Failure(error));
}

/** The reason why the rows were not written, or null if they were. */
async function tryRows(
  writing: ImportTransaction,
  planned: Plan,
  rows: number,
  before: Conflict | null = null,
): Promise<unknown> {
  if (planned instanceof Failure) return planned.reason;
  const { session, write } = writing;
  // Sent together with the batch: what fails here fails there as well.
  const begun = session.query('savepoint batch');
  begun.catch(() => {});
  const dropAfterwards = session.markAfterwards();
  try {
    await write(planned, rows);
    // Not awaited: it fails only with the connection, and then the next statement fails too.
    session.query('release savepoint batch').catch(() => {});
    return null;
  } catch (error) {
    await begun;
    await session.query('rollback to savepoint batch');
    dropAfterwards();
    if (!(error instanceof Conflict)) return error;
    if (error.isSame(before)) return error.cause;
    if (before) return serviceUnavailable('database', 'Other requests write the same items: nothing was imported');
    await advancePastTable(error.collection, session);
    return tryRows(writing, planned, rows, error);
  }
}

/** Only errors of the row itself are reported as such. */
function rowError(failure: unknown, { model, access }: ImportTransaction): ServiceError {
  const error = fromWrite(failure, namingOf(model, access));
  if (!(error instanceof ServiceError) || error.status >= 500 || error.code === 'REQUESTS_EXCEEDED') throw error;
  return error;
}

/** Rows that are kept, and about how many characters they may hold. */
const MAX_ROWS = 20_000;
const MAX_SIZE = 4_194_304;

/**
 * The rows of an upload, which arrives once. The first of them are kept, so that an import whose transaction was undone can begin
 * again. After the first batch the transaction holds a lock on the table, so its schema can no longer change.
 */
class KeptRows {
  readonly #source: AsyncIterator<readonly Input[]>;
  #kept: (readonly Input[])[] = [];
  #rows = 0;
  #size = 0;

  constructor(rows: AsyncIterable<readonly Input[]>) {
    this.#source = rows[Symbol.asyncIterator]();
  }

  /** Whether all rows that have arrived can be read again. */
  get isWhole(): boolean {
    return this.#rows <= MAX_ROWS && this.#size <= MAX_SIZE;
  }

  /** From the first row on; only while they are whole. */
  async *read(): AsyncGenerator<readonly Input[]> {
    yield* [...this.#kept];
    for (;;) {
      const next = await this.#source.next();
      if (next.done) return;
      this.#keep(next.value);
      yield next.value;
    }
  }

  async close(): Promise<void> {
    await this.#source.return?.();
  }

  #keep(rows: readonly Input[]): void {
    if (!this.isWhole) return;
    this.#rows += rows.length;
    for (const row of rows) this.#size += sizeOf(row);
    if (this.isWhole) this.#kept.push(rows);
    else this.#kept = [];
  }
}

/** Texts are all that can be large; what lies deeper is counted as its parts. */
function sizeOf(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (value === null || typeof value !== 'object') return 8;
  let size = 0;
  for (const each of Object.values(value)) size += sizeOf(each);
  return size;
}

/**
 * A row with references instead of columns of related items. `author.id` links the item. Its other columns, such as `author.name`, are in the
 * file for its readers.
 */
function linkedByKey({ collection, model, access }: ImportTransaction, row: Input, number: number): Input {
  const paths = Object.keys(row).filter((path) => path.includes('.') && !collection.fields.has(path));
  if (paths.length === 0) return row;
  const linkedRow: Record<string, unknown> = { ...row };
  const readable = (access?.view(model) ?? model).collections;
  for (const path of paths) {
    const [name = '', column = ''] = path.split('.', 2);
    const field = collection.fields.get(name);
    const target = field && toOneTarget(field, model);
    if (!field || !target) continue;
    const key = keyIn(row, name, target.names);
    // A path that the caller cannot read is refused like an unknown field.
    const isReadable = readable.get(collection.name)?.fields.has(name) && readable.get(target.name)?.fields.has(column);
    if (!isReadable && (key === null || !target.names.includes(column))) continue;
    const example = `${name}.${target.names.join(`", "${name}.`)}`;
    if (key === null)
      throw invalidPayload(
        `Row ${number}: "${path}" cannot be imported without the key of the related item, such as "${example}"`,
      );
    if (row[name] !== undefined && row[name] !== key)
      throw invalidPayload(`Row ${number}: "${path}" contradicts "${name}"`);
    linkedRow[name] = key;
    delete linkedRow[path];
  }
  return linkedRow;
}

/** The collection of a relation to one item, and its columns that identify the item. */
function toOneTarget({ relation }: Field, model: Model): { name: string; names: readonly string[] } | null {
  if (relation?.kind !== 'many-to-one' && relation?.kind !== 'one-to-one') return null;
  const isOwn = relation.kind === 'many-to-one';
  const collection = model.collections.get(isOwn ? relation.oneCollection : relation.manyCollection);
  if (!collection) return null;
  return {
    name: collection.name,
    names: isOwn ? relation.columns.map(({ referenced }) => referenced) : keyNames(collection),
  };
}

function keyIn(row: Input, name: string, columns: readonly string[]): unknown {
  const parts = columns.map((column) => row[`${name}.${column}`]);
  if (parts.length === 0 || parts.includes(undefined)) return null;
  return parts.length === 1 ? parts[0] : Object.fromEntries(columns.map((column, place) => [column, parts[place]]));
}

/**
 * A row of a CSV file, which has only texts. Cells of fields whose values are lists, objects or documents hold the JSON that an export
 * wrote.
 */
function readCells(collection: Collection, row: Payload, model: Model): Payload {
  let read: Record<string, unknown> | null = null;
  for (const name of Object.keys(row)) {
    const cell = row[name];
    const field = collection.fields.get(name);
    if (!field || typeof cell !== 'string' || !holdsJson(field, cell)) continue;
    read ??= { ...row };
    read[name] = linked(field, documentOf(cell), model);
  }
  return read ?? row;
}

/** A row of a file without the values that the database makes (generated columns, `always` identities): exports hold them, but they cannot be written. */
function withoutGenerated(collection: Collection, row: Payload, model: Model): Payload {
  const isMade = (field: Field | undefined): boolean => field !== undefined && isMadeByDatabase(collection, field);
  const entries = Object.entries(row);
  if (!entries.some(([name, value]) => isNested(value) || isMade(collection.fields.get(name)))) return row;
  return Object.fromEntries(
    entries.flatMap(([name, value]): [string, unknown][] => {
      const field = collection.fields.get(name);
      if (isMade(field)) return [];
      return [[name, field?.relation && isNested(value) ? nestedWithout(field.relation, value, model) : value]];
    }),
  );
}

function nestedWithout(relation: Relation, value: unknown, model: Model): unknown {
  const isMany = relation.kind === 'one-to-many';
  if (relation.kind === 'many-to-any') return value;
  const name = relation.kind === 'many-to-one' ? relation.oneCollection : relation.manyCollection;
  const target = model.collections.get(name);
  if (!target) return value;
  const one = (entry: unknown): unknown => (isObject(entry) ? withoutGenerated(target, entry, model) : entry);
  const all = (entries: unknown): unknown => (Array.isArray(entries) ? entries.map(one) : entries);
  if (Array.isArray(value)) return all(value);
  if (!isMany || !isObject(value)) return one(value);
  return Object.fromEntries(Object.entries(value).map(([part, entries]) => [part, all(entries)]));
}

function isNested(value: unknown): boolean {
  return Array.isArray(value) || isObject(value);
}

/**
 * A list of related items links them and unlinks none: an export holds as many of them as it was asked for and as its reader may
 * see, and what it does not hold must not be lost.
 */
function linked({ relation }: Field, value: unknown, model: Model): unknown {
  if (relation?.kind !== 'one-to-many' || !Array.isArray(value)) return value;
  const target = model.collections.get(relation.manyCollection);
  // The reference to the parent is a part of the key that the parent says.
  const names = target ? keyNames(target).filter((name) => name !== relation.manyField) : [];
  const items: unknown[] = value.map((entry) => (isObject(entry) || !target ? entry : keyPayload(target, entry)));
  const isNew = (item: unknown): boolean => isObject(item) && names.some((name) => (item[name] ?? null) === null);
  return { create: items.filter(isNew), update: items.filter((item) => !isNew(item)) };
}

function holdsJson({ type, column, relation }: Field, cell: string): boolean {
  if (relation?.kind === 'one-to-one') return /^\s*\{/.test(cell);
  if (relation) return relation.kind === 'one-to-many' && /^\s*[[{]/.test(cell);
  if (type === 'json') return true;
  // PostgreSQL's own texts of composite values begin with a parenthesis, texts of arrays are not accepted.
  return column?.is_array || type === 'csv' ? /^\s*\[/.test(cell) : Boolean(column?.composite) && /^\s*\{/.test(cell);
}

/** A string that is not JSON stays a string: the field accepts or refuses it. */
function documentOf(cell: string): unknown {
  try {
    return parseJson(cell);
  } catch {
    return cell;
  }
}
