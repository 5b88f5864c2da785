/**
 * The log as one sequence of transactions, read through one slot after the other. A slot does not advance (`replication.ts`), so it is
 * replaced while the former one goes on: a second stream starts once the first has passed its starting point. From then on both send
 * the same transactions in the same order, so each is passed on from the stream that has it first, and the other copy is dropped by
 * its position. When the second has caught up, the first is closed. Subscribers notice nothing.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { asError } from '../../base/narrow.js';
import { SlotStream } from '../../postgres/changes/slot-stream.js';
import type { Database } from '../../postgres/pools/database.js';
import type { SourceEvents, Transaction } from './change-source.js';
import { TransactionReader } from './transaction-reader.js';

/** Milliseconds for the first slot, and for the others: the former one goes on while they wait for open transactions. */
const SLOT_TIMEOUT_MS = 60_000;
const REPLACEMENT_TIMEOUT_MS = 600_000;

/** Milliseconds between two checks of the slot, and between two checks of a replacement. */
const CHECK_MS = 1_000;
const PAUSE_MS = 20;

/** The part of the allowed log after which a slot is replaced, and after which it is replaced if it is old as well. */
const REPLACED_AFTER = 1 / 16;
const REPLACED_AFTER_IF_OLD = 1 / 1_024;
const OLD_MS = 60_000;
/** The part of the log that PostgreSQL allows a slot. */
const SERVER_SHARE = 1 / 4;

/** Milliseconds by which a replacement may be behind, and in which it has to catch up before it is taken as it is. */
const CAUGHT_UP_MS = 1_000;
const MAX_CATCHING_UP_MS = 60_000;

/** Milliseconds between attempts to replace a slot: the first pause, which is doubled each time, and the longest. */
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;

export class LogFeed {
  readonly #database: Database;
  readonly #events: SourceEvents;
  readonly #maxWal: number;
  #current: SlotStream;
  #next: SlotStream | null = null;
  #replacing: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;
  #isOver = false;
  /** In the log, in bytes: behind the last transaction that was passed on. */
  #delivered = 0;
  #failures = 0;
  #retryAt = 0;
  /** Why the slot could not be replaced the last time, or null. */
  failure: Error | null = null;
  /** In the log, in bytes: how far the server has written when it was asked last. */
  end = 0;
  replacements = 0;
  /** Streams whose slots may still exist, with what reads them. */
  readonly #made = new Map<SlotStream, TransactionReader>();
  /** Differs between threads, so that not all replace their slots at the same time. */
  readonly #share = 0.75 + Math.random() / 4;

  /** `maxWal`: bytes of log that a slot may keep. */
  constructor(database: Database, events: SourceEvents, maxWal: number) {
    this.#database = database;
    this.#events = events;
    this.#maxWal = maxWal;
    this.#current = this.#make();
  }

  /** Resolves with the position behind which every commit is passed on. */
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

  /** Since when the transaction that arrives has been arriving, by the clock of `performance`; null if none is. */
  get arrivingSince(): number | null {
    return this.#made.get(this.#current)?.begunAt ?? null;
  }

  /** Asks how far the server has read the log. */
  ask(): void {
    this.#current.ask();
  }

  /** Ends the whole feed: the next stream takes over only from a connection that was lost by itself. */
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
  }

  #make(): SlotStream {
    const reader = new TransactionReader(
      { wanted: (table) => this.#events.wanted(table), committed: (transaction) => this.#take(transaction) },
      false,
    );
    const stream: SlotStream = new SlotStream(this.#database, reader, (error) => this.#lost(stream, error));
    this.#made.set(stream, reader);
    return stream;
  }

  #take(transaction: Transaction): void {
    if (transaction.position <= this.#delivered || this.#isOver) return;
    this.#delivered = transaction.position;
    this.#events.committed(transaction);
  }

  #lost(stream: SlotStream, error: Error): void {
    // Of the others the replacement itself takes notice.
    if (stream !== this.#current) return;
    const next = this.#next;
    if (!this.#isOver && next?.isStarted && !next.isOver) {
      this.#adopt(next);
      return;
    }
    this.#end();
    void next?.stop();
    this.#events.lost(error);
  }

  #adopt(next: SlotStream): void {
    this.#current = next;
    this.#next = null;
    this.replacements++;
  }

  #check(): void {
    const { kept } = this;
    if (kept > this.#maxWal) {
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
    const own = this.#maxWal * REPLACED_AFTER;
    const least = this.#maxWal * REPLACED_AFTER_IF_OLD;
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
