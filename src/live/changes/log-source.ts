/** Changes as PostgreSQL's log has them, read through slots that end with their connections. */

import { logObstacle, publish, type TableName, unpublish } from '../../postgres/changes/publication.js';
import type { Database } from '../../postgres/pools/database.js';
import type { ChangeSource, LogFigures, Opened, SourceEvents, Sources } from './change-source.js';
import { LogFeed } from './log-feed.js';
import { LogWatch } from './log-watch.js';

export class LogSource implements ChangeSource {
  readonly kind = 'logical';
  readonly about = 'changes are read from the log';
  readonly #database: Database;
  readonly #tables: () => readonly TableName[];
  readonly #maxWal: number;
  /** Of the attempt that runs, or of the last one. */
  #feed: LogFeed | null = null;
  #watch: LogWatch | null = null;
  /** Feeds whose slots may still exist. */
  readonly #feeds = new Set<LogFeed>();
  /** Slots that were replaced before that. */
  #replacements = 0;

  /** `maxWal`: bytes of log that PostgreSQL may keep for it. */
  constructor(database: Database, tables: () => readonly TableName[], maxWal: number) {
    this.#database = database;
    this.#tables = tables;
    this.#maxWal = maxWal;
  }

  obstacle(): Promise<string | null> {
    return logObstacle(this.#database);
  }

  async open(events: SourceEvents, stopping: AbortSignal): Promise<Opened> {
    await publish(this.#database, this.#tables());
    this.#replacements += this.#feed?.replacements ?? 0;
    const feed = new LogFeed(this.#database, { ...events, lost: (error) => this.#lost(events, error) }, this.#maxWal);
    this.#feed = feed;
    this.#feeds.add(feed);
    try {
      if (stopping.aborted) throw new Error('the stream was closed');
      const position = await feed.open();
      // Whoever read the log last may have dropped the publication before the slot was there.
      const { sources, isChanged, membership } = await publish(this.#database, this.#tables());
      if (isChanged) throw new Error('the publication was changed while the log was opened');
      if (stopping.aborted) throw new Error('the stream was closed');
      // Nobody would stop the watch of a feed that was lost before.
      if (feed.isOver) throw new Error('the connection was lost while the log was opened');
      this.#watch = new LogWatch(this.#database, feed, membership, () => events.tablesChanged());
      return { sources, position };
    } catch (error) {
      await this.#end(feed);
      throw error;
    }
  }

  async refresh(): Promise<Sources> {
    const { sources, membership } = await publish(this.#database, this.#tables());
    await this.#watch?.expect(membership);
    return sources;
  }

  get figures(): LogFigures {
    return {
      walKept: this.#watch ? (this.#feed?.kept ?? 0) : 0,
      walLimit: this.#maxWal,
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

  /** The publication goes with the last stream. */
  async release(): Promise<void> {
    // Its own slots would be taken for those of another reader.
    await Promise.all([...this.#feeds].map((feed) => this.#end(feed)));
    await unpublish(this.#database).catch(() => {});
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
