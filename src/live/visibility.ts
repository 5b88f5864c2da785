/**
 * PostgreSQL sends a transaction as soon as its commit is in the log, a moment before others can see what it has done, and with
 * synchronous replication much longer. A read in between would miss it, and nothing would say so later.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Database } from '../postgres/database.js';

/** Milliseconds between two looks. */
const FIRST_PAUSE_MS = 1;
const MAX_PAUSE_MS = 50;

/** What came before so many others is visible. */
const MAX_COMMITS = 10_000;

export class CommitVisibility {
  readonly #database: Database;
  #commits = new Set<number>();

  constructor(database: Database) {
    this.#database = database;
  }

  add(xid: number): void {
    if (this.#commits.size >= MAX_COMMITS) this.#commits = new Set([...this.#commits].slice(MAX_COMMITS / 2));
    this.#commits.add(xid);
  }

  /** Resolves when all that was added before is visible to whoever reads then; also when nobody can say so. */
  async wait(): Promise<void> {
    const commits = [...this.#commits];
    for (let pause = FIRST_PAUSE_MS; commits.length > 0; pause = Math.min(pause * 2, MAX_PAUSE_MS)) {
      const snapshot = await this.#snapshot();
      // The reads that follow will fail as well, and are tried again.
      if (snapshot === null) return;
      for (const xid of commits.splice(0))
        if (isVisible(xid, snapshot)) this.#commits.delete(xid);
        else commits.push(xid);
      if (commits.length > 0) await sleep(pause);
    }
  }

  async #snapshot(): Promise<Snapshot | null> {
    try {
      const [row] = await this.#database.rows<{ snapshot: string }>('select pg_current_snapshot()::text as snapshot');
      const [, end = '0', running = ''] = row?.snapshot.split(':') ?? [];
      return { end: low(end), running: new Set(running === '' ? [] : running.split(',').map(low)) };
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

/** The log numbers transactions with 32 bits, which wrap around. */
function low(xid: string): number {
  return Number(BigInt(xid) & 0xffffffffn);
}

function isVisible(xid: number, { end, running }: Snapshot): boolean {
  return ((xid - end) | 0) < 0 && !running.has(xid);
}
