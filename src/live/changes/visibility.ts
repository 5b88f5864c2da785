/**
 * PostgreSQL sends a transaction as soon as its commit is in the log, a moment before others can see what it has done, and with
 * synchronous replication much longer. A read in between would miss it, and nothing would say so later.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { serviceUnavailable } from '../../base/errors.js';
import type { Database } from '../../postgres/pools/database.js';

/** Milliseconds between two looks. */
const FIRST_PAUSE_MS = 1;
const MAX_PAUSE_MS = 50;

/** What came before so many others is visible. */
const MAX_COMMITS = 10_000;

/** Milliseconds that reads wait for commits: a standby that does not answer may hold them back for as long as it likes. */
const MAX_WAIT_MS = 10_000;
/** Milliseconds that reads wait for a database that does not say what is visible: they may fail as well, and say so. */
const MAX_SILENCE_MS = 500;
/** Milliseconds between two looks at those that were not waited for. */
const LATE_PAUSE_MS = 1_000;

/** What somebody sees who reads at some moment. */
export interface Known {
  /** Whether that is part of what the transaction has done. */
  has(xid: number): boolean;
  /** Whether the transaction began to write later: in the log nothing behind it is known. */
  isBefore(xid: number): boolean;
}

export class CommitVisibility {
  readonly #database: Database;
  /** Not sent yet. */
  #asked: Promise<Known | null> | null = null;
  readonly #onLate: () => void;
  #commits = new Set<number>();
  /** Reads have gone on without them. */
  readonly #late = new Set<number>();
  #timer: NodeJS.Timeout | null = null;

  /** Calls back when commits have become visible that were not waited for: what was read before is not the last state. */
  constructor(database: Database, onLate: () => void) {
    this.#database = database;
    this.#onLate = onLate;
  }

  /** Null where nobody can say so. */
  async knownNow(): Promise<Known | null> {
    const snapshot = await this.#snapshot();
    return snapshot && knownIn(snapshot);
  }

  /** Those who ask in the same moment share one answer. */
  async surelyKnownNow(): Promise<Known> {
    this.#asked ??= new Promise((resolve) => {
      setImmediate(() => {
        this.#asked = null;
        resolve(this.knownNow());
      });
    });
    const known = await this.#asked;
    if (known === null) throw serviceUnavailable('database', 'It does not say what is visible');
    return known;
  }

  stop(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#late.clear();
  }

  /** The log is another one: what was committed in the former may never be visible, where another server has taken over. */
  forget(): void {
    this.#commits.clear();
    this.stop();
  }

  add(xid: number): void {
    if (this.#commits.size >= MAX_COMMITS) this.#commits = new Set([...this.#commits].slice(MAX_COMMITS / 2));
    this.#commits.add(xid);
  }

  /** Resolves when all that was added before is visible to whoever reads then; also when nobody can say so, or it takes too long. */
  async wait(): Promise<void> {
    let commits = [...this.#commits];
    const begun = performance.now();
    for (let pause = FIRST_PAUSE_MS; commits.length > 0; pause = Math.min(pause * 2, MAX_PAUSE_MS)) {
      const snapshot = await this.#snapshot();
      // The connection that was asked may be lost, and that of the reads not.
      const patience = snapshot === null ? MAX_SILENCE_MS : MAX_WAIT_MS;
      if (snapshot) for (const xid of commits) if (isVisible(xid, snapshot)) this.#commits.delete(xid);
      commits = commits.filter((xid) => this.#commits.has(xid));
      if (performance.now() - begun > patience) this.#leave(commits.splice(0));
      if (commits.length > 0) await sleep(pause);
    }
  }

  #leave(commits: readonly number[]): void {
    for (const xid of commits) {
      this.#commits.delete(xid);
      this.#late.add(xid);
    }
    this.#timer ??= setTimeout(() => void this.#lookAgain(), LATE_PAUSE_MS).unref();
  }

  async #lookAgain(): Promise<void> {
    this.#timer = null;
    const known = await this.knownNow();
    const { size } = this.#late;
    if (known) for (const xid of this.#late) if (known.has(xid)) this.#late.delete(xid);
    if (this.#late.size < size) this.#onLate();
    if (this.#late.size > 0) this.#leave([]);
  }

  async #snapshot(): Promise<Snapshot | null> {
    try {
      const [row] = await this.#database.rows<{ snapshot: string }>('select pg_current_snapshot()::text as snapshot');
      return parseSnapshot(row?.snapshot ?? '');
    } catch {
      return null;
    }
  }
}

interface Snapshot {
  /** The first number that no transaction has had. */
  readonly end: number;
  readonly running: ReadonlySet<number>;
}

/** What somebody sees who reads with this snapshot, as PostgreSQL writes it. */
export function knownBy(snapshot: string): Known {
  return knownIn(parseSnapshot(snapshot));
}

function knownIn(snapshot: Snapshot): Known {
  return { has: (xid) => isVisible(xid, snapshot), isBefore: (xid) => ((xid - snapshot.end) | 0) >= 0 };
}

function parseSnapshot(text: string): Snapshot {
  const [, end = '0', running = ''] = text.split(':');
  return { end: low(end), running: new Set(running === '' ? [] : running.split(',').map(low)) };
}

/** The log numbers transactions with 32 bits, which wrap around. */
function low(xid: string): number {
  return Number(BigInt(xid) & 0xffffffffn);
}

function isVisible(xid: number, { end, running }: Snapshot): boolean {
  return ((xid - end) | 0) < 0 && !running.has(xid);
}
