/**
 * Asks the database from time to time for what a log stream does not report: how far the log has been written, and whether the
 * publications still have the tables that they had. PostgreSQL sends nothing when a table leaves a publication.
 */
import type { Database } from '../postgres/database.js';
import { positionOf } from '../postgres/pgoutput.js';
import { type Membership, readLogState, readMembership } from '../postgres/publication.js';
import { within } from '../postgres/time-limit.js';
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
  #membership: Membership;
  #timer: NodeJS.Timeout | null = null;
  #isAsking = false;
  /** Ends of the log that have not arrived yet, and when they were found. */
  #marks: { readonly position: number; readonly at: number }[] = [];

  constructor(database: Database, feed: LogFeed, membership: Membership, onTablesChanged: () => void) {
    this.#database = database;
    this.#feed = feed;
    this.#membership = membership;
    this.#onTablesChanged = onTablesChanged;
    this.#timer = setInterval(() => void this.#ask(), INTERVAL_MS).unref();
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** The publications are known to be as they are now. */
  expect(membership: Membership): void {
    this.#membership = membership;
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
    try {
      const state = await within(readLogState(this.#database), TIMEOUT_MS);
      const end = positionOf(state.end);
      this.#feed.end = end;
      if (this.lagMs === 0 || end > (this.#marks.at(-1)?.position ?? 0))
        this.#marks.push({ position: end, at: performance.now() });
      this.#feed.ask();
      if (state.digest !== this.#membership.digest) await this.#compare();
    } catch {
      // The next answer counts. A database that is lost takes the stream with it.
    } finally {
      this.#isAsking = false;
    }
  }

  /** Tables that others have added are no reason to begin again. */
  async #compare(): Promise<void> {
    const expected = this.#membership;
    const found = await within(readMembership(this.#database), TIMEOUT_MS);
    if (this.#timer === null || this.#membership !== expected) return;
    this.#membership = found;
    for (const member of expected.members)
      if (!found.members.has(member)) {
        this.#onTablesChanged();
        return;
      }
  }
}
