/**
 * A connection that one user holds for a while, for a transaction. One that was lost refuses every further statement: on
 * another connection it would be outside of the transaction. All that it is asked to do is answered in the time that the
 * connection gives a statement.
 */

import { setImmediate as immediate } from 'node:timers/promises';
import { lockedByOthers, outcomeUnknown, ranTooLong } from '../../../base/errors.js';
import { codeOf, elementAt, succeeds } from '../../../base/narrow.js';
import { isLostAtCommit, isOfAnotherServer } from '../../../base/sqlstate.js';
import { AS_SERVICE, type CallerSettings, textFor } from '../../access/database-caller.js';
import type { Connection, ConnectionState } from '../wire/connection.js';
import { connectionLost } from '../wire/connection-errors.js';
import { positionOf } from '../wire/log-position.js';
import { CellDecoder, RowDecoder } from '../wire/row-decoder.js';
import { type BoundStatement, copyBorrowed, type WireQuery } from '../wire/wire-query.js';
import type { Pooled } from './pool.js';

/**
 * Where the last record of the log ends, in bytes. If that is the end of a page, PostgreSQL answers the place behind the header of the
 * next one, 24 bytes or 40 in a new file: no standby gets there before there is another record. Records that are not
 * on disk yet count: a trigger may let its transaction commit without waiting for the disk.
 */
export const LOG_END = `(
  select lsn, bytes operator(pg_catalog.-) case pg_catalog.mod(bytes, pg_catalog.current_setting('wal_block_size')::pg_catalog.int8)
    when 24::pg_catalog.int8 then 24::pg_catalog.int8
    when 40::pg_catalog.int8 then case pg_catalog.mod(bytes, pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size')))
      when 40::pg_catalog.int8 then 40::pg_catalog.int8 else 0::pg_catalog.int8 end
    else 0::pg_catalog.int8 end as bytes
  from (select lsn, (lsn operator(pg_catalog.-) '0/0'::pg_catalog.pg_lsn)::pg_catalog.int8 as bytes
    from (select pg_catalog.pg_current_wal_insert_lsn() as lsn) as inserted) as counted) as log_end`;

/**
 * How far the log reaches and on which timeline: behind a commit, which is in it then. Inside of the transaction it would be too
 * little. A file is named by the timeline as soon as the server is promoted, and everybody may ask for the name. Asked behind every
 * write: what can be calculated here is not left to PostgreSQL.
 */
export const POSITION = `select pg_catalog.pg_current_wal_insert_lsn()::pg_catalog.text operator(pg_catalog.||) ' '::pg_catalog.text
  operator(pg_catalog.||) pg_catalog."left"(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)
  operator(pg_catalog.||) ' '::pg_catalog.text operator(pg_catalog.||) pg_catalog.current_setting('wal_block_size') as position`;

export interface LogPosition {
  /** Bytes. */
  readonly position: number;
  /** The timeline of the server. Each promotion begins a new one. */
  readonly timeline: number;
}

export const NO_POSITION: LogPosition = { position: 0, timeline: 0 };

/** The answer to `POSITION`. At the end of a page as `LOG_END`; a new file is so rare that the next write may help. */
export function parsePosition(cell: Buffer | null): LogPosition {
  const [lsn = '', timeline = '', page] = String(cell).split(' ');
  const bytes = positionOf(lsn);
  return { position: bytes % Number(page) === 24 ? bytes - 24 : bytes, timeline: Number.parseInt(timeline, 16) };
}

export function laterOf(one: LogPosition, other: LogPosition): LogPosition {
  const difference = one.timeline - other.timeline || one.position - other.position;
  return difference < 0 ? other : one;
}

/**
 * Whether everything up to `wanted` comes before `reached`. Positions of different timelines cannot be compared: a later timeline contains
 * all commits of an earlier one that survived the failover. A position without a timeline is compared by its bytes.
 */
export function isReached(wanted: LogPosition, reached: LogPosition): boolean {
  if (wanted.timeline === reached.timeline || wanted.timeline === 0) return wanted.position <= reached.position;
  return wanted.timeline < reached.timeline;
}

/** More than any log has: 9 petabytes. */
export const UNKNOWN_POSITION = Number.MAX_SAFE_INTEGER;

export class Session implements Pooled {
  readonly #afterwards = new Set<() => Promise<void>>();
  protected readonly connection: Connection;
  #lost = false;
  /** Set when the time of `within` has passed: the request to stop the running statement. */
  #stopped: Promise<void> | null = null;
  /** The caller whose settings the open transaction has, or null. */
  #caller: CallerSettings | null = null;
  /** Whether a function of the database ran in the open transaction, which may have changed the session. */
  #isChanged = false;

  /**
   * `open` makes the connection; `onLost` is called when it is lost, `count` for each statement, `onCommitted` with the position
   * after each commit, before the request is answered.
   */
  constructor(
    open: (onclose: () => void) => Connection,
    onLost: () => void = () => {},
    protected readonly count: () => void = () => {},
    private readonly onCommitted: ((position: LogPosition | null) => void) | null = null,
  ) {
    this.connection = open(() => {
      if (this.#lost) return;
      this.#lost = true;
      onLost();
    });
  }

  get lost(): boolean {
    return this.#lost;
  }

  get state(): ConnectionState {
    return this.connection.state;
  }

  /** The process of the server, or that of a pooler; null while there is none. */
  get processId(): number | null {
    return this.connection.processId;
  }

  get isClean(): boolean {
    return this.connection.isClean;
  }

  get isDoubtful(): boolean {
    return this.connection.isDoubtful;
  }

  /** Answers whether the connection is alive. */
  probe(): Promise<boolean> {
    return succeeds(this.#run({ text: '', parameters: [], prepare: false, plain: true }));
  }

  close(grace: number): Promise<void> {
    return this.connection.close(grace);
  }

  destroy(): void {
    this.connection.destroy();
  }

  /** The rows of a statement; its parameters are texts. Without any it may be several statements. */
  async query<Row = Record<string, unknown>>(
    text: string,
    parameters: readonly (string | null)[] = [],
    { prepare = false }: { readonly prepare?: boolean } = {},
  ): Promise<Row[]> {
    const decoder = new RowDecoder<Row>();
    await this.#run({ text, parameters, prepare, plain: !prepare && parameters.length === 0, decoder });
    return decoder.rows;
  }

  /** The first cell of the last row, as the bytes PostgreSQL wrote. */
  async cell(text: string, parameters: readonly (string | null)[], prepare = true): Promise<Buffer | null> {
    const decoder = new CellDecoder();
    await this.#run({ text, parameters, prepare, decoder });
    return decoder.cell;
  }

  /**
   * Statements of an open transaction, sent together up to one Sync; answers the cell of each. Behind one that fails PostgreSQL
   * runs none, and `onFailed` gets its position.
   */
  async cells(
    statements: readonly BoundStatement[],
    onFailed: (position: number) => void,
  ): Promise<readonly (Buffer | null)[]> {
    this.#checkUsable();
    const decoders = statements.map(() => new CellDecoder());
    await new Promise<void>((resolve, reject) => {
      const queries = statements.map(({ parameters, prepare, ...statement }, position): WireQuery => {
        this.count();
        const text = textFor(statement.text, this.#caller);
        const end: WireQuery['end'] = (error, _, failed = false) => {
          if (failed) onFailed(position);
          if (error === null) resolve();
          else reject(error);
        };
        return { text, parameters, prepare, columns: null, decoder: elementAt(decoders, position), row: () => {}, end };
      });
      this.connection.run(...queries);
    });
    return decoders.map(({ cell }) => cell);
  }

  /**
   * All statements of the work have so many milliseconds together, 0 for no limit: then PostgreSQL is asked to stop the running one.
   * `isWaiting` says whether a process of the server waits for a lock: then the work fails by no fault of its own. It is also asked
   * after half of the time, because at the end the process may be between two locks, such as when others are stopped before it.
   */
  async within<Result>(
    milliseconds: number,
    isWaiting: (processId: number) => Promise<boolean>,
    work: () => Promise<Result>,
  ): Promise<Result> {
    if (milliseconds === 0) return work();
    let isLocked = false;
    const ask = async (): Promise<void> => {
      const { processId } = this.connection;
      if (processId !== null && !isLocked && (await isWaiting(processId))) isLocked = true;
    };
    const early = setTimeout(ask, milliseconds / 2);
    const timer = setTimeout(() => {
      this.#stopped = ask().then(() => this.connection.cancel());
    }, milliseconds);
    try {
      const result = await work();
      this.#checkUsable();
      return result;
    } catch (error) {
      await this.#stopped;
      throw isLocked ? lockedByOthers() : error;
    } finally {
      clearTimeout(early);
      clearTimeout(timer);
      // A request to stop that is still on its way would hit the next statement.
      await this.#stopped;
      this.#stopped = null;
    }
  }

  #checkUsable(): void {
    if (this.#lost) throw connectionLost();
    if (this.#stopped) throw ranTooLong();
  }

  /** How the statements of the transaction are planned from now on: for their values, or once for all. */
  async setPlanMode(mode: 'force_custom_plan' | 'force_generic_plan'): Promise<void> {
    await this.cell("select pg_catalog.set_config('plan_cache_mode', $1, true)", [mode]);
  }

  /** From now on the transaction has these settings of its caller. Without any, it stays as it is. */
  async become(settings: CallerSettings | null): Promise<void> {
    if (settings === null) return;
    await this.cell(settings.text, [...settings.leading, ...settings.parameters]);
    this.#caller = settings;
  }

  /** Runs statements of the service itself in the transaction of a caller, whose database role may not use the service's tables. */
  async asService<Result>(work: () => Promise<Result>): Promise<Result> {
    const caller = this.#caller;
    if (!caller?.role) return work();
    this.#caller = null;
    try {
      await this.cell(AS_SERVICE, []);
      return await work();
    } finally {
      this.#caller = caller;
      // A transaction that has failed is undone, or rolled back to a savepoint at which it had the role of the caller.
      if (!this.#lost && !this.connection.hasFailed) await this.become(caller);
    }
  }

  /** Runs statements of a caller in a transaction of the service. In that of a caller they have its settings already. */
  async asCaller<Result>(settings: CallerSettings, work: () => Promise<Result>): Promise<Result> {
    if (this.#caller !== null) return work();
    try {
      await this.become(settings);
      return await work();
    } finally {
      this.#caller = null;
      if (settings.role && !this.#lost && !this.connection.hasFailed) await this.cell(AS_SERVICE, []);
    }
  }

  /**
   * Runs a function of the database, which may set a role or a parameter. The rest of the transaction has the role of its caller again, and the
   * session is restored at the end.
   */
  async calling<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#isChanged = true;
    const result = await work();
    await this.query('reset role');
    if (this.#caller?.role) await this.become(this.#caller);
    return result;
  }

  /** As `runPipelined`, for a function that may change the session. The session is restored in the same round trip, after the commit. */
  async callPipelined(
    statements: readonly TransactionStatement[],
    settings: CallerSettings | null,
  ): Promise<(Buffer | null)[]> {
    let isEnded = false;
    const called = this.runPipelined(statements, settings).finally(() => {
      isEnded = true;
    });
    // A statement that is sent once more ends after the session was restored.
    const isRestored = this.#restore()
      .then(() => immediate())
      .then(() => isEnded);
    try {
      return await called;
    } finally {
      if (!(await isRestored)) await this.#restore();
    }
  }

  async #restore(): Promise<void> {
    if (!this.#lost) await this.cells(this.connection.restoring, () => {}).catch(() => this.destroy());
  }

  /** A transaction whose statements are sent together, in one round trip; answers the cell of each. */
  async runPipelined(
    statements: readonly TransactionStatement[],
    settings: CallerSettings | null = null,
  ): Promise<(Buffer | null)[]> {
    const cells: (Buffer | null)[] = statements.map(() => null);
    const setting = settings && asSetting(settingOf(settings));
    const queries = statements.flatMap(({ columns = null, isOfService = false, ...statement }, position) => {
      const row = (_: number, cell: Buffer | null): void => {
        cells[position] = cell === null && statement.showsWrite ? NOT_SHOWN : copyBorrowed(cell);
      };
      if (!settings?.role || !isOfService)
        return [{ ...statement, text: textFor(statement.text, settings), columns, row }];
      const asService = asSetting({ text: AS_SERVICE, parameters: [], prepare: true });
      return [asService, { ...statement, columns, row }, ...(setting ? [setting] : [])];
    });
    await this.#runTogether(setting ? [setting, ...queries] : queries);
    return cells;
  }

  /** Runs a statement whose rows have a number and a cell. */
  runBatch(batch: BoundStatement, onRow: (number: number, cell: Buffer | null) => void): Promise<void> {
    const row = (number: number, cell: Buffer | null): void => onRow(number, copyBorrowed(cell));
    return this.#runTogether([{ ...batch, showsWrite: true, columns: 2, row }]);
  }

  #runTogether(statements: readonly Omit<WireQuery, 'end'>[]): Promise<void> {
    if (this.#lost) throw connectionLost();
    const done = new Promise<void>((resolve, reject) => {
      const queries = statements.map((each): WireQuery => {
        this.count();
        // All of them end together.
        return {
          ...each,
          end: (error, unsent) => (error === null ? resolve() : reject(outcomeUnknownError(error, unsent))),
        };
      });
      this.connection.run(...queries);
    });
    return this.onCommitted ? this.#withPosition(done) : done;
  }

  /** The end of a transaction was sent. The same round trip asks, after it, how far the log reaches. */
  async #withPosition<Result>(ended: Promise<Result>): Promise<Result> {
    let isEnded = false;
    const ask = (): Promise<LogPosition | null> => this.cell(POSITION, []).then(parsePosition, () => null);
    // A statement that is sent once more ends behind the question: then it was asked too early.
    const positionAfter = ask().then((position) => (isEnded ? position : null));
    try {
      const result = await ended;
      isEnded = true;
      this.onCommitted?.((await positionAfter) ?? (await ask()));
      return result;
    } finally {
      // The connection is free when this is answered.
      await positionAfter;
    }
  }

  /** To be done when the running transaction has been committed, before its result is returned; once, however often it is added. */
  afterwards(work: () => Promise<void>): void {
    this.#afterwards.add(work);
  }

  /** Answers what drops the work that is added from now on: for a savepoint to which the transaction is rolled back. */
  markAfterwards(): () => void {
    const kept = this.#afterwards.size;
    return () => {
      for (const work of [...this.#afterwards].slice(kept)) this.#afterwards.delete(work);
    };
  }

  /** All changes are rolled back if anything fails, the commit included. `begin` may name the kind of transaction. */
  async transaction<Result>(work: () => Promise<Result>, begin = 'begin'): Promise<Result> {
    // Sent together with the first statement of the work: one round trip less.
    const begun = this.query(begin);
    begun.catch(() => {});
    try {
      const result = await work();
      await begun;
      // PostgreSQL would take it for an order to undo all, and say that it was done.
      if (this.connection.hasFailed) throw new Error('a statement of the transaction has failed and was passed over');
      if (this.#isChanged && !this.connection.keepsSession) await this.cells(this.connection.restoring, () => {});
      const ended = this.#run({ text: 'commit', parameters: [], prepare: false, plain: true }, outcomeUnknownError);
      await (this.onCommitted ? this.#withPosition(ended) : ended);
      const afterwards = [...this.#afterwards];
      this.#afterwards.clear();
      for (const next of afterwards) await next();
      return result;
    } catch (error) {
      this.#afterwards.clear();
      await this.#undo();
      throw error;
    } finally {
      this.#caller = null;
      if (this.#isChanged && this.connection.keepsSession) await this.#restore();
      this.#isChanged = false;
    }
  }

  /** A connection whose transaction cannot be undone is of no use: to end it undoes the transaction as well. */
  async #undo(): Promise<void> {
    if (this.#lost || this.connection.isClean) return;
    await this.query('rollback').catch(() => this.destroy());
  }

  async #run(query: Omit<WireQuery, 'columns' | 'row' | 'end'>, failure: Failure = asItIs): Promise<void> {
    this.#checkUsable();
    this.count();
    await new Promise<void>((resolve, reject) => {
      this.connection.run({
        ...query,
        text: query.prepare ? textFor(query.text, this.#caller) : query.text,
        columns: null,
        row: () => {},
        end: (error, unsent) => (error === null ? resolve() : reject(failure(error, unsent))),
      });
    });
  }
}

function asSetting(statement: BoundStatement): Omit<WireQuery, 'end'> {
  return { ...statement, columns: null, isSetting: true, row: () => {} };
}

function settingOf({ text, leading, parameters }: CallerSettings): BoundStatement {
  return { text, leading, parameters, prepare: true };
}

type Failure = (error: Error, unsent: boolean) => Error;

const asItIs: Failure = (error) => error;

function isOfPooler(error: Error): boolean {
  return /^08/.test(codeOf(error)) && !('routine' in error);
}

/** For the end of a transaction: if the connection was lost, nobody knows whether it was committed. */
const outcomeUnknownError: Failure = (error, unsent) => {
  // A server that is stopped at once says so, also behind a commit; a pooler says that it has lost the server, and names no routine
  // of PostgreSQL, as a trigger does that raises the same code.
  const isLost = isOfAnotherServer(error)
    ? isLostAtCommit(error)
    : /^(CONNECTION_|57P02)/.test(codeOf(error)) || isOfPooler(error);
  return isLost && !unsent ? outcomeUnknown() : error;
};

/** The cell of a row that was written, and for which there was no memory. */
export const NOT_SHOWN = Buffer.alloc(0);

export interface TransactionStatement extends BoundStatement {
  /** Whether it writes, and its only row shows what was written. */
  readonly showsWrite?: boolean;
  /** 1 if the caller reads the cell of the row, or null if it ignores the rows. */
  readonly columns?: 1 | null;
  /** Whether it is a statement of the service itself, which does not run with the database role of the caller. */
  readonly isOfService?: boolean;
}
