/**
 * What anybody changes in the database, transaction by transaction, in the first of the ways that is possible. A stream that is lost
 * is opened again; what happened meanwhile is not known, so then everything may have changed.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { asError } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import { within } from '../../postgres/wire/time-limit.js';
import type { ChangeReceiver, ChangeSource, LogFigures, SourceEvents, Sources, Transaction } from './change-source.js';

/** Milliseconds between attempts: the first pause, which is doubled each time, and the longest. */
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 5_000;

/** Milliseconds that an attempt may take to end. */
const CLOSE_TIMEOUT_MS = 5_000;

export interface ChangeListener extends ChangeReceiver {
  /** From now on every change is told; what there was before may have been missed. */
  resynced(sources: Sources): void;
  /** Changes are not told any more, until it is resynced. */
  lost(): void;
}

/** `closed`: nobody wants to know. */
export type StreamState = 'closed' | 'opening' | 'open' | 'lost';

/** The way that is possible, and why those before it are not; null where none is. */
interface Choice {
  readonly source: ChangeSource | null;
  readonly obstacles: string;
}

export class ChangeStream {
  readonly #ways: readonly ChangeSource[];
  readonly #listener: ChangeListener;
  readonly #observe: Observer;
  /** Of the attempt that runs, or of the last one. */
  #choice: Choice = { source: null, obstacles: '' };
  #running: Promise<void> = Promise.resolve();
  #stopping: AbortController | null = null;
  #closing: Promise<void> = Promise.resolve();
  #refreshing: Promise<void> = Promise.resolve();
  #isRefreshAwaited = false;
  /** How often the tables that are served may have become others. */
  #tablesChanges = 0;
  state: StreamState = 'closed';
  /** Why it could not be opened, or was lost. */
  failure: Error | null = null;
  /** In the log, in bytes: all that was committed before it has been told. */
  position = 0;

  constructor(ways: readonly ChangeSource[], listener: ChangeListener, observe: Observer) {
    this.#ways = ways;
    this.#listener = listener;
    this.#observe = observe;
  }

  /** Why there is none; null where there is one. */
  async obstacle(): Promise<string | null> {
    const { source, obstacles } = this.state === 'open' ? this.#choice : await this.#choose();
    return source ? null : obstacles;
  }

  /** Which way changes come, and why not another; while it is closed, which way they would. */
  async describe(): Promise<string> {
    const { source, obstacles } = this.state === 'open' ? this.#choice : await this.#choose();
    if (source === null) return `off: ${obstacles}`;
    const about = this.state === 'open' ? source.about : 'opened by the first subscription';
    return `${source.kind}: ${about}${obstacles === '' ? '' : ` (${obstacles})`}`;
  }

  /** Of the log that is read; null if changes come another way. */
  get figures(): LogFigures | null {
    return this.#choice.source?.figures ?? null;
  }

  open(): void {
    if (this.#stopping !== null) return;
    this.#stopping = new AbortController();
    this.state = 'opening';
    const { signal } = this.#stopping;
    // Each attempt holds a connection: the former one has to let go of its own.
    this.#running = this.#running.then(() => this.#run(signal));
  }

  /** Whoever closes it a second time waits for the same end. */
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

  /** The tables that are served may be others. */
  tablesChanged(): void {
    this.#tablesChanges++;
    const { source } = this.#choice;
    // One that waits will look at all that there is by then.
    if (this.state !== 'open' || source === null || this.#isRefreshAwaited) return;
    this.#isRefreshAwaited = true;
    this.#refreshing = this.#refreshing.then(async () => {
      this.#isRefreshAwaited = false;
      if (this.state !== 'open' || this.#choice.source !== source) return;
      try {
        const sources = await source.refresh();
        if (this.state === 'open' && this.#choice.source === source) this.#listener.resynced(sources);
      } catch (error) {
        source.fail(asError(error));
      }
    });
  }

  async #choose(): Promise<Choice> {
    const obstacles: string[] = [];
    for (const source of this.#ways) {
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
      if (wasOpen) this.#listener.lost();
      if (wasOpen || attempt === 0) this.#observe({ kind: 'changes-lost', error: this.failure });
      const pause = Math.min(FIRST_PAUSE_MS * 2 ** attempt, MAX_PAUSE_MS) * (0.5 + Math.random() / 2);
      await sleep(pause, null, { signal: stopping, ref: false }).catch(() => {});
    }
  }

  /** Resolves when it is open, with a promise of why it is not any more. */
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
      wanted: (table) => this.#listener.wanted(table),
      committed: (transaction) => this.#take(transaction),
      tablesChanged: () => this.tablesChanged(),
      lost: lose,
    };
    const tablesChanges = this.#tablesChanges;
    const { sources, position } = await source.open(events, stopping);
    if (stopping.aborted) {
      await source.close();
      throw new Error('the stream was closed');
    }
    // A server that has taken over from another may not have come as far.
    this.position = position;
    this.state = 'open';
    this.failure = null;
    this.#listener.resynced(sources);
    // It may have looked at them before that.
    if (this.#tablesChanges !== tablesChanges) this.tablesChanged();
    return { lost };
  }

  #take(transaction: Transaction): void {
    this.position = Math.max(this.position, transaction.position);
    // Before all begin anew, changes since the last one are missing: what is told now would not fit to what was told before.
    this.#listener.committed(this.state === 'open' ? transaction : { ...transaction, changes: [] });
  }
}
