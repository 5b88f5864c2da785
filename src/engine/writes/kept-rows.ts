/**
 * The rows of an upload, which arrives once. The first of them are kept, so that an import whose transaction was undone can begin
 * again. After the first batch the transaction holds a lock that keeps other sessions from changing the table, so the first rows are enough.
 */
import type { Input } from '../../request/parse-context.js';

/** Rows that are kept, and about how many characters they may hold. */
const MAX_ROWS = 20_000;
const MAX_SIZE = 4_194_304;

export class KeptRows {
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
export function sizeOf(value: unknown): number {
  if (typeof value === 'string') return value.length;
  if (value === null || typeof value !== 'object') return 8;
  let size = 0;
  for (const each of Object.values(value)) size += sizeOf(each);
  return size;
}
