/**
 * Asks the database from time to time for what a log stream does not report: how far the log has been written, and whether the
 * publications still have the tables that they had. PostgreSQL sends nothing when a table leaves a publication.
 */

import { positionOf } from '../../postgres/changes/pgoutput.js';
import { type LogState, type Membership, readLogState, readMembership } from '../../postgres/changes/publication.js';
import type { Database } from '../../postgres/pools/database.js';
import { within } from '../../postgres/wire/time-limit.js';
import type { LogFeed } from './log-feed.js';

/** Milliseconds between two questions, and for an answer. */
const INTERVAL_MS = 3_000;
const TIMEOUT_MS = 10_000;

/** Bytes: the end of the log may be in the middle of a record, which the server sends later. */
const TOLERANCE = 65_536;

export class LogWatch {
  readonly #database: Database;
  readonly #feed: LogFeed;
  readonly #onTablesChanged: () => void;
  /** As the stream has it since it was opened or brought in step. */
  #membership: Membership;
  /** The digest of the publications that were checked last: what is missing is reported once. */
  #checked: string;
  /**
   * Transactions that were open when a table was added to a publication. PostgreSQL does not send what they wrote to it before, so
   * everything is read again after each of them.
   */
  #older: ReadonlySet<string> = new Set();
  #timer: NodeJS.Timeout | null = null;
  #isAsking = false;
  /** Ends of the log that have not arrived yet, and when they were found. */
  #marks: { readonly position: number; readonly at: number }[] = [];

  constructor(database: Database, feed: LogFeed, membership: Membership, onTablesChanged: () => void) {
    this.#database = database;
    this.#feed = feed;
    this.#membership = membership;
    this.#checked = membership.digest;
    this.#onTablesChanged = onTablesChanged;
    this.#timer = setInterval(() => void this.#ask(), INTERVAL_MS).unref();
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** The stream was brought in step with the publications. To be called before everything is read again. */
  async expect(membership: Membership): Promise<void> {
    if (membership.digest === this.#membership.digest) return;
    const { running } = await within(readLogState(this.#database), TIMEOUT_MS);
    this.#older = running;
    this.#membership = membership;
    this.#checked = membership.digest;
  }

  /** Milliseconds that the stream is behind the log. */
  get lagMs(): number {
    const now = performance.now();
    const { received, arrivingSince } = this.#feed;
    while (this.#marks[0] && this.#marks[0].position - TOLERANCE <= received) this.#marks.shift();
    const [oldest] = this.#marks;
    return now - Math.min(oldest?.at ?? now, arrivingSince ?? now);
  }

  async #ask(): Promise<void> {
    if (this.#isAsking) return;
    this.#isAsking = true;
    const older = this.#older;
    try {
      const state = await within(readLogState(this.#database), TIMEOUT_MS);
      const end = positionOf(state.end);
      this.#feed.end = end;
      if (this.lagMs === 0 || end > (this.#marks.at(-1)?.position ?? 0))
        this.#marks.push({ position: end, at: performance.now() });
      this.#feed.ask();
      const isMissing = state.digest !== this.#checked && (await this.#isTableMissing(state));
      // What was read before they were remembered says nothing about them.
      const hasEnded = this.#older === older && this.#hasOlderEnded(state);
      if ((hasEnded || isMissing) && this.#timer !== null) this.#onTablesChanged();
    } catch {
      // The next answer counts. A database that is lost takes the stream with it.
    } finally {
      this.#isAsking = false;
    }
  }

  /** Whether one of the older transactions has ended. */
  #hasOlderEnded({ running }: LogState): boolean {
    const left = [...this.#older].filter((xid) => running.has(xid));
    const hasEnded = left.length < this.#older.size;
    this.#older = new Set(left);
    return hasEnded;
  }

  /** Tables that others have added are no reason to begin again. */
  async #isTableMissing({ digest }: LogState): Promise<boolean> {
    const expected = this.#membership;
    const found = await within(readMembership(this.#database), TIMEOUT_MS);
    if (this.#membership !== expected) return false;
    this.#checked = digest;
    return [...expected.members].some((member) => !found.members.has(member));
  }
}
