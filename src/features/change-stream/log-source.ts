/**
 * Changes from PostgreSQL's log, as one sequence of transactions that is read through one slot after the other. A slot does not advance
 * (`slot-stream.ts`), so it is replaced while the former one goes on: a second stream starts once the first has passed its starting point.
 * From then on both send the same transactions in the same order. Each is passed on from the stream that has it first, and the other copy
 * is dropped by its position. When the second has caught up, the first is closed. Subscribers notice nothing.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { asError } from '../../base/narrow.js';
import { within } from '../../base/time-limit.js';
import type { Sources, TableName, Transaction } from '../../server/changes/change-source.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { LogPosition } from '../../server/postgres/pools/sessions.js';
import { positionOf } from '../../server/postgres/wire/log-position.js';
import {
  type ChangeSource,
  type LogFigures,
  type Opened,
  type SourceEvents,
  TransactionReader,
} from './change-source.js';
import {
  endTransaction,
  type LogState,
  logObstacle,
  publish,
  readLogState,
  readMembership,
  type ServedMembership,
  unpublish,
} from './publication.js';
import { SlotStream } from './slot-stream.js';

export class LogSource implements ChangeSource {
  readonly kind = 'logical';
  readonly about = 'changes are read from the log';
  /** The feed of the attempt that runs, or of the last one. */
  #feed: LogFeed | null = null;
  #watch: LogWatch | null = null;
  /** Feeds whose slots may still exist. */
  readonly #feeds = new Set<LogFeed>();
  /** Slots that former feeds replaced. */
  #replacements = 0;

  /** `maxWal`: bytes of log that PostgreSQL may keep for it. */
  constructor(
    private readonly database: Database,
    private readonly tables: () => readonly TableName[],
    private readonly maxWal: number,
  ) {}

  obstacle(): Promise<string | null> {
    return logObstacle(this.database);
  }

  async open(events: SourceEvents, stopping: AbortSignal): Promise<Opened> {
    await publish(this.database, this.tables());
    this.#replacements += this.#feed?.replacements ?? 0;
    const feed = new LogFeed(this.database, { ...events, lost: (error) => this.#lost(events, error) }, this.maxWal);
    this.#feed = feed;
    this.#feeds.add(feed);
    try {
      if (stopping.aborted) throw new Error('the stream was closed');
      const position = await feed.open();
      // Another instance that stopped may have dropped the publication before the slot existed.
      const { sources, isChanged, membership } = await publish(this.database, this.tables());
      if (isChanged) throw new Error('the publication was changed while the log was opened');
      if (stopping.aborted) throw new Error('the stream was closed');
      // The watch of a feed that was lost already would never be stopped.
      if (feed.isOver) throw new Error('the connection was lost while the log was opened');
      this.#watch = new LogWatch(this.database, feed, membership, () => events.tablesChanged());
      return { sources, position };
    } catch (error) {
      await this.#end(feed);
      throw error;
    }
  }

  async caughtUp(): Promise<LogPosition> {
    const watch = this.#watch;
    if (watch === null) throw new Error('the log is not read');
    return watch.caughtUp();
  }

  async refresh(): Promise<Sources> {
    const { sources, membership } = await publish(this.database, this.tables());
    await this.#watch?.expect(membership);
    return sources;
  }

  get figures(): LogFigures {
    return {
      walKept: this.#watch ? (this.#feed?.kept ?? 0) : 0,
      walLimit: this.maxWal,
      lagMs: this.#watch?.lagMs ?? 0,
      replacements: this.#replacements + (this.#feed?.replacements ?? 0),
      failure: this.#watch ? (this.#feed?.failure ?? null) : null,
    };
  }

  fail(error: Error): void {
    this.#feed?.fail(error);
  }

  async close(): Promise<void> {
    await this.#feed?.close();
  }

  /** Drops the publication if no other instance reads the log. */
  async release(): Promise<void> {
    // Its own slots would look like those of another instance.
    await Promise.all([...this.#feeds].map((feed) => this.#end(feed)));
    await unpublish(this.database).catch(() => {});
  }

  #lost(events: SourceEvents, error: Error): void {
    this.#watch?.stop();
    this.#watch = null;
    if (this.#feed) void this.#end(this.#feed);
    events.lost(error);
  }

  /** Resolves when its connections are closed and its slots no longer exist. */
  async #end(feed: LogFeed): Promise<void> {
    await feed.close();
    await feed.gone();
    this.#feeds.delete(feed);
  }
}

/** Milliseconds to create the first slot, and the others: the former slot goes on while they wait for open transactions. */
const SLOT_TIMEOUT_MS = 60_000;
const REPLACEMENT_TIMEOUT_MS = 600_000;

/** Milliseconds between two checks of the slot, and between two checks of a replacement. */
const CHECK_MS = 1_000;
const PAUSE_MS = 20;

/** The part of the allowed log after which a slot is replaced, and after which an old slot is replaced. */
const REPLACED_AFTER = 1 / 16;
const REPLACED_AFTER_IF_OLD = 1 / 1_024;
const OLD_MS = 60_000;
/** The part of the server's own limit (max_slot_wal_keep_size) after which a slot is replaced. */
const SERVER_SHARE = 1 / 4;

/** Milliseconds by which a new slot may lag when it replaces the old one, and after which it does so even if it lags more. */
const CAUGHT_UP_MS = 1_000;
const MAX_CATCHING_UP_MS = 60_000;

/** Milliseconds between attempts to replace a slot: the first pause, which doubles each time, and the longest. */
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;

class LogFeed {
  #current: SlotStream;
  #next: SlotStream | null = null;
  #replacing: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;
  #isOver = false;
  /** The position in the log, in bytes, after the last transaction that was passed on. */
  #delivered = 0;
  #failures = 0;
  #retryAt = 0;
  /** Why the slot could not be replaced the last time, or null. */
  failure: Error | null = null;
  /** The end of the log, in bytes, when the server was asked last. */
  end = 0;
  replacements = 0;
  /** Streams whose slots may still exist, with their readers. */
  readonly #made = new Map<SlotStream, TransactionReader>();
  /** Callers that wait for the log to arrive up to a position, in bytes. */
  readonly #waiting = new Set<{
    readonly position: number;
    readonly resolve: () => void;
    readonly reject: (error: Error) => void;
  }>();
  /** Differs between threads, so that not all replace their slots at the same time. */
  readonly #share = 0.75 + Math.random() / 4;

  /** `maxWal`: bytes of log that a slot may keep. */
  constructor(
    private readonly database: Database,
    private readonly events: SourceEvents,
    private readonly maxWal: number,
  ) {
    this.#current = this.#make();
  }

  /** Starts the stream. Resolves with the log position after which it reports every commit. */
  async open(): Promise<number> {
    await this.#current.create(SLOT_TIMEOUT_MS);
    this.#delivered = this.end = this.#current.consistent;
    await this.#current.start();
    this.#timer = setInterval(() => this.#check(), CHECK_MS).unref();
    return this.#current.consistent;
  }

  /** Whether it was closed or lost. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** How far the log has arrived, in bytes. */
  get received(): number {
    return this.#current.received;
  }

  /** Bytes of log that PostgreSQL keeps for this feed. */
  get kept(): number {
    if (this.#current.restart === 0) return 0;
    return Math.max(0, Math.max(this.end, this.received) - this.#current.restart);
  }

  /** When the transaction began to arrive that is not complete yet, by the clock of `performance`; null if there is none. */
  get arrivingSince(): number | null {
    return this.#made.get(this.#current)?.begunAt ?? null;
  }

  /** Asks how far the server has read the log. */
  ask(): void {
    this.#current.ask();
  }

  /** The server that sends the log. */
  get server(): string {
    return this.#current.server;
  }

  /** Resolves when the log has arrived up to the position, in bytes, with false after so many milliseconds. Rejects if it ends before. */
  reach(position: number, timeoutMs: number): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting.delete(waiting);
        resolve(false);
      }, timeoutMs).unref();
      const waiting = {
        position,
        resolve: () => {
          clearTimeout(timer);
          resolve(true);
        },
        reject: (error: Error) => {
          clearTimeout(timer);
          reject(error);
        },
      };
      this.#waiting.add(waiting);
      this.#advanced();
    });
  }

  #advanced(): void {
    for (const waiting of this.#waiting) {
      if (!this.#isOver && waiting.position > this.received) continue;
      this.#waiting.delete(waiting);
      if (this.#isOver) waiting.reject(new Error('the connection was closed'));
      else waiting.resolve();
    }
  }

  /** Ends the whole feed. The next stream takes over only if a connection is lost. */
  fail(error: Error): void {
    this.#end();
    this.#current.fail(error);
  }

  /** Resolves when the connections are closed. */
  async close(): Promise<void> {
    this.#end();
    await Promise.all([...this.#made.keys()].map((stream) => stream.stop()));
    await this.#replacing;
  }

  /** Resolves when no slot of it exists. */
  async gone(): Promise<void> {
    await Promise.all([...this.#made.keys()].map((stream) => this.#forget(stream)));
  }

  async #forget(stream: SlotStream): Promise<void> {
    await stream.gone();
    this.#made.delete(stream);
  }

  #end(): void {
    this.#isOver = true;
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
    this.#advanced();
  }

  #make(): SlotStream {
    const reader = new TransactionReader(
      {
        wanted: (table) => this.events.wanted(table),
        committed: (transaction) => this.#take(transaction),
        arriving: (xid, tables) => this.events.arriving(xid, tables),
      },
      false,
    );
    const stream: SlotStream = new SlotStream(this.database, reader, {
      advanced: () => this.#advanced(),
      lost: (error) => this.#lost(stream, error),
    });
    this.#made.set(stream, reader);
    return stream;
  }

  #take(transaction: Transaction): void {
    if (transaction.position <= this.#delivered || this.#isOver) return;
    this.#delivered = transaction.position;
    this.events.committed(transaction);
  }

  #lost(stream: SlotStream, error: Error): void {
    // `#replace` notices if another stream is lost.
    if (stream !== this.#current) return;
    const next = this.#next;
    if (!this.#isOver && next?.isStarted && !next.isOver) {
      this.#adopt(next);
      return;
    }
    this.#end();
    void next?.stop();
    this.events.lost(error);
  }

  #adopt(next: SlotStream): void {
    this.#current = next;
    this.#next = null;
    this.replacements++;
    this.#advanced();
  }

  #check(): void {
    const { kept } = this;
    if (kept > this.maxWal) {
      const reason = this.failure ? `: ${this.failure.message}` : ' in time';
      this.fail(new Error(`the slot kept ${megabytes(kept)} of WAL and could not be replaced${reason}`));
    } else if (this.#replacing === null && this.#isDue(kept)) {
      this.#replacing = this.#replace().finally(() => {
        this.#replacing = null;
      });
    }
  }

  #isDue(kept: number): boolean {
    const { serverLimit, createdAt } = this.#current;
    const now = performance.now();
    if (now < this.#retryAt) return false;
    const own = this.maxWal * REPLACED_AFTER;
    const least = this.maxWal * REPLACED_AFTER_IF_OLD;
    const most = serverLimit < 0 ? own : Math.min(own, Math.max(serverLimit * SERVER_SHARE, least));
    const isOld = now - createdAt > OLD_MS / this.#share;
    return kept > most * this.#share || (isOld && kept > least);
  }

  async #replace(): Promise<void> {
    const former = this.#current;
    const next = this.#make();
    this.#next = next;
    try {
      await next.create(REPLACEMENT_TIMEOUT_MS);
      if (next.server !== former.server) throw new Error('another server has become the primary');
      former.ask();
      await this.#until(next, () => former.received >= next.consistent);
      await next.start();
      await this.#catchUp(former, next);
      if (this.#current === former) this.#adopt(next);
      this.#failures = 0;
      this.failure = null;
    } catch (error) {
      this.failure = asError(error);
      this.#retryAt = performance.now() + Math.min(FIRST_PAUSE_MS * 2 ** this.#failures++, MAX_PAUSE_MS);
    }
    this.#next = null;
    const unused = this.#current === next ? former : next;
    await unused.stop();
    await this.#forget(unused);
  }

  /** Fails if the feed ends, or the new stream is lost. */
  async #until(next: SlotStream, condition: () => boolean): Promise<void> {
    for (;;) {
      if (this.#isOver || next.isOver) throw new Error('the connection was closed');
      if (condition()) return;
      await sleep(PAUSE_MS, null, { ref: false });
    }
  }

  async #catchUp(former: SlotStream, next: SlotStream): Promise<void> {
    const begun = performance.now();
    for (;;) {
      const start = performance.now();
      const goal = former.received;
      await this.#until(next, () => former.isOver || next.received >= goal);
      const now = performance.now();
      if (former.isOver || now - start < CAUGHT_UP_MS || now - begun > MAX_CATCHING_UP_MS) return;
    }
  }
}

function megabytes(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(0)} MB`;
}

/** Milliseconds between two requests for the state of the log, and for an answer. */
const WATCH_MS = 3_000;
const ANSWER_TIMEOUT_MS = 10_000;

/** Milliseconds to wait for the log before PostgreSQL is made to flush it. */
const FLUSH_MS = 5;
const FLUSH =
  "select pg_catalog.set_config('synchronous_commit', 'local', true), pg_catalog.pg_logical_emit_message(true, 'lateral', '')";

const PAGE_BYTES = 8_192;
const PAGE_HEADERS: ReadonlySet<number> = new Set([24, 40]);

/** The end of the last record before a position. On a page that is still empty, the next record begins behind the page's header. */
function recordEnd(position: number): number {
  const onPage = position % PAGE_BYTES;
  return PAGE_HEADERS.has(onPage) ? position - onPage : position;
}

/** Bytes: the end of the log may be inside a record, which the server sends later. */
const TOLERANCE = 65_536;

/**
 * Asks the database for what a log stream does not report: how far the log has been written, and whether the publications still have
 * the tables that they had. PostgreSQL sends nothing when a table leaves a publication.
 */
class LogWatch {
  /** The digest of the publications that were checked last, so that a change is reported once. */
  #checked: string;
  /**
   * Transactions that were open when a table was added to a publication. PostgreSQL does not send their earlier changes of it, so
   * everything is read again after each of them.
   */
  #older: ReadonlySet<string> = new Set();
  #timer: NodeJS.Timeout | null = null;
  #isAsking = false;
  /** Ends of the log that have not arrived yet, and when they were found. */
  #marks: { readonly position: number; readonly at: number }[] = [];

  constructor(
    private readonly database: Database,
    private readonly feed: LogFeed,
    /** The tables of the publications when the stream was opened or refreshed. */
    private membership: ServedMembership,
    private readonly onTablesChanged: () => void,
  ) {
    this.#checked = membership.digest;
    this.#timer = setInterval(() => void this.#ask(), WATCH_MS).unref();
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** The publications were changed for the stream. Must be called before everything is read again. */
  async expect(membership: ServedMembership): Promise<void> {
    if (membership.digest === this.membership.digest) return;
    await within(endTransaction(this.database), ANSWER_TIMEOUT_MS);
    const { running } = await within(readLogState(this.database), ANSWER_TIMEOUT_MS);
    this.#older = running;
    this.membership = membership;
    this.#checked = membership.digest;
  }

  /** Milliseconds that the stream is behind the log. */
  get lagMs(): number {
    const now = performance.now();
    const { received, arrivingSince } = this.feed;
    while (this.#marks[0] && this.#marks[0].position - TOLERANCE <= received) this.#marks.shift();
    const [oldest] = this.#marks;
    return now - Math.min(oldest?.at ?? now, arrivingSince ?? now);
  }

  async #ask(): Promise<void> {
    if (this.#isAsking) return;
    this.#isAsking = true;
    const older = this.#older;
    try {
      await this.#inspect(await within(readLogState(this.database), ANSWER_TIMEOUT_MS), older);
    } catch {
      // The next attempt may succeed. If the database is lost, so is the stream.
    } finally {
      this.#isAsking = false;
    }
  }

  /** `older`: the older transactions when the state was asked for. An answer from before does not include them. */
  async #inspect(state: LogState, older: ReadonlySet<string>): Promise<void> {
    const { server } = this.feed;
    if (server !== state.server) this.feed.fail(new Error('another server has become the primary'));
    const end = positionOf(state.end);
    this.feed.end = end;
    if (this.lagMs === 0 || end > (this.#marks.at(-1)?.position ?? 0))
      this.#marks.push({ position: end, at: performance.now() });
    this.feed.ask();
    const concerns = state.digest !== this.#checked && (await this.#concernsServed(state));
    const hasEnded = this.#older === older && this.#hasOlderEnded(state);
    if ((hasEnded || concerns) && this.#timer !== null) this.onTablesChanged();
  }

  /**
   * Compares the stream with the position that the log had when the server was asked. Commits are visible before they are flushed where
   * synchronous_commit is off, and only what is flushed is sent: if it takes too long, a message flushes the log.
   */
  async caughtUp(): Promise<LogPosition> {
    const state = await within(readLogState(this.database), ANSWER_TIMEOUT_MS);
    await this.#inspect(state, this.#older);
    const position = positionOf(state.written);
    const end = recordEnd(position);
    const reached = { position, timeline: state.timeline };
    if (await this.feed.reach(end, FLUSH_MS)) return reached;
    await within(this.database.rows(FLUSH), ANSWER_TIMEOUT_MS).catch(() => {});
    this.feed.ask();
    if (await this.feed.reach(end, ANSWER_TIMEOUT_MS)) return reached;
    throw new Error('the log is behind');
  }

  /** Whether one of the older transactions has ended. */
  #hasOlderEnded({ running }: LogState): boolean {
    const left = [...this.#older].filter((xid) => running.has(xid));
    const hasEnded = left.length < this.#older.size;
    this.#older = new Set(left);
    return hasEnded;
  }

  /** Whether a table was lost, or added by another role for this service. Other tables that others add need no resync. */
  async #concernsServed({ digest }: LogState): Promise<boolean> {
    const expected = this.membership;
    const found = await within(readMembership(this.database), ANSWER_TIMEOUT_MS);
    if (this.membership !== expected) return false;
    this.#checked = digest;
    return expected.isPartial || [...expected.members].some((member) => !found.members.has(member));
  }
}
