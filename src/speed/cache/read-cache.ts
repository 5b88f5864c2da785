/**
 * Reads from memory. An answer is kept until a transaction commits that may change it: the stream of changes drops it then. While the
 * stream is not known to be up to date, every read goes to PostgreSQL. In doubt an answer is not kept. See docs/decisions/read-cache.md.
 */

import { createHash } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { callerName, type Identity } from '../../server/access/identity.js';
import type { ShapeRecord, ShapeStats } from '../../server/batching/shape-stats.js';
import type { LoggedTable, Sources, Transaction } from '../../server/changes/change-source.js';
import type { ChangeListener } from '../../server/changes/changes.js';
import { dependenciesOf, type LinkValue, mayHideRows, probeKey } from '../../server/changes/dependencies.js';
import {
  DependencyIndex,
  type Dependent,
  DependentShape,
  type FoundLinks,
} from '../../server/changes/dependency-index.js';
import type { CompiledRead } from '../../server/execute/reads/compiled-read.js';
import type { KeptAnswer } from '../../server/execute/reads/kept-answer.js';
import type { BoundRead, ReadListener, ResultMemory } from '../../server/execute/reads/read-executor.js';
import { isReached, type LogPosition, NO_POSITION } from '../../server/postgres/pools/sessions.js';
import { type Attached, CacheSpace, groupOf, Kept } from './cache-space.js';
import { isTimeless, uncacheable } from './cacheable.js';
import { type CallerWrites, hashOf } from './caller-writes.js';
import { Frequencies } from './frequencies.js';
import { PendingCommits } from './pending-commits.js';
import { readHash, SeenReads } from './seen-reads.js';

interface CacheLimits {
  /** Bytes. */
  readonly size: number;
  /** Milliseconds that an answer may be older than the database. */
  readonly maxLag: number;
}

/** The reads of one statement. */
class CachedShape extends DependentShape<CacheEntry> {
  /** Depends on the statement, so that a shape that was dropped and made again has it too. */
  readonly number = hashOf(this.compiled.statement.text);
  readonly isTimeless = isTimeless(this.compiled);
  /** Answers that were dropped before they were used, since the last one that was used. */
  wasted = 0;
  /** No answers are kept before this time (`performance.now()`), because the tables change more often than they are read. */
  pausedUntil = 0;
  record: ShapeRecord | null = null;
  /** The entry whose size includes that of the compiled statement, or null if none is kept. */
  carrier: CacheEntry | null = null;

  /** About the bytes of the compiled statement, which stays as long as an answer of it does. */
  get size(): number {
    return SHAPE_BYTES + 6 * this.compiled.statement.text.length;
  }
}

const SHAPE_BYTES = 8_192;

/** Bytes of an entry besides its body and its key: objects, and its places in maps. */
const ENTRY_BYTES = 850;
/** Bytes of a value in the index of dependencies. */
const LINK_BYTES = 48;

export class CacheEntry extends Kept implements Dependent, KeptAnswer {
  readonly key: string;
  readonly probe: LinkValue | null;
  since = 0;
  found: FoundLinks | null = null;
  body: Buffer | null = null;
  hits = 0;
  isDropped = false;
  /** When it was used last, to within a second; 0 if it was not. */
  usedAt = 0;
  /** While it waits for its answer: a digest of what another read has answered meanwhile, which may be later. */
  rival: string | null = null;
  /** The read whose answer it waits for, or null before the read and after its answer. */
  reading: KeepingListener | null = null;
  /** The last of what is kept with it, or null if nothing is. */
  attached: Attached | null = null;

  constructor(
    readonly cache: ReadCache,
    readonly shape: CachedShape,
    { key, probe, group }: Pick<Dependent, 'key' | 'probe'> & Pick<Kept, 'group'>,
  ) {
    super(ENTRY_BYTES + 2 * key.length, group);
    this.key = key;
    this.probe = probe;
  }

  /** Keeps something with it, which takes memory of its own. Returns whether there is room for it. */
  attach(added: Attached): boolean {
    if (this.isDropped) return false;
    added.before = this.attached;
    if (this.attached) this.attached.after = added;
    this.attached = added;
    // The entry may have to leave for it.
    if (this.cache.hold(added, this) && !this.isDropped) return true;
    this.detach(added);
    return false;
  }

  detach(attached: Attached): void {
    const { before, after } = attached;
    if (after) after.before = before;
    else if (this.attached === attached) this.attached = before;
    if (before) before.after = after;
    attached.before = attached.after = null;
    this.cache.release(attached);
  }

  evicted(): void {
    this.cache.evictions++;
    this.cache.drop(this);
  }

  dropped(): void {
    this.isDropped = true;
    this.body = null;
    while (this.attached) {
      const { attached } = this;
      this.detach(attached);
      attached.gone();
    }
  }
}

/** The group of a caller, by the name. */
export function groupFor(caller: string): number {
  return groupOf(hashOf(caller));
}

/** After so many answers in a row that nobody used, a statement pauses: the first time so many milliseconds, at most so many. */
const MAX_WASTED = 8;
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;
/** Milliseconds between two updates of the time when an entry was used last. */
const TOUCH_MS = 1_000;

export class ReadCache implements ResultMemory, ChangeListener {
  readonly #index = new DependencyIndex<CacheEntry>();
  readonly #frequencies = new Frequencies();
  readonly #space: CacheSpace;
  /** By statement: its reads, or the reason why its answers are not kept. */
  #shapes = new WeakMap<CompiledRead, CachedShape | { readonly reason: string }>();
  readonly #seen = new SeenReads();
  /** Statements whose carrier was dropped. */
  readonly #uncarried = new Set<CachedShape>();
  /** The sources of the tables' changes, or null while no changes are reported. */
  #sources: Sources | null = null;
  readonly pending = new PendingCommits();
  /** Everything that was committed before is known, by the clock of `performance`. */
  #freshAt = Number.NEGATIVE_INFINITY;
  /** The position in the log that goes with it. */
  position = NO_POSITION;
  hits = 0;
  misses = 0;
  evictions = 0;
  invalidations = 0;
  /** Called if it must learn soon whether commits are visible. */
  onUnsettled: () => void = () => {};

  constructor(
    readonly limits: CacheLimits,
    readonly writes: CallerWrites,
    private readonly shapeStats: ShapeStats,
  ) {
    this.#space = new CacheSpace(limits.size, this.#frequencies);
  }

  /** Bytes. */
  get used(): number {
    return this.#space.used;
  }

  get entries(): number {
    return this.#index.size;
  }

  /** Changed rows that were compared with answers, and the look-ups for them. */
  get matched(): { readonly rows: number; readonly lookups: number } {
    return this.#index;
  }

  /** Milliseconds since everything that had been committed was known. */
  get lag(): number {
    return performance.now() - this.#freshAt;
  }

  /** Whether answers may be served from memory to a caller, who has seen the database at that position. */
  serves(caller: Identity, from: { readonly address: string }, seen = NO_POSITION): boolean {
    if (performance.now() - this.#freshAt > this.limits.maxLag || !isReached(seen, this.position)) return false;
    return this.writes.isQuiet || this.writes.isReported(callerName(caller, from));
  }

  /** The same if only the user is known, or null for callers without an account: their addresses are not known. */
  servesUser(user: string | null, seen: LogPosition, now: number): boolean {
    if (now - this.#freshAt > this.limits.maxLag || !isReached(seen, this.position)) return false;
    return this.writes.isQuiet || (user !== null && this.writes.isReported(user));
  }

  keyOf({ settings, parameters }: BoundRead): string {
    return JSON.stringify(settings === null ? parameters : [settings.digest, parameters]);
  }

  /** The kept answer, or null. */
  find({ compiled }: BoundRead, key: string): CacheEntry | null {
    const entry = this.#index.shapes.get(compiled)?.entries.get(key);
    if (entry === undefined || entry.body === null) return null;
    this.hit(entry, performance.now());
    return entry;
  }

  hit(entry: CacheEntry, now: number): void {
    this.hits++;
    entry.hits++;
    entry.shape.wasted = 0;
    this.#recordOf(entry.shape).addHit(now);
    this.#frequencies.used(entry);
    if (now - entry.usedAt >= TOUCH_MS) entry.usedAt = now;
  }

  /** An entry for the answer of a read that is sent to the primary after this call, or null if it is not to be kept. */
  begin(read: BoundRead, key: string, from: { readonly address: string }): CacheEntry | null {
    this.misses++;
    const { compiled, values, caller } = read;
    const shape = this.#shapeOf(compiled);
    if (!(shape instanceof CachedShape)) return null;
    const now = performance.now();
    const hash = readHash({ shape, key });
    const uses = this.#frequencies.add(hash, now);
    if (!this.#seen.comes(hash, now) || shape.entries.has(key) || now < shape.pausedUntil) return null;
    const { probe, tables, whole } = shape.dependencies;
    if (!this.pending.isSettled(whole)) return null;
    const group = groupFor(callerName(caller, from));
    if (!this.#space.admits(group, uses)) return null;
    const probed = probe && probeKey(probe, values, caller);
    const entry = new CacheEntry(this, shape, { key, probe: probed, group });
    this.#frequencies.begin(entry, uses);
    this.#index.add(shape, entry, this.pending.since(tables, this.#index.journal.end));
    return entry;
  }

  /**
   * The same read of another client that waits for PostgreSQL, or null. Both clients may get its answer: it contains every change of its
   * tables that was reported.
   */
  joinable({ compiled }: BoundRead, key: string): KeepingListener | null {
    const entry = this.#index.shapes.get(compiled)?.entries.get(key);
    if (entry === undefined || entry.rival !== null || this.#index.hasChanged(entry.shape, entry)) return null;
    // A read that everybody has left is about to be cancelled.
    return entry.reading?.aborted === true ? null : entry.reading;
  }

  /** Whether answers of the statement may be kept, now or while such a read is under way. */
  mayKeep(compiled: CompiledRead): boolean {
    const shape = this.#shapeOf(compiled);
    return shape instanceof CachedShape || shape === NOT_REPORTED;
  }

  /**
   * PostgreSQL has answered a read whose answer is not kept. It may be later than the one in memory, which would go back in time after
   * it: that one stays only if both are equal.
   */
  answered(compiled: CompiledRead, key: () => string, cell: Buffer | null): void {
    const entry = this.#index.shapes.get(compiled)?.entries.get(key());
    if (entry === undefined) return;
    if (entry.body !== null) {
      if (cell === null || !entry.body.equals(cell)) this.#drop(entry);
      return;
    }
    const rival = cell === null ? null : digestOf(cell);
    if (rival === null || (entry.rival !== null && entry.rival !== rival)) this.#drop(entry);
    else entry.rival = rival;
  }

  /** Whether links come with answers of the statement: which rows they depend on. */
  hasLinks(compiled: CompiledRead): boolean {
    const shape = this.#shapeOf(compiled);
    return shape instanceof CachedShape && shape.dependencies.places.length > 0;
  }

  /** The answer of the read, null for none, with its links. */
  keep(entry: CacheEntry, cell: Buffer | null, links?: string | null): void {
    if (this.#uncarried.size > 0) this.#handOver();
    entry.reading = null;
    if (entry.isDropped) {
      this.answered(entry.shape.compiled, () => entry.key, cell);
      return;
    }
    if (cell === null || (entry.rival !== null && entry.rival !== digestOf(cell))) {
      this.#drop(entry);
      return;
    }
    // If it stayed in memory until one of the rows changes that it asks for, that would reveal them to a caller who may not see them.
    const hidesRows = mayHideRows(entry.shape, cell);
    const values = this.#index.settle(entry.shape, entry, { links, hidesRows });
    if (values === null) {
      this.#drop(entry);
      return;
    }
    entry.size += (links?.length ?? 0) + LINK_BYTES * values;
    if (!this.#space.mayHold(entry.size + cell.length)) {
      // Its answer is too large. Other reads of the statement may be smaller, so only this one pauses.
      this.#seen.skip(entry, performance.now() + MAX_PAUSE_MS);
      this.#drop(entry);
      return;
    }
    // Small buffers would share memory, which stays as long as one of them.
    const body = Buffer.allocUnsafeSlow(cell.length);
    cell.copy(body);
    entry.body = body;
    entry.size += body.length;
    if (!this.#space.add(entry)) this.#drop(entry);
    else if (entry.shape.carrier === null) this.#carryShape(entry);
  }

  /** Why answers of the statement are not kept, or null if they are. */
  reason(compiled: CompiledRead): string | null {
    if (this.#sources === null) return 'changes are not reported at the moment';
    const shape = this.#shapeOf(compiled);
    if (!(shape instanceof CachedShape)) return shape.reason;
    return this.pending.obstacle;
  }

  /** Takes memory for something that is kept with an entry. Returns whether there is room for it. */
  hold(kept: Kept, entry: CacheEntry): boolean {
    this.#frequencies.begin(kept, this.#frequencies.usesOf(entry));
    return this.#space.add(kept);
  }

  release(kept: Kept): void {
    this.#space.remove(kept);
  }

  /** It is used once more. */
  touch(kept: Kept): void {
    this.#frequencies.used(kept);
  }

  drop(entry: CacheEntry): void {
    this.#drop(entry);
  }

  clear(): void {
    for (const entry of this.#index.all()) this.#forget(entry);
    this.#index.clear();
    this.#uncarried.clear();
    this.#shapes = new WeakMap();
  }

  /** From now on all changes are reported. `sources`: the tables below each table and view. */
  resynced(sources: Sources): void {
    this.clear();
    this.#sources = sources;
    this.pending.reset();
    this.onUnsettled();
  }

  refreshing(): void {
    this.lost();
  }

  /** From now on changes are not reported. */
  lost(): void {
    this.#sources = null;
    this.#freshAt = Number.NEGATIVE_INFINITY;
    this.pending.lose();
    this.clear();
  }

  wanted(table: LoggedTable): readonly boolean[] {
    return this.#index.wanted(table) ?? table.columns.map(() => false);
  }

  committed({ xid, changes, isVisible }: Transaction): void {
    for (const change of changes) {
      if (!isVisible) this.pending.add(change.table, xid, this.#index.journal.end);
      for (const entry of this.#index.touchedBy(change)) this.#invalidate(entry);
    }
    if (!isVisible) this.onUnsettled();
  }

  /** A large transaction arrives that has changed these tables. */
  arriving(xid: number, tables: Iterable<LoggedTable>): void {
    for (const table of tables) {
      this.pending.add(table, xid, this.#index.journal.end);
      for (const entry of this.#index.touchedBy({ table, rows: null })) this.#invalidate(entry);
    }
    this.onUnsettled();
  }

  /**
   * Everything that was committed before `at`, by the clock of `performance`, or before the position has been reported, and also the
   * writes of callers up to the number `written`.
   */
  caughtUp(at: number, position: LogPosition, written: bigint): void {
    if (this.#sources === null) return;
    this.#freshAt = at;
    this.position = position;
    this.writes.reported(written);
  }

  #shapeOf(compiled: CompiledRead): CachedShape | { readonly reason: string } {
    const known = this.#shapes.get(compiled);
    if (known) return known;
    if (this.#sources === null) return NOT_REPORTED;
    const shape = this.#newShape(compiled, this.#sources);
    this.#shapes.set(compiled, shape);
    this.#dropFormer(compiled);
    return shape;
  }

  /** The statement was compiled again. Its reads are no longer compared with the answers of the former one, which could be older. */
  #dropFormer({ statement }: CompiledRead): void {
    for (const [former, { entries }] of this.#index.shapes)
      if (former.statement.text === statement.text) for (const entry of entries.values()) this.#drop(entry);
  }

  #newShape(compiled: CompiledRead, sources: Sources): CachedShape | { readonly reason: string } {
    const reason = uncacheable(compiled);
    if (reason !== null) return { reason };
    const dependencies = dependenciesOf(compiled, sources);
    const unseen = dependencies.unseen ?? dependencies.incomplete;
    return unseen === null ? new CachedShape(compiled, dependencies) : { reason: unseen };
  }

  #recordOf(shape: CachedShape): ShapeRecord {
    if (shape.record?.isKept) return shape.record;
    const { text, parameters } = shape.compiled.statement;
    shape.record = this.shapeStats.of(text, 'generic', parameters.length);
    return shape.record;
  }

  #invalidate(entry: CacheEntry): void {
    if (entry.isDropped) return;
    this.invalidations++;
    const { shape } = entry;
    if (entry.body !== null && entry.hits === 0 && ++shape.wasted >= MAX_WASTED) {
      const pause = Math.min(FIRST_PAUSE_MS * 2 ** (shape.wasted - MAX_WASTED), MAX_PAUSE_MS);
      shape.pausedUntil = performance.now() + pause;
    }
    this.#drop(entry);
  }

  #drop(entry: CacheEntry): void {
    if (entry.isDropped) return;
    this.#index.remove(entry.shape, entry);
    this.#forget(entry);
    const { shape } = entry;
    if (shape.carrier !== entry) return;
    shape.carrier = null;
    this.#uncarried.add(shape);
  }

  /** Not with each entry that is dropped: a change may drop all entries of a statement, one after the other. */
  #handOver(): void {
    const shapes = [...this.#uncarried];
    this.#uncarried.clear();
    for (const shape of shapes)
      for (const next of shape.entries.values()) {
        if (shape.carrier !== null) break;
        if (next.body !== null) this.#carryShape(next);
      }
  }

  #carryShape(entry: CacheEntry): void {
    entry.shape.carrier = entry;
    entry.size += entry.shape.size;
    this.#space.grown(entry, entry.shape.size);
  }

  #forget(entry: CacheEntry): void {
    // If it was used within a minute, it needs no second read to be kept again.
    if (entry.hits > 0) {
      const hash = readHash(entry);
      this.#seen.came(hash, entry.usedAt);
      this.#frequencies.raise(hash, entry);
    }
    this.#space.remove(entry);
    entry.dropped();
  }
}

const NOT_REPORTED = { reason: 'changes are not reported at the moment' };

function digestOf(cell: Buffer): string {
  return createHash('sha1').update(cell).digest('base64');
}

/** Keeps the answer that it passes on to all who wait for it. */
export class KeepingListener implements ReadListener {
  readonly #listeners: ReadListener[];

  constructor(
    listener: ReadListener,
    private readonly cache: ReadCache,
    readonly entry: CacheEntry,
  ) {
    this.#listeners = [listener];
    entry.reading = this;
  }

  join(listener: ReadListener): void {
    this.#listeners.push(listener);
  }

  get aborted(): boolean {
    return this.#listeners.every(({ aborted }) => aborted);
  }

  get caller(): string {
    return this.#listeners[0]?.caller ?? '';
  }

  onResult(cell: Buffer | null, reads: number, links?: string | null): void {
    // The read of clients that have left may not have been sent.
    if (this.aborted) this.giveUp();
    else this.cache.keep(this.entry, cell, links);
    for (const listener of this.#listeners)
      try {
        listener.onResult(cell, reads);
      } catch (error) {
        listener.onError(error);
      }
  }

  onError(error: unknown): void {
    this.giveUp();
    for (const listener of this.#listeners) listener.onError(error);
  }

  /** The answer is not to be kept, because it may come from another server. From now on no other read joins this one. */
  giveUp(): void {
    this.entry.reading = null;
    this.cache.drop(this.entry);
  }
}

/** Compares what it passes on with the answer in memory. */
export class ComparingListener implements ReadListener {
  constructor(
    private readonly listener: ReadListener,
    private readonly cache: ReadCache,
    private readonly compiled: CompiledRead,
    private readonly key: () => string,
  ) {}

  get aborted(): boolean {
    return this.listener.aborted;
  }

  get caller(): string {
    return this.listener.caller ?? '';
  }

  onResult(cell: Buffer | null, reads: number, links?: string | null): void {
    // The read of a client that has left may not have been sent.
    if (!this.listener.aborted) this.cache.answered(this.compiled, this.key, cell);
    this.listener.onResult(cell, reads, links);
  }

  onError(error: unknown): void {
    this.listener.onError(error);
  }
}
