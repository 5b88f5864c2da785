/**
 * Events: each change of an item, with what the subscriber may see of it at that moment. Changed items are read again by their
 * keys, with the query and the rights of the subscriber; those who read the same are served by one read. Of a deleted item the key is
 * told to whom it was visible. Who cannot be told every change is told that, and begins anew.
 */
import { callerName } from '../../access/identity.js';
import { forbiddenCollection, isPassing, isRefusal } from '../../base/errors.js';
import type { PreparedRead } from '../../engine/reads/reads.js';
import { NO_CLIENT } from '../../engine/stages.js';
import type { Collection } from '../../mirror/model.js';
import type { LoggedTable } from '../../postgres/changes/pgoutput.js';
import type { Source } from '../../postgres/changes/publication.js';
import type { Parsed } from '../../request/ast.js';
import { withKeys } from '../../request/rest.js';
import { bind } from '../../sql/parameter.js';
import type { TableChanges } from '../changes/change-source.js';
import type { Known } from '../changes/visibility.js';
import { readsOwnTables, relatedTables, tableKey } from '../dependencies.js';
import { NOBODY } from '../subscriber.js';
import { ChangedReader } from './changed-reader.js';
import type { EventHandle, EventHost } from './event-host.js';
import {
  type EventGroup,
  type EventListener,
  type EventSource,
  EventSubscriber,
  MAX_VISIBLE_KEYS,
} from './event-subscriber.js';
import { collectionOf, type EventServices, prepareRead, readFirst } from './first-state.js';
import { RelatedTables } from './related-tables.js';
import { Places } from './semaphore.js';
import { CHANGES, type Change, type RowChange, TableLog } from './table-log.js';
import { checkTable, keysIn, showsAllRows, showsKeys } from './visible-items.js';

/** Milliseconds until something that failed for the moment is tried again. */
const RETRY_MS = 1_000;
/** Keys behind the first ones that are read one by one when related items have changed. */
const MAX_CHECKED_KEYS = 1_000;
/** Subscriptions that begin anew at the same time. */
const MAX_BEGINNING = 20;

/** Milliseconds after the first state in which the log may still tell what is in it: numbers of transactions wrap around one day. */
const KNOWN_MS = 600_000;
const NOTHING_KNOWN = (): boolean => false;

export class LiveEvents {
  readonly #services: EventServices;
  readonly #host: EventHost;
  readonly #reader: ChangedReader;
  /** All at once would take all connections. */
  readonly #beginning = new Places(MAX_BEGINNING);
  readonly #subscribers = new Set<EventSubscriber>();
  readonly #logs = new Map<string, TableLog>();
  /** Null until it is known what is below each view. */
  #sources: ReadonlyMap<string, readonly Source[]> | null = null;
  #timer: NodeJS.Timeout | null = null;
  readonly #related = new RelatedTables((subscribers) => this.#recheck(subscribers));
  /** A number for each statement. */
  readonly #statements = new WeakMap<object, number>();
  #count = 0;

  constructor(services: EventServices, host: EventHost) {
    this.#services = services;
    this.#host = host;
    this.#reader = new ChangedReader(services.reads, host.stats);
  }

  /** Resolves when the listener has the state to begin with. `onEnd` hears why nothing more is told. */
  async subscribe(source: EventSource, listener: EventListener, onEnd: (error: unknown) => void): Promise<EventHandle> {
    this.#host.counts.enter();
    const subscriber = new EventSubscriber(source, listener, onEnd, ++this.#count, this.#host.counts);
    this.#subscribers.add(subscriber);
    subscriber.isBusy = true;
    try {
      await this.#host.begin();
      await this.#resolve(subscriber);
      await this.#begin(subscriber, false);
    } catch (error) {
      this.#close(subscriber);
      throw error;
    }
    subscriber.isBusy = false;
    this.#schedule();
    return { close: () => this.#close(subscriber), wake: () => this.#schedule(), renew: () => this.#renew(subscriber) };
  }

  /** Which columns of the table are needed; null where nobody wants to know of it. */
  wanted(table: LoggedTable): readonly boolean[] | null {
    const wanted = this.#logs.get(tableKey(table))?.wanted(table) ?? null;
    return wanted ?? (this.#related.has(tableKey(table)) ? table.columns.map(() => false) : null);
  }

  committed(changes: readonly TableChanges[], xid: number): void {
    for (const change of changes) {
      this.#related.changed(tableKey(change.table));
      const log = this.#logs.get(tableKey(change.table));
      if (!log) continue;
      log.add(change, xid);
      this.#schedule();
    }
  }

  /** Rules read related items, which have changed: reads again what these subscribers see, who have the same rights and query. */
  async #recheck(subscribers: readonly EventSubscriber[]): Promise<number> {
    const all = subscribers.flatMap((subscriber) => this.#stateOf(subscriber) ?? []);
    const [first] = all;
    if (first === undefined) return 0;
    const states = all.filter(({ group }) => group === first.group);
    let tookMs = RETRY_MS;
    try {
      await this.#services.visibility.wait();
      const begun = performance.now();
      const now = await this.#readVisible(
        first.prepared,
        first.source,
        new Set(states.flatMap(({ before }) => before)),
      );
      tookMs = performance.now() - begun;
      for (const { subscriber, visible, group, doubts, before } of states) {
        // Otherwise its keys were read meanwhile, or its rights are others.
        const isSame = subscriber.visible === visible && subscriber.group === group;
        if (isSame && this.#canRecheck(subscriber)) subscriber.settle(doubts, before, now);
      }
    } catch {
      // They are still in doubt, and their keys are read again after a pause.
    }
    for (const subscriber of subscribers) if (this.#canRecheck(subscriber)) this.#related.doubt(subscriber);
    this.#schedule();
    return tookMs;
  }

  /** Whoever begins again, or whose rights are looked up, reads the keys then. */
  #canRecheck(subscriber: EventSubscriber): boolean {
    return this.#isCurrent(subscriber) && !subscriber.isClosed && !subscriber.isStale;
  }

  #stateOf(subscriber: EventSubscriber) {
    const { source, prepared, visible, group, doubts } = subscriber;
    if (!this.#canRecheck(subscriber) || prepared === null || visible === null) return null;
    return { subscriber, source, prepared, visible, group, doubts, before: [...visible] };
  }

  /** The first of all visible keys, and those of `before` that are visible. */
  async #readVisible(
    prepared: PreparedRead<Parsed>,
    source: EventSource,
    before: ReadonlySet<string>,
  ): Promise<ReadonlySet<string>> {
    const { caller } = prepared;
    const names = collectionOf(this.#services, source, caller).key.map(({ name }) => name);
    const keys = await prepareRead(this.#services, source.parseKeys(caller, names), caller, source.address);
    const visible = new Set(keysIn(await this.#services.reads.run(keys, NO_CLIENT), names));
    if (visible.size < MAX_VISIBLE_KEYS) return visible;
    const left = [...before].filter((key) => !visible.has(key)).slice(0, MAX_CHECKED_KEYS);
    const items = await this.#reader.read(prepared, left, () => true);
    return new Set([...visible, ...items.keys()]);
  }

  /** Changes may have been missed. */
  miss(): void {
    for (const log of this.#logs.values()) log.miss();
    this.#schedule();
  }

  /** From now on every change is told; what there was before may have been missed. */
  resynced(sources: ReadonlyMap<string, readonly Source[]>): void {
    this.#sources = sources;
    this.miss();
  }

  /** Rights may be others: each is looked at again. */
  async resolveAll(subscribers: Iterator<EventSubscriber>): Promise<void> {
    for (let next = subscribers.next(); !next.done; next = subscribers.next()) await this.#resolveAgain(next.value);
  }

  get all(): ReadonlySet<EventSubscriber> {
    return this.#subscribers;
  }

  /** Tokens expire without anybody saying so. `now`: only whose identity may have ended by then, in milliseconds since 1970. */
  look(now = Number.POSITIVE_INFINITY): void {
    for (const subscriber of this.#subscribers) {
      if (!this.#isCurrent(subscriber)) continue;
      const isTimed = now !== Number.POSITIVE_INFINITY;
      if (isTimed && (subscriber.isBusy || (subscriber.caller?.validUntil ?? 0) > now)) continue;
      try {
        const caller = subscriber.source.identify();
        if (caller === subscriber.caller) continue;
        if (caller instanceof Promise) caller.catch(() => {});
      } catch {
        // What is wrong is found out below.
      }
      // Until it is known who asks nothing is told.
      this.#renew(subscriber);
    }
  }

  stop(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#related.stop();
    for (const subscriber of [...this.#subscribers]) this.#close(subscriber);
  }

  #close(subscriber: EventSubscriber): void {
    if (subscriber.isClosed) return;
    subscriber.isClosed = true;
    this.#subscribers.delete(subscriber);
    subscriber.forget();
    this.#related.delete(subscriber);
    this.#host.counts.leave(subscriber.owner);
    const log = this.#logs.get(subscriber.table);
    if (log && --log.readers === 0) this.#logs.delete(subscriber.table);
    this.#host.left();
  }

  /** Finds out who asks and what they may see. */
  async #resolve(subscriber: EventSubscriber): Promise<void> {
    const turn = ++subscriber.turn;
    const { moment } = this.#host;
    const { source } = subscriber;
    const { reads } = this.#services;
    const caller = await source.identify();
    const collection = collectionOf(this.#services, source, caller);
    checkTable(collection, this.#sources);
    const query = await source.parseChanged(caller);
    const compiled = await reads.prepare(query, caller, { ...NO_CLIENT, address: source.address });
    if (subscriber.isClosed || subscriber.turn !== turn) return;
    if (moment !== this.#host.moment) return this.#resolve(subscriber);
    subscriber.owner ??= this.#host.counts.own(callerName(caller, source));
    subscriber.caller = caller;
    const prepared = { query, compiled, caller, need: null };
    this.#join(subscriber, collection);
    const group = this.#groupOf(prepared, source.item);
    const { doubts } = subscriber;
    const visible = await this.#findVisible(subscriber, prepared, group, collection);
    if (subscriber.isClosed || subscriber.turn !== turn) return;
    if (moment !== this.#host.moment) return this.#resolve(subscriber);
    // All at once: with the keys of a former caller, deletions would be told that this one may not know of.
    subscriber.prepared = prepared;
    subscriber.group = group;
    subscriber.see(visible, showsKeys(collection));
    subscriber.settledDoubts = doubts;
    subscriber.generation = this.#host.generation;
    this.#related.doubt(subscriber);
  }

  #join(subscriber: EventSubscriber, collection: Collection): void {
    const table = tableKey({ schema: collection.schema, name: collection.table });
    if (subscriber.table === table) return;
    const former = this.#logs.get(subscriber.table);
    if (former && --former.readers === 0) this.#logs.delete(subscriber.table);
    const log = this.#logs.get(table) ?? new TableLog(collection);
    this.#logs.set(table, log);
    log.readers++;
    subscriber.position = log.end;
    subscriber.table = table;
  }

  /** Where some rows are hidden, a deletion is told of those that were not. */
  async #findVisible(
    subscriber: EventSubscriber,
    { caller, compiled }: PreparedRead<Parsed>,
    group: string,
    collection: Collection,
  ): Promise<Set<string> | null> {
    const { source, visible, doubts, settledDoubts } = subscriber;
    if (!showsKeys(collection) || showsAllRows(collection)) {
      this.#related.delete(subscriber);
      return null;
    }
    const isSame = group === subscriber.group && doubts === settledDoubts && !readsOwnTables(compiled);
    if (isSame && visible !== null) return visible;
    const names = collection.key.map(({ name }) => name);
    const { reads } = this.#services;
    const keys = await prepareRead(this.#services, source.parseKeys(caller, names), caller, source.address);
    const isTold = source.change === null || source.change === 'delete';
    // Before they are read: a change in between must not be missed. The keys decide which deletions are sent.
    this.#related.set(subscriber, isTold ? relatedTables(keys.compiled, subscriber.table, this.#sources) : new Set());
    const body = await reads.run(keys, NO_CLIENT);
    return new Set(keysIn(body, names).slice(0, MAX_VISIBLE_KEYS));
  }

  #groupOf({ compiled, query, caller }: PreparedRead<Parsed>, item: string | null): string {
    const number = this.#statements.get(compiled) ?? ++this.#count;
    this.#statements.set(compiled, number);
    const values = bind(compiled.statement.parameters, withKeys(query, []).values, caller);
    return JSON.stringify([number, values, item]);
  }

  /** Tells the state to begin with: every change that is told later is committed behind it, or is in it as well. */
  async #begin(subscriber: EventSubscriber, isResync: boolean): Promise<void> {
    const { source, caller, listener } = subscriber;
    // Who asks is being found out anew: it begins when that is known.
    if (caller === null) {
      subscriber.isStale = true;
      return;
    }
    const { generation, turn, doubts } = subscriber;
    const position = this.#logs.get(subscriber.table)?.end ?? 0;
    const query = await source.parseInitial(caller);
    await this.#services.visibility.wait();
    const [body, known, visible] = await readFirst(this.#services, subscriber, caller, query);
    const isGone = query !== null && body === null;
    if (isGone && !isResync) throw forbiddenCollection(source.collection);
    if (subscriber.isClosed) return;
    const isCurrent = subscriber.turn === turn && generation === this.#host.generation;
    subscriber.isStale = !isCurrent;
    if (!isCurrent) return;
    subscriber.position = position;
    subscriber.begin(visible);
    subscriber.settledDoubts = doubts;
    this.#related.doubt(subscriber);
    subscriber.known = known;
    subscriber.knownUntil = performance.now() + KNOWN_MS;
    if (!isGone) listener.initial(body, isResync);
    // An item that was there before: it was deleted meanwhile, or is hidden now.
    else listener.changed({ change: 'delete', keys: [source.item ?? ''], items: [] });
  }

  #renew(subscriber: EventSubscriber): void {
    subscriber.generation = NOBODY;
    void this.#resolveAgain(subscriber);
  }

  /** Who may not see it any more is told nothing until that changes. */
  async #resolveAgain(subscriber: EventSubscriber): Promise<void> {
    if (subscriber.isClosed) return;
    try {
      await this.#resolve(subscriber);
    } catch (error) {
      subscriber.isStale = true;
      subscriber.generation = NOBODY;
      subscriber.caller = null;
      if (isPassing(error)) setTimeout(() => void this.#resolveAgain(subscriber), RETRY_MS).unref();
      else this.#end(subscriber, error);
    }
    this.#schedule();
  }

  /** What cannot be read any more is the end; who may not read it now may do so again when rights change. */
  #end(subscriber: EventSubscriber, error: unknown): void {
    if (isRefusal(error) || subscriber.isClosed) return;
    this.#close(subscriber);
    subscriber.onEnd(error);
  }

  #schedule(): void {
    if (this.#subscribers.size === 0) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      void this.#round();
    }, this.#host.interval).unref();
  }

  async #round(): Promise<void> {
    const groups = new Map<string, EventGroup>();
    for (const subscriber of this.#subscribers) {
      if (!this.#isDue(subscriber)) continue;
      const log = this.#logs.get(subscriber.table);
      const next = log?.entryAt(subscriber.position);
      if (next && (subscriber.known?.isBefore(next.xid) || next.at > subscriber.knownUntil)) subscriber.known = null;
      const { position, isStale, known, prepared, source, generation, turn } = subscriber;
      if (prepared === null) continue;
      // What is in the first state of one is news for another.
      const whose = known === null ? '' : subscriber.number;
      const name = `${position} ${isStale} ${whose} ${subscriber.group} ${subscriber.table}`;
      // What is told later must not be counted as told: the log goes on while the reads wait.
      const changes = isStale ? null : (log?.since(position, known?.has ?? NOTHING_KNOWN) ?? null);
      const group = groups.get(name) ?? { prepared, source, generation, turns: new Map(), changes, end: log?.end ?? 0 };
      groups.set(name, group);
      group.turns.set(subscriber, turn);
      subscriber.isBusy = true;
    }
    if (groups.size === 0) return;
    await this.#services.visibility.wait();
    await Promise.all([...groups.values()].map((group) => this.#serve(group)));
  }

  async #serve(group: EventGroup): Promise<void> {
    const { turns, changes } = group;
    const subscribers = [...turns.keys()];
    try {
      if (changes) await this.#tell(group, changes);
      else await Promise.all(subscribers.map((each) => this.#beginning.run(() => this.#begin(each, true))));
    } catch (error) {
      // What is forbidden now is looked at again when rights change.
      if (isPassing(error)) setTimeout(() => this.#schedule(), RETRY_MS).unref();
      for (const [subscriber, turn] of turns) {
        subscriber.isStale = true;
        if (isPassing(error) || subscriber.turn !== turn) continue;
        subscriber.generation = NOBODY;
        this.#end(subscriber, error);
      }
      return;
    } finally {
      for (const subscriber of subscribers) subscriber.isBusy = false;
    }
    for (const subscriber of subscribers) if (this.#isDue(subscriber)) this.#schedule();
  }

  /** Whether there is something to tell, and it may be told now. */
  #isDue(subscriber: EventSubscriber): boolean {
    const end = this.#logs.get(subscriber.table)?.end ?? 0;
    if (subscriber.isBusy || (!subscriber.isStale && end <= subscriber.position)) return false;
    return this.#isCurrent(subscriber) && subscriber.listener.isReady();
  }

  async #tell(group: EventGroup, changes: ReadonlyMap<string, RowChange>): Promise<void> {
    const { prepared, source, generation, turns, end } = group;
    const counted = [...changes].filter(([key]) => source.item === null || key === source.item);
    const isWanted = [...turns.keys()].some(
      ({ source: { change }, visible }) => change !== 'delete' || visible !== null,
    );
    const there = isWanted ? counted.flatMap(([key, { change }]) => (change === 'delete' ? [] : [key])) : [];
    const items = await this.#reader.read(
      prepared,
      there,
      () => generation === this.#host.generation && [...turns.keys()].some(({ isClosed }) => !isClosed),
    );
    // Which are missing because they are gone already, the log says later; it counts for who was told of them.
    const missing = there.filter((key) => !items.has(key));
    const isMissed = [...turns.keys()].some(({ visible }) => missing.some((key) => visible?.has(key) === true));
    const known = isMissed ? await this.#services.visibility.surelyKnownNow() : null;
    // What was read under former rights is not told; it is read again.
    if (generation !== this.#host.generation) return;
    for (const [subscriber, turn] of turns) {
      if (subscriber.isClosed || subscriber.turn !== turn || subscriber.generation !== generation) continue;
      subscriber.position = end;
      for (const change of CHANGES) this.#tellOne(subscriber, change, counted, items, known);
    }
  }

  #tellOne(
    subscriber: EventSubscriber,
    change: Change,
    counted: readonly (readonly [string, RowChange])[],
    items: ReadonlyMap<string, Buffer>,
    known: Known | null,
  ): void {
    const keys: string[] = [];
    for (const [key, each] of counted) {
      if (each.change !== change) continue;
      if (change !== 'delete') subscriber.remember(key, items.has(key), change, known);
      if (change === 'delete' ? subscriber.forgetDeleted(key, each.xid) : items.has(key)) keys.push(key);
    }
    if (keys.length === 0 || (subscriber.source.change !== null && subscriber.source.change !== change)) return;
    this.#host.stats.sent++;
    subscriber.listener.changed({ change, keys, items: keys.flatMap((key) => items.get(key) ?? []) });
  }

  #isCurrent({ generation, caller }: EventSubscriber): boolean {
    return caller !== null && generation === this.#host.generation;
  }
}
