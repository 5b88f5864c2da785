/**
 * Rows one batch at a time, through a portal, which PostgreSQL suspends after as many rows as an Execute message asked for. PostgreSQL
 * produces only what the consumer has taken, so memory stays constant. If the consumer leaves, the statement ends at once, also while
 * PostgreSQL is still at work on it.
 */

import { ranTooLong, serviceUnavailable } from '../../../base/errors.js';
import { type CallerSettings, textFor } from '../../access/database-caller.js';
import { connectionLost } from '../wire/connection-errors.js';
import { BatchMemory, type ResponseMemory } from '../wire/response-memory.js';
import { ANSWER_MARGIN_MS } from '../wire/watchdog.js';
import { type BoundStatement, type Decoder, settingQuery, type WireQuery } from '../wire/wire-query.js';
import type { Pool, Relieve } from './pool.js';
import { Session } from './sessions.js';

/** Rows of the first batch; the next ones are sized by the bytes of the last, to keep batches of wide rows small. */
const FIRST_BATCH_ROWS = 50;
const MAX_BATCH_ROWS = 4_000;
const BATCH_BYTES = 524_288;
/**
 * A batch that holds so much is passed on before the rest of its rows arrive, and the connection is not read meanwhile. Otherwise fifty rows
 * of ten megabytes would be in memory at once.
 */
const FULL_BATCH_BYTES = 2 * BATCH_BYTES;

/** The state of the portal: it has ended, it waits for the next request, or it sends and is not read because the batch is full. */
type Progress = 'ended' | 'suspended' | 'full';

interface RowStreamOptions extends BoundStatement {
  /** The settings of the caller that its transaction begins with, or null. */
  readonly settings: CallerSettings | null;
  /** The client that reads: connections are shared out fairly. */
  readonly reader: string;
  /** Milliseconds one batch may take; 0 for no limit. */
  readonly batchTimeout: number;
  /** How cells are joined, or null if each cell has to come alone. */
  readonly joined: Joining | null;
  /** Takes the cells of a batch; returns whether more are wanted. */
  readonly take: (cells: readonly Buffer[]) => Promise<boolean>;
  /** Called at the end with the time that PostgreSQL has worked, and the number of rows. */
  readonly done: (ms: number, rows: number, failed: boolean) => void;
  /** Registers a function to be called when the consumer leaves. */
  readonly onAbort: (listener: () => void) => void;
}

export async function streamRows(
  database: { readonly streams: Pool<StreamSession>; readonly responseMemory: ResponseMemory },
  options: RowStreamOptions,
): Promise<void> {
  const memory = new BatchMemory(database.responseMemory);
  await database.streams.use((session) => readAll(session, memory, options).finally(() => memory.clear()), {
    caller: options.reader,
  });
}

async function readAll(session: StreamSession, memory: BatchMemory, options: RowStreamOptions): Promise<void> {
  const { text, parameters, prepare, settings, joined } = options;
  const batch = new RowBatch(memory, joined, session);
  const work = new BatchWork(session, options.batchTimeout);
  options.onAbort(() => work.leave());
  if (work.hasLeft) return;
  let rowsSent = 0;
  let failed = false;
  // A reader that fails wants no more: the statement is ended in order.
  const failures: unknown[] = [];
  const take = (cells: readonly Buffer[]): Promise<boolean> =>
    options.take(cells).catch((error: unknown) => {
      failures.push(error);
      return false;
    });
  try {
    const statement = { text: textFor(text, settings), parameters, prepare, settings, decoder: batch };
    let progress = await work.within(() => session.execute(statement, FIRST_BATCH_ROWS));
    let rows = 1;
    for (;;) {
      if (batch.rows > 0) rows = nextBatchRows(batch);
      rowsSent += batch.rows;
      session.stalledSince = performance.now();
      const cells = batch.take();
      const isWanted = cells.length === 0 || (await session.whileOpen(take(cells)));
      session.stalledSince = null;
      memory.clear();
      if (progress === 'ended') break;
      if (!isWanted || work.hasLeft) {
        // Rows that are on their way would have to be read first.
        if (progress === 'full') session.destroy();
        else await work.within(() => session.closePortal());
        break;
      }
      progress = await work.within(progress === 'full' ? () => session.resume() : () => session.fetch(rows));
    }
  } catch (error) {
    failed = true;
    if (work.isLate) throw ranTooLong();
    if (!work.hasLeft) throw error;
  } finally {
    session.stalledSince = null;
    options.done(work.ms, rowsSent, failed);
    await work.cancelled;
  }
  if (failures.length > 0) throw failures[0];
}

function nextBatchRows({ rows, bytes }: RowBatch): number {
  return Math.max(1, Math.min(MAX_BATCH_ROWS, Math.floor((BATCH_BYTES * rows) / Math.max(bytes, 1))));
}

/** The time in which PostgreSQL works on batches, and what stops it. */
class BatchWork {
  ms = 0;
  hasLeft = false;
  isLate = false;
  /** Settles when PostgreSQL was asked to stop; null if it was not. */
  cancelled: Promise<void> | null = null;
  #isWorking = false;

  /** `timeout` in milliseconds, for one batch; 0 for none. */
  constructor(
    private readonly session: StreamSession,
    private readonly timeout: number,
  ) {}

  /** Called when the client leaves. Cancels a batch in progress. Between batches, the reading loop closes the suspended portal. */
  leave(): void {
    this.hasLeft = true;
    if (this.#isWorking) this.#cancel();
  }

  async within<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
    const { session, timeout } = this;
    const late = (): void => {
      this.isLate = true;
      this.#cancel();
    };
    // If PostgreSQL cannot be reached, the connection is closed.
    const timers =
      timeout === 0 ? [] : [setTimeout(late, timeout), setTimeout(() => session.destroy(), timeout + ANSWER_MARGIN_MS)];
    this.#isWorking = true;
    const begun = performance.now();
    try {
      return await ask();
    } finally {
      this.ms += performance.now() - begun;
      this.#isWorking = false;
      timers.forEach(clearTimeout);
    }
  }

  #cancel(): void {
    this.cancelled ??= this.session.cancel();
  }
}

interface StreamStatement extends BoundStatement {
  readonly decoder: Decoder;
  readonly settings: CallerSettings | null;
}

/** A connection whose user reads the rows of one statement batch by batch. */
export class StreamSession extends Session {
  /** Since when what was read waits for the reader; null when it does not. */
  stalledSince: number | null = null;
  #isCancelled = false;
  /** The callback for the next progress; null while nobody waits for it. */
  #settle: ((progress: Progress) => void) | null = null;
  /** The progress that was made while a full batch was passed on. */
  #made: Progress | null = null;
  /** Rejects where the statement fails, also while its portal is suspended. */
  #failure: Promise<never> = new Promise(() => {});
  #fail: (error: Error) => void = () => {};

  /** A request to cancel may arrive late, and would stop the next statement. */
  override get isClean(): boolean {
    return super.isClean && !this.#isCancelled;
  }

  /** For how many milliseconds the reader has taken nothing. */
  stalled(now: number): number {
    return this.stalledSince === null ? 0 : now - this.stalledSince;
  }

  /** Others wait for a connection, and this one waits for its reader. */
  breakOff(): void {
    const reason = 'The stream was read too slowly while others waited for a connection';
    this.refuse(serviceUnavailable('database', reason));
  }

  /** Ends the statement, and the connection, for this reason. */
  refuse(reason: Error): void {
    this.#fail(reason);
    this.connection.destroy(reason);
  }

  /** Runs the statement until it has sent `maxRows` rows, or the batch is full. */
  execute({ settings, ...statement }: StreamStatement, maxRows: number): Promise<Progress> {
    this.#failure = new Promise((_, reject) => {
      this.#fail = reject;
    });
    this.#failure.catch(() => {});
    return this.#answer(() => {
      this.count();
      const query: WireQuery = {
        ...statement,
        columns: null,
        portal: { maxRows, suspended: () => this.#progress('suspended') },
        row: () => {},
        end: (error) => {
          if (error === null) this.#progress('ended');
          else this.#fail(error);
        },
      };
      if (settings === null) this.connection.run(query);
      else this.connection.run(settingQuery(settings, query), query);
    });
  }

  /** Requests up to `maxRows` more rows. */
  fetch(maxRows: number): Promise<Progress> {
    return this.#answer(() => this.connection.fetch(maxRows));
  }

  /** Stops reading until `resume`: the batch is full. Rows that were read with the last one still belong to it. */
  full(): void {
    if (this.#settle === null) return;
    this.connection.pause();
    this.#progress('full');
  }

  /** Reads the rest of the rows that were requested. */
  resume(): Promise<Progress> {
    const made = this.#made;
    this.#made = null;
    this.connection.resume();
    return made === null ? this.#answer(() => {}) : Promise.resolve(made);
  }

  /** Ends the statement, of which no more rows are wanted. */
  async closePortal(): Promise<void> {
    await this.#answer(() => this.connection.closePortal());
  }

  /** The outcome of the work, at the latest when the statement fails or the connection is lost. */
  whileOpen<Result>(work: Promise<Result>): Promise<Result> {
    return Promise.race([work, this.#failure]);
  }

  /** Asks PostgreSQL to stop the statement; resolves when the server has received it, or cannot be reached. */
  cancel(): Promise<void> {
    this.#isCancelled = true;
    return this.connection.cancel();
  }

  #progress(progress: Progress): void {
    const settle = this.#settle;
    this.#settle = null;
    if (settle === null) this.#made = progress;
    else settle(progress);
  }

  #answer(send: () => void): Promise<Progress> {
    if (this.lost) this.#fail(connectionLost());
    const answer = new Promise<Progress>((resolve) => {
      this.#settle = resolve;
    });
    if (!this.lost) send();
    return this.whileOpen(answer);
  }
}

/** Milliseconds in which a batch, of half a megabyte at most, must be read: with more than a fair share, and with less. */
const GREEDY_LIMIT_MS = 2_000;
const MODEST_LIMIT_MS = 20_000;

/**
 * Breaks off the stream that was not read from for longest while others wait for a connection. A client that holds more than a fair
 * share of the connections must read faster than the others. As long as nobody waits, everybody may take their time. `most` is the
 * number of connections, `waitTimeout` the milliseconds that others wait for one.
 */
export function breakOffStalled(most: number, waitTimeout: number): Relieve<StreamSession> {
  const modest = Math.min(MODEST_LIMIT_MS, (waitTimeout * 2) / 3);
  return (inUse, waiting) => {
    const share = most / new Set([...inUse.values(), ...waiting]).size;
    const inUseBy = new Map<string, number>();
    for (const user of inUse.values()) inUseBy.set(user, (inUseBy.get(user) ?? 0) + 1);
    const now = performance.now();
    const late = [...inUse]
      .map(([connection, user]) => {
        const limit = (inUseBy.get(user) ?? 0) > share ? Math.min(GREEDY_LIMIT_MS, modest) : modest;
        return { connection, stalled: connection.stalled(now), limit };
      })
      .filter(({ stalled, limit }) => stalled >= limit);
    late.sort((one, other) => other.stalled - one.stalled);
    late[0]?.connection.breakOff();
  };
}

/** Pieces in which cells are joined: the first of a batch, and the largest. */
const FIRST_PIECE_BYTES = 16_384;
const MAX_PIECE_BYTES = 262_144;

/** Up to which a loop copies faster than Buffer does, which makes an object for each copy. */
const MAX_LOOPED_BYTES = 96;

/** The byte that cells may be joined by, and how many come alone before those. */
export interface Joining {
  readonly separator: number;
  readonly apart: number;
}

/** Where the rows of a batch come from. */
interface RowSource {
  /** There is no memory for a row. */
  refuse(reason: Error): void;
  /** The batch should be taken before more rows arrive. */
  full(): void;
}

/**
 * The cells of a batch of rows, each by itself or joined by a separator byte. Joined, thousands of small rows are passed to the client
 * in a few pieces.
 */
export class RowBatch implements Decoder {
  /** The rows of this batch so far. */
  rows = 0;
  bytes = 0;
  #cells: Buffer[] = [];
  /** The piece that is being filled, and how far. */
  #piece: Buffer | null = null;
  #length = 0;
  #nextPiece = FIRST_PIECE_BYTES;
  /** Rows that are still to come alone. */
  #apart: number;

  constructor(
    private readonly memory: BatchMemory,
    private readonly joining: Joining | null,
    private readonly source: RowSource,
  ) {
    this.#apart = joining?.apart ?? 0;
  }

  /** The body of a DataRow message with one cell. */
  row(message: Buffer, start: number, owned: boolean): void {
    const from = start + 6;
    const length = message.readInt32BE(start + 2);
    if (length < 0) return;
    const refused = this.memory.receive(length);
    if (refused) {
      this.source.refuse(refused);
      return;
    }
    this.rows++;
    this.bytes += length;
    if (owned || this.joining === null || this.#apart > 0) {
      if (this.#apart > 0) this.#apart--;
      this.#endPiece();
      const cell = message.subarray(from, from + length);
      this.#cells.push(owned ? cell : Buffer.from(cell));
    } else this.#join(message, from, length, this.joining.separator);
    if (this.bytes >= FULL_BATCH_BYTES) this.source.full();
  }

  /** The cells, which are the caller's from now on. */
  take(): Buffer[] {
    this.#endPiece();
    const cells = this.#cells;
    this.#cells = [];
    this.rows = 0;
    this.bytes = 0;
    this.#nextPiece = FIRST_PIECE_BYTES;
    return cells;
  }

  /** The cells that were taken are passed: their memory is free. */
  release(): void {
    this.memory.clear();
  }

  #join(message: Buffer, from: number, length: number, separator: number): void {
    if (this.#piece !== null && this.#length + 1 + length > this.#piece.length) this.#endPiece();
    if (this.#piece === null) {
      this.#piece = Buffer.allocUnsafeSlow(Math.max(this.#nextPiece, length));
      this.#nextPiece = Math.min(this.#nextPiece * 4, MAX_PIECE_BYTES);
    } else this.#piece[this.#length++] = separator;
    if (length > MAX_LOOPED_BYTES) this.#length += message.copy(this.#piece, this.#length, from, from + length);
    else {
      const piece = this.#piece;
      let to = this.#length;
      for (let at = from; at < from + length; at++) piece[to++] = message[at] as number;
      this.#length = to;
    }
  }

  #endPiece(): void {
    if (this.#piece !== null) this.#cells.push(this.#piece.subarray(0, this.#length));
    this.#piece = null;
    this.#length = 0;
  }
}
