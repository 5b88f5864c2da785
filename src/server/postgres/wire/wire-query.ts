/** Statements for a connection, and the receivers of their rows. */
import { isAboutUnsent } from '../../../base/quoted-text.js';
import type { Settings } from './connection-options.js';
import { readError } from './protocol.js';

/** A statement with its values. */
export interface BoundStatement {
  readonly text: string;
  /** Values in front of `parameters`. Many statements share the list, whose bytes are kept with it. */
  readonly leading?: readonly string[];
  readonly parameters: readonly (string | null)[];
  /** Whether the connection keeps the statement for the next time. */
  readonly prepare: boolean;
}

/** A statement to be run; gets its rows as they arrive. */
export interface WireQuery extends BoundStatement {
  /** The columns of a row: a cell, before it perhaps links, before them perhaps a number. It is null if nothing or a decoder reads them. */
  readonly columns: 1 | 2 | 3 | null;
  /** Whether it has links. */
  readonly hasLinks?: boolean;
  /** Whether it is plain text, of one statement or several, without values: it is sent alone. */
  readonly plain?: boolean;
  /** Whether it writes, and its rows show what was written: a row may be left out, which the receiver gets as number 0 without a cell. */
  readonly showsWrite?: boolean;
  /** Whether its rows must arrive: they show no write that is done by then. */
  readonly isRead?: boolean;
  /** Whether the connection rolls the transaction back if it is left failed. */
  readonly isUndone?: boolean;
  /** Whether it only changes settings for the statements after it. */
  readonly isSetting?: boolean;
  /** Where its rows are fetched batch by batch: it is sent alone, and `fetch` or `closePortal` of the connection follows. */
  readonly portal?: Portal;
  /** Takes the rows with all their columns, in place of `row`. */
  readonly decoder?: Decoder;
  /**
   * A row of a cell, or of a number and a cell, with its links. A cell of at most MAX_BORROWED_BYTES bytes may be used until what has arrived with it is read and
   * the promises that were settled meanwhile have been heard: then its memory is used again. A larger one is the receiver's.
   */
  row(number: number, cell: Buffer | null, links?: string | null): void;
  /** Once, after the last row. `unsent`: the connection could not be opened. `failed`: of the statements sent together, this one failed. */
  end(error: Error | null, unsent: boolean, failed?: boolean): void;
  /** Whether all clients have left. A function: a getter would make a hidden class for each query, and keep it alive. */
  isAbandoned?(): boolean;
}

const ignore = (): void => {};
const isWanted = (): boolean => false;

const NO_VALUES: readonly string[] = [];

/** A statement in front of `query` that sets how it is run, for the rest of its transaction. */
export function settingQuery(
  { text, leading = NO_VALUES, parameters }: Omit<BoundStatement, 'prepare'>,
  { isAbandoned = isWanted }: WireQuery,
): WireQuery {
  const prepare = true;
  return { text, leading, parameters, prepare, columns: null, isSetting: true, isAbandoned, row: ignore, end: ignore };
}

/** A statement that begins or ends a transaction. If the transaction fails, the connection rolls it back. */
export function transactionQuery(text: 'begin' | 'commit' | 'commit and chain' | 'rollback'): WireQuery {
  return {
    text,
    parameters: [],
    prepare: true,
    columns: null,
    isUndone: true,
    isSetting: true,
    row: ignore,
    end: ignore,
  };
}

interface Portal {
  /** The size of the first batch. */
  readonly maxRows: number;
  /** The batch has arrived, and there may be more. */
  suspended(): void;
}

/** Reads the bodies of messages; those that describe the columns where it wants to know them. */
export interface Decoder {
  describe?(message: Buffer, start: number): void;
  /** `owned` says that nobody else uses the memory of the message. */
  row(message: Buffer, start: number, owned: boolean): void;
}

/** Less than what is written to a client in pieces, later. */
export const MAX_BORROWED_BYTES = 65_535;

/** A cell that stays valid after the callback: small cells are copied, larger ones own their memory. */
export function copyBorrowed(cell: Buffer | null): Buffer | null {
  return cell !== null && cell.length <= MAX_BORROWED_BYTES ? Buffer.from(cell) : cell;
}

/** Statements of one transaction: they are answered in their order, and fail all or none. None at all ask for a sign of life. */
export interface SentQueries {
  readonly queries: readonly WireQuery[];
  readonly repeated: boolean;
  /** The texts that the server is to keep from now on, and how many of them it has understood: behind a failure it hears nothing. */
  readonly introduced: readonly string[];
  understood: number;
  /** The statement whose answer arrives. */
  position: number;
  /** The position of the statement that failed; -1 for none. */
  failed: number;
  /** Whether Sync was sent, behind which the server is ready for the next. */
  isSynced: boolean;
}

/**
 * The statement whose row arrives, where the row may be left out: nobody reads it, or it shows what a write in front of it has
 * done. Both are done by then, and must not be answered with a failure.
 */
export function skippableQuery(sent: SentQueries | undefined): WireQuery | null {
  const query = sent?.queries[sent.position];
  if (!query || query.decoder || query.isRead) return null;
  if (query.showsWrite) return query;
  return query.columns === null || sent.position > sent.queries.findIndex(({ isSetting }) => !isSetting) ? query : null;
}

/** Statements whose values are those of a request. Others change the schema, or run the deferred triggers of earlier statements. */
const WITH_VALUES = /^\s*(with|select|insert|update|delete|merge|explain)\b/i;

/** An ErrorResponse as an error. `unsent` says that it is about a text that the values of the failed statement do not contain. */
export function readFailure(message: Buffer, start: number, end: number, sent: SentQueries | undefined): Error {
  const error = readError(message, start, end);
  const failed = sent?.queries[sent.position];
  if (!sent || (failed && !WITH_VALUES.test(failed.text))) return error;
  // Deferred triggers run behind the last statement.
  const statements = failed ? [failed] : sent.queries.filter(({ isSetting }) => !isSetting);
  const isUnsent = isAboutUnsent(
    error,
    statements.flatMap(({ parameters }) => parameters),
  );
  return isUnsent ? Object.assign(error, { unsent: true }) : error;
}

/**
 * Settings behind a pooler that gives each transaction another session: none of them stays, so each transaction begins with them, in
 * the same round trip. Messages up to a Sync are one transaction, and a local setting holds until its end.
 */
export class TransactionSettings {
  readonly #text: string;
  readonly #parameters: readonly string[];
  /** Whether a transaction was begun that has not been ended yet. */
  #isBegun = false;

  constructor(settings: Settings) {
    const names = Object.keys(settings);
    const calls = names.map((name, position) => `pg_catalog.set_config('${name}', $${position + 1}, true)`);
    this.#text = `select ${calls.join(', ')}`;
    this.#parameters = Object.values(settings);
  }

  /** The connection is another one. */
  reset(): void {
    this.#isBegun = false;
  }

  apply(queries: readonly WireQuery[]): readonly WireQuery[] {
    const [first] = queries;
    if (first === undefined || first.text === this.#text) return queries;
    if (first.plain) {
      if (/^begin\b/.test(first.text)) {
        this.#isBegun = true;
        return [{ ...first, plain: false }, this.#settingFor(first)];
      }
      const isEnd = /^(commit|rollback)$/.test(first.text);
      if (isEnd) this.#isBegun = false;
      if (isEnd || this.#isBegun || first.text === '') return queries;
      return [this.#settingFor(first), { ...first, plain: false }];
    }
    return this.#isBegun ? queries : [this.#settingFor(first), ...queries];
  }

  #settingFor(query: WireQuery): WireQuery {
    return settingQuery({ text: this.#text, parameters: this.#parameters }, query);
  }
}
