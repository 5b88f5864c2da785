/**
 * PostgreSQL sends a transaction as soon as its commit is in the log, shortly before it is visible to others; with synchronous
 * replication, long before. A read in between would miss it, and no later message would say so.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { serviceUnavailable } from '../../base/errors.js';
import { within } from '../../base/time-limit.js';
import type { CommittedBefore, CommitVisibility, Known } from '../../server/changes/changes.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { endTransaction } from './publication.js';

/** Milliseconds between two checks of the snapshot. */
const FIRST_PAUSE_MS = 1;
const MAX_PAUSE_MS = 50;

/** Older commits are taken to be visible. */
const MAX_COMMITS = 10_000;

/** Milliseconds that reads wait for commits: a standby that does not answer may delay them without limit. */
const MAX_WAIT_MS = 10_000;
/** Milliseconds that reads wait if the database does not return a snapshot: the reads may fail as well and report that. */
const MAX_SILENCE_MS = 500;
/** Milliseconds between two checks of late commits. */
const LATE_PAUSE_MS = 1_000;
/** Milliseconds for a snapshot: a connection may be half open. */
const ANSWER_TIMEOUT_MS = 10_000;

/** Milliseconds after which the clocks are compared again. */
const CLOCK_MS = 60_000;

/** How the database's clock compares with that of `performance`. */
interface DatabaseClock {
  /** Milliseconds by which the database's clock is ahead. */
  readonly ahead: number;
  /** Milliseconds from the question to the answer: half of it is the largest error. */
  readonly error: number;
  /** When it was compared. */
  readonly at: number;
}

export class SnapshotVisibility implements CommitVisibility {
  /** A request for the snapshot that was not sent yet. */
  #asked: Promise<Known | null> | null = null;
  #commits = new Set<number>();
  /** Commits that reads have stopped waiting for. */
  readonly #late = new Set<number>();
  #timer: NodeJS.Timeout | null = null;
  #clock: DatabaseClock | null = null;

  /** Calls `onLate` when late commits become visible: earlier reads lack their changes. */
  constructor(
    private readonly database: Database,
    private readonly onLate: () => void,
  ) {}

  /** Returns null if the database does not answer. */
  async knownNow(): Promise<Known | null> {
    const snapshot = await this.#snapshot();
    return snapshot && knownIn(snapshot);
  }

  /**
   * The transactions that were committed before this call; null if the database does not answer. The snapshot is taken a little later, so
   * the time of the commit decides about those in between.
   */
  async committedBefore(): Promise<CommittedBefore | null> {
    const begun = performance.now();
    const known = await this.surelyKnownNow().catch(() => null);
    if (known === null) return null;
    // A change too many does no harm, and one too few does.
    const before = begun + (this.#clock ? this.#clock.ahead - this.#clock.error / 2 : 0);
    return { ...known, has: (xid, time) => known.has(xid) && time < before };
  }

  /** Like `knownNow`, but `running` has all open transactions: a transaction ends before the snapshot is taken. */
  async runningNow(): Promise<Known | null> {
    try {
      await within(endTransaction(this.database), ANSWER_TIMEOUT_MS);
    } catch {
      return null;
    }
    return this.knownNow();
  }

  /** Calls at the same time share one answer. */
  async surelyKnownNow(): Promise<Known> {
    this.#asked ??= new Promise((resolve) => {
      setImmediate(() => {
        this.#asked = null;
        resolve(this.knownNow());
      });
    });
    const known = await this.#asked;
    if (known === null) throw serviceUnavailable('database', 'It returned no snapshot');
    return known;
  }

  stop(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#late.clear();
  }

  /** The stream was lost. After a failover, commits of the former server may never become visible. */
  forget(): void {
    this.#commits.clear();
    this.#clock = null;
    this.stop();
  }

  add(xid: number): void {
    if (this.#commits.size >= MAX_COMMITS) this.#commits = new Set([...this.#commits].slice(MAX_COMMITS / 2));
    this.#commits.add(xid);
  }

  /** Resolves when all commits that were added before are visible; also if the database does not answer, or it takes too long. */
  async wait(): Promise<void> {
    let commits = [...this.#commits];
    const begun = performance.now();
    for (let pause = FIRST_PAUSE_MS; commits.length > 0; pause = Math.min(pause * 2, MAX_PAUSE_MS)) {
      const snapshot = await this.#snapshot();
      // This connection may be lost while those of the reads are not.
      const patience = snapshot === null ? MAX_SILENCE_MS : MAX_WAIT_MS;
      if (snapshot) for (const xid of commits) if (isVisible(xid, snapshot)) this.#commits.delete(xid);
      commits = commits.filter((xid) => this.#commits.has(xid));
      if (performance.now() - begun > patience) this.#stopWaiting(commits.splice(0));
      if (commits.length > 0) await sleep(pause);
    }
  }

  #stopWaiting(commits: readonly number[]): void {
    for (const xid of commits) {
      this.#commits.delete(xid);
      this.#late.add(xid);
    }
    this.#timer ??= setTimeout(() => void this.#checkLate(), LATE_PAUSE_MS).unref();
  }

  async #checkLate(): Promise<void> {
    this.#timer = null;
    const known = await this.knownNow();
    const { size } = this.#late;
    if (known) for (const xid of this.#late) if (known.has(xid)) this.#late.delete(xid);
    if (this.#late.size < size) this.onLate();
    if (this.#late.size > 0) this.#stopWaiting([]);
  }

  async #snapshot(): Promise<Snapshot | null> {
    const begun = performance.now();
    try {
      const [row] = await within(this.database.rows<{ snapshot: string; time: number }>(SNAPSHOT), ANSWER_TIMEOUT_MS);
      this.#setClock(begun, row?.time ?? 0);
      return parseSnapshot(row?.snapshot ?? '');
    } catch {
      return null;
    }
  }

  /** Keeps the most exact of the last comparisons. `time`: milliseconds since 1970 by the database's clock. */
  #setClock(begun: number, time: number): void {
    const at = performance.now();
    const error = at - begun;
    const isOld = this.#clock === null || at - this.#clock.at > CLOCK_MS;
    if (isOld || error <= (this.#clock?.error ?? 0)) this.#clock = { ahead: time - (begun + at) / 2, error, at };
  }
}

const SNAPSHOT =
  'select pg_current_snapshot()::text as snapshot, (extract(epoch from clock_timestamp()) * 1000)::float8 as time';

interface Snapshot {
  /** The first number that no transaction has had. */
  readonly end: number;
  readonly running: ReadonlySet<number>;
}

/** `snapshot`: as PostgreSQL writes it. */
export function knownBy(snapshot: string): Known {
  return knownIn(parseSnapshot(snapshot));
}

function knownIn(snapshot: Snapshot): Known {
  const { end, running } = snapshot;
  return { has: (xid) => isVisible(xid, snapshot), isBefore: (xid) => ((xid - end) | 0) >= 0, running };
}

function parseSnapshot(text: string): Snapshot {
  const [, end = '0', running = ''] = text.split(':');
  return { end: low(end), running: new Set(running === '' ? [] : running.split(',').map(low)) };
}

/** Transaction numbers in the log have 32 bits and wrap around. */
function low(xid: string): number {
  return Number(BigInt(xid) & 0xffffffffn);
}

function isVisible(xid: number, { end, running }: Snapshot): boolean {
  return ((xid - end) | 0) < 0 && !running.has(xid);
}
