/**
 * The changes of the database in one serving thread, for all that use them: the cache of reads, live queries, the program. They share one
 * stream, which is open while one of them holds it.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { serviceUnavailable } from '../../base/errors.js';
import { asError } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import { within } from '../../base/time-limit.js';
import type { LoggedTable, Sources, Transaction } from '../../server/changes/change-source.js';
import type { ChangeEvent, ChangeListener, Changes } from '../../server/changes/changes.js';
import type { ChangesContext } from '../../server/feature/feature.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import { type Check, type Checks, HEALTH_TIMEOUT_MS } from '../../server/postgres/health.js';
import type { Database } from '../../server/postgres/pools/database.js';
import type { LiveMode, LogFigures } from './change-source.js';
import { ChangeStream, changeSources } from './change-stream.js';
import { watchChanges } from './change-watch.js';
import type { OPTIONS } from './options.js';
import { SnapshotVisibility } from './visibility.js';

interface ChangeLimits {
  /** LIVE. */
  readonly mode: LiveMode;
  /** Bytes of log that PostgreSQL may keep for a stream. */
  readonly maxWal: number;
}

/** Milliseconds after which a stream that nobody holds is closed. */
const IDLE_MS = 5_000;
/** Milliseconds to wait for the stream to open, and between two checks of it. */
const OPENING_MS = 2_000;
const OPENING_PAUSE_MS = 10;
/** Milliseconds for the slot and the publications to be dropped. */
const STOP_MS = 2_000;

export async function openChanges({
  config,
  database,
  mirror,
  observe,
}: ChangesContext<typeof OPTIONS>): Promise<Changes> {
  return new StreamedChanges(database, mirror, { mode: config.LIVE, maxWal: config.LIVE_MAX_WAL }, observe);
}

export class StreamedChanges implements Changes {
  readonly stream: ChangeStream;
  readonly visibility: SnapshotVisibility;
  readonly #listeners = new Set<ChangeListener>();
  readonly #holders = new Set<ChangeListener>();
  /** The tables below each table and view, or null until the next resync. */
  #sources: Sources | null = null;
  #idle: NodeJS.Timeout | null = null;
  #isStopped = false;

  constructor(
    database: Database,
    private readonly mirror: Mirror,
    private readonly limits: ChangeLimits,
    observe: Observer,
  ) {
    const tables = () => [...mirror.model.collections.values()].map(({ schema, table }) => ({ schema, name: table }));
    this.visibility = new SnapshotVisibility(database, () => this.#tell((listener) => listener.late?.()));
    this.stream = new ChangeStream(
      changeSources(limits.mode, database, tables, limits.maxWal),
      {
        wanted: (table) => this.#wanted(table),
        committed: (transaction) => this.#committed(transaction),
        arriving: (xid, changed) => this.#tell((listener) => listener.arriving?.(xid, changed)),
        resynced: (sources) => {
          this.#sources = sources;
          this.#tell((listener) => listener.resynced(sources));
        },
        lost: () => {
          this.#sources = null;
          this.visibility.forget();
          this.#tell((listener) => listener.lost?.());
        },
        refreshing: () => {
          this.#sources = null;
          this.#tell((listener) => listener.refreshing?.());
        },
      },
      observe,
    );
    mirror.onChange(() => this.stream.tablesChanged());
  }

  /** The listener gets what arrives from now on. */
  add(listener: ChangeListener): void {
    this.#listeners.add(listener);
    if (this.#sources !== null) listener.resynced(this.#sources);
  }

  remove(listener: ChangeListener): void {
    this.#listeners.delete(listener);
    this.release(listener);
  }

  /** Opens the stream, and keeps it open until the listener releases it. Throws if there is none. */
  async hold(listener: ChangeListener): Promise<void> {
    this.#checkRunning();
    if (this.stream.state === 'closed') await this.#checkAvailable();
    this.#holders.add(listener);
    if (this.#idle) clearTimeout(this.#idle);
    this.#idle = null;
    this.stream.open();
  }

  release(listener: ChangeListener): void {
    if (!this.#holders.delete(listener) || this.#holders.size > 0 || this.#isStopped) return;
    this.#idle ??= setTimeout(() => {
      this.#idle = null;
      void this.#close();
    }, IDLE_MS).unref();
  }

  /** Waits a short time for a stream that is held to open. Throws if there is none. */
  async opened(): Promise<void> {
    const until = performance.now() + OPENING_MS;
    while (this.stream.state === 'opening' && performance.now() < until) await sleep(OPENING_PAUSE_MS);
    if (this.stream.state !== 'open') await this.#checkAvailable();
  }

  watch(listener: (event: ChangeEvent) => void): Promise<void> {
    return watchChanges(this, this.mirror, listener);
  }

  /** The reason why no changes are reported, or null. */
  async obstacle(): Promise<string | null> {
    return this.limits.mode === 'off' ? 'LIVE is off' : this.stream.obstacle();
  }

  /** Resolves when its slot and its publications are dropped. A second call waits for the same end. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    if (this.#idle) clearTimeout(this.#idle);
    await within(this.#close(), STOP_MS).catch(() => {});
  }

  #close(): Promise<void> {
    this.#sources = null;
    this.visibility.stop();
    return this.stream.close();
  }

  async #checkAvailable(): Promise<void> {
    const obstacle = await this.obstacle();
    if (obstacle !== null) throw serviceUnavailable('live', `There are no live queries: ${obstacle}`);
    this.#checkRunning();
  }

  #checkRunning(): void {
    if (this.#isStopped) throw serviceUnavailable('live', 'The service stops');
  }

  #tell(call: (listener: ChangeListener) => void): void {
    for (const listener of this.#listeners) call(listener);
  }

  /** The columns that one of the listeners wants, or null if none wants the table. */
  #wanted(table: LoggedTable): readonly boolean[] | null {
    const wanting = [...this.#listeners].map((listener) => listener.wanted(table)).filter((wanted) => wanted !== null);
    const [first, ...others] = wanting;
    if (first === undefined || others.length === 0) return first ?? null;
    return first.map((_, position) => wanting.some((wanted) => wanted[position] === true));
  }

  #committed(transaction: Transaction): void {
    if (!transaction.isVisible) this.visibility.add(transaction.xid);
    if (transaction.changes.length > 0) this.#tell((listener) => listener.committed(transaction));
  }

  /** The part of /server/health about changes: their source, the lag, and the WAL that PostgreSQL keeps. */
  async check(): Promise<Checks> {
    let subscriptions = 0;
    for (const listener of this.#listeners) subscriptions += listener.subscriptions ?? 0;
    const found = { componentType: 'component', observedValue: subscriptions, observedUnit: 'subscriptions' };
    if (this.limits.mode === 'off') return { 'live:stream': [{ status: 'ok', ...found, output: 'off: LIVE is off' }] };
    const { state, failure, figures } = this.stream;
    if (state !== 'closed' && state !== 'open') {
      const reason = failure ? `: ${failure.message}` : '';
      const output = `live queries are polled every second until the source of changes works again${reason}`;
      return { 'live:stream': [{ status: 'degraded', ...found, output }] };
    }
    const described = await within(this.stream.describe(), HEALTH_TIMEOUT_MS).catch(asError);
    if (described instanceof Error)
      return { 'live:stream': [{ status: 'degraded', ...found, output: described.message }] };
    const ofStream: Checks = { 'live:stream': [{ status: 'ok', ...found, output: described }] };
    if (state === 'closed' || figures === null) return ofStream;
    return { ...ofStream, 'live:lag': [checkLag(figures)], 'live:wal': [checkWal(figures)] };
  }
}

/** Milliseconds behind the log from which on live answers are too late. */
const MAX_LAG_MS = 10_000;
/** The share of the allowed WAL above which the health check reports the slot: by then it should have been replaced. */
const MANY = 1 / 4;

function checkLag({ lagMs }: LogFigures): Check {
  const found = { componentType: 'component', observedValue: lagMs / 1_000, observedUnit: 's behind' };
  if (lagMs <= MAX_LAG_MS) return { status: 'ok', ...found };
  const output = 'live answers lack recent changes: a large transaction arrives, or PostgreSQL reads its log slowly';
  return { status: 'degraded', ...found, output };
}

function checkWal({ walKept, walLimit, failure }: LogFigures): Check {
  const found = { componentType: 'datastore', observedValue: walKept, observedUnit: 'bytes of WAL kept' };
  if (walKept <= walLimit * MANY && failure === null) return { status: 'ok', ...found };
  const reason = failure?.message ?? 'it waits for an open transaction, or for a large one to arrive';
  const output = `the slot could not be replaced yet: ${reason}; it is given up beyond ${walLimit} bytes (LIVE_MAX_WAL)`;
  return { status: 'degraded', ...found, output };
}
