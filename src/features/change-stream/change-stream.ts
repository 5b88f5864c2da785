/**
 * All changes of the database, transaction by transaction, from the first source that can be used. A stream that is lost is opened
 * again; changes may have been missed meanwhile, so then everything may have changed.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { asError } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import { within } from '../../base/time-limit.js';
import type { Sources, TableName, Transaction } from '../../server/changes/change-source.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { LogPosition } from '../../server/postgres/pools/sessions.js';
import type { ChangeReceiver, ChangeSource, LiveMode, LogFigures, SourceEvents } from './change-source.js';
import { LogSource } from './log-source.js';
import { TriggerSource } from './trigger-source.js';

/** Milliseconds between attempts: the first pause, which doubles each time, and the longest. */
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 5_000;

/** Milliseconds that an attempt may take to end. */
const CLOSE_TIMEOUT_MS = 5_000;

export interface StreamListener extends ChangeReceiver {
  /** From now on every change is reported; earlier ones may have been missed. */
  resynced(sources: Sources): void;
  /** Changes are not reported until it is resynced. */
  lost(): void;
  /** Until it is resynced, changes of some tables may not be reported. */
  refreshing(): void;
}

/** The sources to try, in order. `maxWal`: bytes of log that PostgreSQL may keep for a stream. */
export function changeSources(
  mode: LiveMode,
  database: Database,
  tables: () => readonly TableName[],
  maxWal: number,
): readonly ChangeSource[] {
  const triggers = (installsFirst: boolean): ChangeSource => new TriggerSource({ database, tables, installsFirst });
  if (mode === 'off') return [];
  if (mode === 'triggers') return [triggers(true)];
  const log = new LogSource(database, tables, maxWal);
  return mode === 'logical' ? [log] : [log, triggers(false)];
}

/** `closed`: there are no subscriptions. */
type StreamState = 'closed' | 'opening' | 'open' | 'lost';

interface Choice {
  /** The first source that can be used, or null if there is none. */
  readonly source: ChangeSource | null;
  /** Why the sources before it cannot be used. */
  readonly obstacles: string;
}

export class ChangeStream {
  /** The choice of the attempt that runs, or of the last one. */
  #choice: Choice = { source: null, obstacles: '' };
  #running: Promise<void> = Promise.resolve();
  #stopping: AbortController | null = null;
  #closing: Promise<void> = Promise.resolve();
  #refreshing: Promise<void> = Promise.resolve();
  #isRefreshAwaited = false;
  /** How often the tables that are served may have changed. */
  #tablesChanges = 0;
  state: StreamState = 'closed';
  /** Why the stream could not be opened or was lost, or null while it is open. */
  failure: Error | null = null;
  /** A position in the log, in bytes: everything that was committed before it has been reported. */
  position = 0;

  constructor(
    private readonly sources: readonly ChangeSource[],
    private readonly listener: StreamListener,
    private readonly observe: Observer,
  ) {}

  /** Why there is no stream, or null. */
  async obstacle(): Promise<string | null> {
    const { source, obstacles } = this.state === 'open' ? this.#choice : await this.#choose();
    return source ? null : obstacles;
  }

  /** The source that is used, or would be used by the next subscription, and why not the ones before it. */
  async describe(): Promise<string> {
    const { source, obstacles } = this.state === 'open' ? this.#choice : await this.#choose();
    if (source === null) return `off: ${obstacles}`;
    const about = this.state === 'open' ? source.about : 'opened by the first subscription';
    return `${source.kind}: ${about}${obstacles === '' ? '' : ` (${obstacles})`}`;
  }

  /** Figures of the log, or null if changes do not come from it. */
  get figures(): LogFigures | null {
    return this.#choice.source?.figures ?? null;
  }

  open(): void {
    if (this.#stopping !== null) return;
    this.#stopping = new AbortController();
    this.state = 'opening';
    const { signal } = this.#stopping;
    // Each attempt holds a connection: the former one has to release its own first.
    this.#running = this.#running.then(() => this.#run(signal));
  }

  /** A second call waits for the same end. */
  close(): Promise<void> {
    if (this.#stopping === null) return this.#closing;
    this.#stopping.abort();
    this.#stopping = null;
    this.state = 'closed';
    this.#closing = this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#choice.source?.close();
    await within(this.#running, CLOSE_TIMEOUT_MS).catch(() => {});
    if (this.#stopping === null) await this.#choice.source?.release();
  }

  /** Resolves when everything that was committed before the call has been reported, with a position up to which this holds. */
  async caughtUp(): Promise<LogPosition> {
    const { source } = this.#choice;
    if (this.state !== 'open' || source === null) throw new Error('changes are not reported');
    return source.caughtUp();
  }

  /** The tables that are served may have changed. */
  tablesChanged(): void {
    this.#tablesChanges++;
    const { source } = this.#choice;
    // A refresh that has not begun yet covers this change as well.
    if (this.state !== 'open' || source === null) return;
    this.listener.refreshing();
    if (this.#isRefreshAwaited) return;
    this.#isRefreshAwaited = true;
    this.#refreshing = this.#refreshing.then(async () => {
      this.#isRefreshAwaited = false;
      if (this.state !== 'open' || this.#choice.source !== source) return;
      const changes = this.#tablesChanges;
      try {
        const sources = await source.refresh();
        // Otherwise tables that are new are unknown to it, and the next refresh knows them.
        const isCurrent = this.#tablesChanges === changes && this.#choice.source === source;
        if (this.state === 'open' && isCurrent) this.listener.resynced(sources);
      } catch (error) {
        source.fail(asError(error));
      }
    });
  }

  async #choose(): Promise<Choice> {
    const obstacles: string[] = [];
    for (const source of this.sources) {
      const obstacle = await source.obstacle();
      if (obstacle === null) return { source, obstacles: obstacles.join('; ') };
      obstacles.push(obstacle);
    }
    return { source: null, obstacles: obstacles.join('; ') };
  }

  async #run(stopping: AbortSignal): Promise<void> {
    for (let attempt = 0; !stopping.aborted; attempt++) {
      try {
        const opened = performance.now();
        const { lost } = await this.#open(stopping);
        this.failure = await lost;
        if (performance.now() - opened > MAX_PAUSE_MS) attempt = 0;
      } catch (error) {
        this.failure = asError(error);
      }
      if (stopping.aborted) return;
      const wasOpen = this.state === 'open';
      this.state = 'lost';
      if (wasOpen) this.listener.lost();
      if (wasOpen || attempt === 0) this.observe({ kind: 'changes-lost', error: this.failure });
      const pause = Math.min(FIRST_PAUSE_MS * 2 ** attempt, MAX_PAUSE_MS) * (0.5 + Math.random() / 2);
      await sleep(pause, null, { signal: stopping, ref: false }).catch(() => {});
    }
  }

  /** Resolves when it is open, with a promise of the reason why it was lost. */
  async #open(stopping: AbortSignal): Promise<{ readonly lost: Promise<Error> }> {
    const former = this.#choice.source;
    const choice = await this.#choose();
    const { source } = choice;
    if (source === null) throw new Error(choice.obstacles);
    if (former && former !== source) await former.release();
    this.#choice = choice;
    let lose: (error: Error) => void = () => {};
    const lost = new Promise<Error>((resolve) => {
      lose = resolve;
    });
    const events: SourceEvents = {
      wanted: (table) => this.listener.wanted(table),
      committed: (transaction) => this.#take(transaction),
      arriving: (xid, tables) => this.listener.arriving(xid, tables),
      tablesChanged: () => this.tablesChanged(),
      lost: lose,
    };
    const tablesChanges = this.#tablesChanges;
    const { sources, position } = await source.open(events, stopping);
    if (stopping.aborted) {
      await source.close();
      throw new Error('the stream was closed');
    }
    // After a failover, the position may be lower than before.
    this.position = position;
    this.state = 'open';
    this.failure = null;
    this.listener.resynced(sources);
    // It may have read the tables before the change.
    if (this.#tablesChanges !== tablesChanges) this.tablesChanged();
    return { lost };
  }

  #take(transaction: Transaction): void {
    this.position = Math.max(this.position, transaction.position);
    // Before the resync, changes are missing: this one would not fit to what was sent before.
    this.listener.committed(this.state === 'open' ? transaction : { ...transaction, changes: [] });
  }
}
