/**
 * Change events: subscribers get each change of an item, limited to the fields and rows that they may see. The service reads changed
 * items again by their keys, with the query and the permissions of the subscriber. One read serves all subscribers with the same query and
 * permissions. The key of a deleted item is sent to subscribers that could see it. If changes may have been missed, the subscriber gets a
 * `resync`.
 */

import { forbiddenCollection, isPassing } from '../../base/errors.js';
import { Limiter, OWN_TURN, type Turn } from '../../base/limiter.js';
import type { Collection } from '../../compiler/model/model.js';
import type { Parsed } from '../../compiler/request/ast.js';
import { withKeys } from '../../compiler/request/rest.js';
import { bind } from '../../compiler/sql/parameter.js';
import { callerName, type Identity } from '../../server/access/identity.js';
import type { LoggedTable, Sources, Transaction } from '../../server/changes/change-source.js';
import type { CommitVisibility, Known } from '../../server/changes/changes.js';
import { readsOwnTables, relatedTables, tableKey } from '../../server/changes/dependencies.js';
import type { PreparedRead } from '../../server/execute/reads/reads.js';

import { checkTable, EventReads, type EventServices, showsAllRows, showsKeys } from './event-reads.js';
import {
  type Arrival,
  type EventEngine,
  type EventHandle,
  type EventListener,
  type EventSource,
  EventSubscriber,
} from './event-subscriber.js';
import type { Subscribers, SubscriptionCounts } from './subscribers.js';
import { CHANGES, type Change, eventOf, type RowChange, TableLog } from './table-log.js';
import { MAX_VISIBLE_KEYS } from './visible-keys.js';

/** Milliseconds until a read is tried again after a temporary failure. */
const RETRY_MS = 1_000;
/** How many initial states are read at the same time. */
const MAX_BEGINNING = 20;

/**
 * The log may report transactions of the initial state once more, for so many milliseconds. Their numbers are forgotten afterwards, because
 * transaction numbers wrap around.
 */
const KNOWN_MS = 600_000;
const NOTHING_READ = { body: null, known: null, visible: null };
const NOTHING_KNOWN = (): boolean => false;

/** The part of live queries that events share. */
interface EventHost {
  readonly subscribers: Subscribers;
  /** Milliseconds between two rounds. */
  readonly interval: number;
  /** Whether changes arrive. */
  isOpen(): boolean;
  /** Resolves when changes arrive, or after some time. */
  open(): Promise<void>;
}

/** Subscribers that were sent the same, and are sent the same next. */
interface EventGroup {
  readonly prepared: PreparedRead<Parsed>;
  readonly source: EventSource;
  /** Each with its version: what is read for an earlier one is void. */
  readonly versions: Map<EventSubscriber, number>;
  /** The changes, or null if subscribers need a resync. */
  readonly changes: ReadonlyMap<string, RowChange> | null;
  readonly end: number;
  /** The changes before the first one of an item that is left for later. */
  readonly before: (unread: ReadonlySet<string>) => Pick<EventGroup, 'changes' | 'end'>;
}

/** The changes of a round, and what was read of the changed items. */
interface ReadChanges {
  readonly changes: readonly (readonly [key: string, RowChange])[];
  readonly items: ReadonlyMap<string, Buffer>;
  /** A snapshot that was taken after the reads, or null if no visible item was missing. */
  readonly known: Known | null;
}

export class LiveEvents implements EventEngine {
  readonly #reads: EventReads;
  readonly #related: RelatedTables;
  /** Without a limit, initial states would take all connections. Callers take turns. */
  readonly #beginning = new Limiter(MAX_BEGINNING, { share: MAX_BEGINNING, maxWaiting: Number.POSITIVE_INFINITY });
  readonly #logs = new Map<string, TableLog<EventSubscriber>>();
  /** Subscriptions that have not begun: their tables are not known, so all tables with changes have a log. */
  readonly #arrivals = new Set<Arrival>();
  /** Tables without a collection that have changed meanwhile. */
  readonly #unserved = new Set<string>();
  /** Null until the tables below each view are known. */
  #sources: Sources | null = null;
  /** Whether tables or views may have been added since `#sources` was read. */
  #isOutdated = false;
  #timer: NodeJS.Timeout | null = null;
  /** A number for each statement. */
  readonly #statements = new WeakMap<object, number>();
  #statementCount = 0;

  constructor(
    private readonly services: EventServices,
    private readonly host: EventHost,
  ) {
    this.#reads = new EventReads(services);
    this.#related = new RelatedTables(this.#reads, services.visibility, () => this.#schedule());
  }

  get counts(): SubscriptionCounts {
    return this.host.subscribers.counts;
  }

  /** Resolves when the listener has the initial state. `onEnd` is called with the reason if the subscription ends. */
  async subscribe(source: EventSource, listener: EventListener, onEnd: (error: unknown) => void): Promise<EventHandle> {
    const { subscribers } = this.host;
    const subscriber = new EventSubscriber(source, listener, onEnd, this);
    const close = (): void => subscribers.close(subscriber);
    subscriber.isBusy = true;
    await subscribers.add(subscriber, () => this.host.open());
    try {
      await this.#begin(subscriber, false);
    } catch (error) {
      close();
      throw error;
    }
    subscriber.isBusy = false;
    this.#schedule();
    return { close, wake: () => this.#schedule(), renew: () => subscribers.renew(subscriber) };
  }

  /**
   * Keeps the changes from now on, for a subscription that begins a little later. A client of GraphQL does not learn when that is. Returns
   * null while no changes arrive.
   */
  arrive(): Arrival | null {
    if (!this.host.isOpen()) return null;
    const close = (): void => {
      if (this.#arrivals.delete(arrival) && this.#arrivals.size === 0) this.#dropUnread();
    };
    const arrival = { at: performance.now(), known: this.services.visibility.committedBefore(), close };
    this.#arrivals.add(arrival);
    return arrival;
  }

  #dropUnread(): void {
    this.#unserved.clear();
    for (const [table, { readers }] of this.#logs) if (readers.size === 0) this.#logs.delete(table);
  }

  #logOf(table: LoggedTable): TableLog<EventSubscriber> | null {
    const key = tableKey(table);
    const log = this.#logs.get(key) ?? null;
    if (log !== null || this.#arrivals.size === 0 || this.#unserved.has(key)) return log;
    const collection = this.#reads.collectionOf(table);
    if (!collection) {
      this.#unserved.add(key);
      return null;
    }
    const added = new TableLog<EventSubscriber>(key, collection);
    this.#logs.set(key, added);
    return added;
  }

  /** The columns of the table that are needed, or null if no subscriber needs its changes. */
  wanted(table: LoggedTable): readonly boolean[] | null {
    const wanted = this.#logOf(table)?.wanted(table) ?? null;
    return wanted ?? (this.#related.has(tableKey(table)) ? table.columns.map(() => false) : null);
  }

  committed({ changes, ...transaction }: Pick<Transaction, 'changes' | 'xid' | 'time'>): void {
    for (const change of changes) {
      this.#related.changed(tableKey(change.table));
      const log = this.#logs.get(tableKey(change.table));
      if (!log) continue;
      log.add(change, transaction);
      this.#schedule();
    }
  }

  /** Changes may have been missed. */
  miss(): void {
    for (const log of this.#logs.values()) log.miss();
    this.#schedule();
  }

  /** From now on every change arrives; earlier ones may have been missed. */
  resynced(sources: Sources): void {
    this.#sources = sources;
    this.#isOutdated = false;
    this.miss();
  }

  /** Tables or views may have been added: until the next resync, collections that are not known as tables are accepted. */
  outdateSources(): void {
    this.#isOutdated = true;
  }

  stop(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#related.stop();
  }

  async resolve(subscriber: EventSubscriber, caller: Identity, isValid: () => boolean): Promise<void> {
    const { source, keys } = subscriber;
    const collection = this.#reads.collection(source, caller);
    checkTable(collection, this.#isOutdated ? null : this.#sources);
    const prepared = await this.#reads.prepare(await source.parseChanged(caller), caller, source);
    if (!isValid()) return;
    this.#join(subscriber, collection);
    const group = this.#groupOf(prepared, source.item);
    const { relatedChanges } = keys;
    const visible = await this.#findVisible(subscriber, prepared, group, collection);
    if (!isValid()) return;
    // All at once: with the keys of a former caller, deletions would be sent that this one may not know of.
    keys.see(visible, showsKeys(collection));
    keys.checkedChanges = relatedChanges;
    subscriber.prepared = prepared;
    subscriber.group = group;
    if (subscriber.resolved(caller, group)) subscriber.isStale = true;
    this.#related.recheck(subscriber);
    this.#schedule();
  }

  leave(subscriber: EventSubscriber): void {
    this.#related.delete(subscriber);
    const { log } = subscriber;
    subscriber.log = null;
    log?.readers.delete(subscriber);
    if (log?.readers.size === 0 && this.#arrivals.size === 0) this.#logs.delete(log.table);
  }

  #join(subscriber: EventSubscriber, collection: Collection): void {
    const table = tableKey({ schema: collection.schema, name: collection.table });
    if (subscriber.log?.table === table) return;
    this.leave(subscriber);
    const log = this.#logs.get(table) ?? new TableLog<EventSubscriber>(table, collection);
    this.#logs.set(table, log);
    log.readers.add(subscriber);
    subscriber.log = log;
    subscriber.offset = log.end;
  }

  /** The keys of the rows that the subscriber sees, or null if none are hidden. Deletions are reported only for visible rows. */
  async #findVisible(
    subscriber: EventSubscriber,
    prepared: PreparedRead<Parsed>,
    group: string,
    collection: Collection,
  ): Promise<Set<string> | null> {
    const { caller, compiled } = prepared;
    const { source, keys, log } = subscriber;
    if (!showsKeys(collection) || (showsAllRows(collection) && this.#digestOf(prepared) === null)) {
      this.#related.delete(subscriber);
      return null;
    }
    const read = await this.#reads.prepareKeys(source, caller);
    const sendsDeletions = source.change === null || source.change === 'delete';
    const related = relatedTables(read.prepared.compiled, log?.table ?? '', this.#sources);
    // Before they are read: a change in between must not be missed.
    this.#related.set(subscriber, sendsDeletions ? related : new Set());
    const isSame = group === subscriber.group && !keys.isInDoubt && !readsOwnTables(compiled);
    return isSame && keys.visible !== null ? keys.visible : this.#reads.visibleKeys(read);
  }

  /** Not null if the database may hide rows from the caller. */
  #digestOf(prepared: PreparedRead): string | null {
    return this.services.reads.settingsOf(prepared)?.digest ?? null;
  }

  #groupOf(prepared: PreparedRead<Parsed>, item: string | null): string {
    const { compiled, query, caller } = prepared;
    const number = this.#statements.get(compiled) ?? ++this.#statementCount;
    this.#statements.set(compiled, number);
    const values = bind(compiled.statement.parameters, withKeys(query, []).values, caller);
    return JSON.stringify([number, values, item, this.#digestOf(prepared)]);
  }

  /** Sends the initial state: every change that is sent later was committed after it, or is in it as well. */
  async #begin(subscriber: EventSubscriber, isResync: boolean): Promise<void> {
    const { source, caller, listener, keys, version } = subscriber;
    // While the caller is being resolved, nothing is read.
    if (caller === null || !subscriber.isResolved) {
      subscriber.isStale = true;
      return;
    }
    const end = subscriber.log?.end ?? 0;
    const { relatedChanges } = keys;
    const query = await source.parseInitial(caller);
    await this.services.visibility.wait();
    const arrival = isResync || query !== null ? null : source.arrival;
    const before = (await arrival?.known) ?? null;
    const isRead = query !== null || keys.visible !== null || before === null;
    const first = isRead ? await this.#reads.firstState(source, caller, query, keys.visible !== null) : NOTHING_READ;
    const { body, visible } = first;
    const isGone = query !== null && body === null;
    if (isGone && !isResync) throw forbiddenCollection(source.collection);
    if (subscriber.isClosed) return;
    subscriber.isStale = subscriber.version !== version;
    if (subscriber.isStale) return;
    subscriber.offset = arrival && before ? (subscriber.log?.offsetAt(arrival.at) ?? end) : end;
    keys.reset(visible);
    keys.checkedChanges = relatedChanges;
    this.#related.recheck(subscriber);
    subscriber.known = before ?? first.known;
    subscriber.knownUntil = performance.now() + KNOWN_MS;
    if (!isGone) listener.initial(body, isResync);
    // The item was there before: it was deleted meanwhile, or is hidden now.
    else listener.changed({ change: 'delete', keys: [source.item ?? ''], items: [] });
  }

  #schedule(): void {
    if (this.#logs.size === 0) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      void this.#round();
    }, this.host.interval).unref();
  }

  async #round(): Promise<void> {
    const groups = [...this.#logs.values()].flatMap((log) => this.#groupsOf(log));
    if (groups.length === 0) return;
    await this.services.visibility.wait();
    await Promise.all(groups.map((group) => this.#serve(group)));
  }

  #groupsOf(log: TableLog<EventSubscriber>): EventGroup[] {
    const groups = new Map<string, EventGroup>();
    for (const subscriber of log.readers) {
      const { offset, isStale, prepared, source } = subscriber;
      if (prepared === null || !isDue(subscriber)) continue;
      const next = log.entryAt(offset);
      if (next && (subscriber.known?.isBefore(next.xid) || next.at > subscriber.knownUntil)) subscriber.known = null;
      const { known } = subscriber;
      // A change that is in the initial state of one subscriber is new for another.
      const name = `${offset} ${isStale} ${known === null ? '' : subscriber.number} ${subscriber.group}`;
      // The log may grow while the reads wait: changes after its present end are for the next round.
      const isKnown = known?.has ?? NOTHING_KNOWN;
      const changes = isStale ? null : log.since(offset, isKnown);
      const before: EventGroup['before'] = (unread) => {
        const end = log.find(offset, isKnown, unread);
        return { changes: log.since(offset, isKnown, end), end };
      };
      const group = groups.get(name) ?? { prepared, source, versions: new Map(), changes, end: log.end, before };
      groups.set(name, group);
      group.versions.set(subscriber, subscriber.version);
      subscriber.isBusy = true;
    }
    return [...groups.values()];
  }

  async #serve(group: EventGroup): Promise<void> {
    const { versions, changes } = group;
    const subscribers = [...versions.keys()];
    try {
      if (changes) await this.#sendChanges(group);
      else
        await Promise.all(subscribers.map((each) => this.#beginning.run(turnOf(each), () => this.#begin(each, true))));
    } catch (error) {
      if (isPassing(error)) setTimeout(() => this.#schedule(), RETRY_MS).unref();
      for (const subscriber of subscribers) {
        subscriber.isStale = true;
        if (!isPassing(error) && isValid(subscriber, group)) this.host.subscribers.fail(subscriber, error);
      }
      return;
    } finally {
      for (const subscriber of subscribers) subscriber.isBusy = false;
    }
    if (subscribers.some(isDue)) this.#schedule();
  }

  async #sendChanges(group: EventGroup): Promise<void> {
    const { prepared, source } = group;
    const subscribers = [...group.versions.keys()];
    const isAny = (): boolean => subscribers.some((each) => isValid(each, group));
    const isWanted = subscribers.some(({ source: { change }, keys }) => change !== 'delete' || keys.visible !== null);
    const changed = isWanted ? changedKeys(group, source) : [];
    const { items, unread } = await this.#reads.changed(prepared, changed, isAny);
    // Large items are sent in several rounds.
    const sent = unread.size === 0 ? group : group.before(unread);
    // An item that was sent before and is missing now was hidden, or deleted: the log reports a deletion later.
    const missing = isWanted ? changedKeys(sent, source).filter((key) => !items.has(key)) : [];
    const isSeen = subscribers.some(({ keys: { visible } }) => missing.some((key) => visible?.has(key) === true));
    const known = isSeen ? await this.services.visibility.surelyKnownNow() : null;
    const changes = changesOf(sent, source);
    for (const subscriber of subscribers) {
      // Items that were read under former rights are not sent; they are read again.
      if (!isValid(subscriber, group)) continue;
      if (sent.changes === null) subscriber.isStale = true;
      else {
        subscriber.offset = sent.end;
        this.#send(subscriber, { changes, items, known });
      }
    }
  }

  #send({ keys, source, listener }: EventSubscriber, { changes, items, known }: ReadChanges): void {
    const events: Record<Change, string[]> = { create: [], update: [], delete: [] };
    for (const [key, each] of changes) {
      const { change } = each;
      if (change !== 'delete') keys.remember(key, items.has(key), change, known);
      const isShown = change === 'delete' ? keys.delete(key, each.xid) : items.has(key);
      const event = isShown ? eventOf(each, source.change) : null;
      if (event !== null) events[event].push(key);
    }
    for (const change of CHANGES) {
      if (events[change].length === 0) continue;
      this.services.stats.sent++;
      const changed = events[change].flatMap((key) => items.get(key) ?? []);
      listener.changed({ change, keys: events[change], items: changed });
    }
  }
}

function changesOf({ changes }: Pick<EventGroup, 'changes'>, { item }: EventSource): ReadChanges['changes'] {
  return [...(changes ?? [])].filter(([key]) => item === null || key === item);
}

function turnOf({ caller, source }: EventSubscriber): Turn {
  return caller ? { caller: callerName(caller, source) } : OWN_TURN;
}

/** The keys of items that were created or updated. */
function changedKeys(group: Pick<EventGroup, 'changes'>, source: EventSource): readonly string[] {
  return changesOf(group, source).flatMap(([key, { change }]) => (change === 'delete' ? [] : [key]));
}

function isValid(subscriber: EventSubscriber, { versions }: EventGroup): boolean {
  return versions.get(subscriber) === subscriber.version;
}

/** Whether there is something to send, and it may be sent now. */
function isDue({ isBusy, isStale, isResolved, offset, log, listener }: EventSubscriber): boolean {
  if (isBusy || !isResolved || (!isStale && (log?.end ?? 0) <= offset)) return false;
  return listener.isReady();
}

/** Milliseconds in which changes are gathered. */
const GATHER_MS = 300;

/** The pause after the keys were read: a multiple of the time that took, at most so many milliseconds. */
const PAUSES = 10;
const MAX_PAUSE_MS = 30_000;

/** A failed read counts as so many milliseconds. */
const FAILED_MS = 1_000;

/** Groups of subscribers whose keys are read at the same time. */
const MAX_READING = 2;

/** Keys beyond the first ones that are read one by one. */
const MAX_CHECKED_KEYS = 1_000;

/**
 * The tables, other than its own, that decide which rows a subscriber to events sees: a rule such as `{team: {open: true}}` reads them.
 * When one of them changes, items whose keys are remembered may be hidden. Until these keys were read again, the deletion of such an item
 * leads to a resync. Creations and updates do not wait for that.
 */
class RelatedTables {
  readonly #subscribers = new Map<string, Set<EventSubscriber>>();
  readonly #tables = new Map<EventSubscriber, ReadonlySet<string>>();
  readonly #reading = new Limiter(MAX_READING, { share: MAX_READING, maxWaiting: Number.POSITIVE_INFINITY });
  readonly #unsure = new Set<EventSubscriber>();
  #timer: NodeJS.Timeout | null = null;

  constructor(
    private readonly reads: EventReads,
    private readonly visibility: CommitVisibility,
    private readonly onChecked: () => void,
  ) {}

  has(table: string): boolean {
    return this.#subscribers.has(table);
  }

  set(subscriber: EventSubscriber, tables: ReadonlySet<string>): void {
    this.delete(subscriber);
    if (tables.size === 0 || subscriber.isClosed) return;
    this.#tables.set(subscriber, tables);
    for (const table of tables) {
      const subscribers = this.#subscribers.get(table) ?? new Set();
      this.#subscribers.set(table, subscribers.add(subscriber));
    }
  }

  delete(subscriber: EventSubscriber): void {
    for (const table of this.#tables.get(subscriber) ?? []) {
      const subscribers = this.#subscribers.get(table);
      subscribers?.delete(subscriber);
      if (subscribers?.size === 0) this.#subscribers.delete(table);
    }
    this.#tables.delete(subscriber);
    this.#unsure.delete(subscriber);
  }

  changed(table: string): void {
    for (const subscriber of this.#subscribers.get(table) ?? []) {
      subscriber.keys.relatedChanges++;
      this.recheck(subscriber);
    }
  }

  /** Reads the keys again, unless they were read since the last change. */
  recheck(subscriber: EventSubscriber): void {
    if (!subscriber.keys.isInDoubt || !this.#tables.has(subscriber)) return;
    this.#unsure.add(subscriber);
    this.#schedule();
  }

  stop(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#unsure.clear();
  }

  #schedule(): void {
    if (this.#unsure.size === 0) return;
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#start();
      this.#schedule();
    }, GATHER_MS).unref();
  }

  #start(): void {
    const now = performance.now();
    const groups = new Map<string, EventSubscriber[]>();
    for (const subscriber of this.#unsure) {
      if (subscriber.keys.recheckAt > now) continue;
      this.#unsure.delete(subscriber);
      subscriber.keys.recheckAt = Number.POSITIVE_INFINITY;
      const name = `${subscriber.group} ${subscriber.log?.table}`;
      groups.set(name, [...(groups.get(name) ?? []), subscriber]);
    }
    for (const group of groups.values()) void this.#run(group);
  }

  async #run(subscribers: readonly EventSubscriber[]): Promise<void> {
    const tookMs = await this.#reading.run(OWN_TURN, () => this.#recheckGroup(subscribers)).catch(() => FAILED_MS);
    const recheckAt = performance.now() + Math.min(tookMs * PAUSES, MAX_PAUSE_MS);
    for (const subscriber of subscribers) {
      subscriber.keys.recheckAt = recheckAt;
      if (canRecheck(subscriber)) this.recheck(subscriber);
    }
    this.onChecked();
  }

  /** Reads the items that subscribers with the same permissions and query see. Returns how many milliseconds that took. */
  async #recheckGroup(subscribers: readonly EventSubscriber[]): Promise<number> {
    const all = subscribers.flatMap((subscriber) => stateOf(subscriber) ?? []);
    const [first] = all;
    if (first === undefined) return 0;
    const states = all.filter(({ group }) => group === first.group);
    await this.visibility.wait();
    const begun = performance.now();
    const now = await this.#readVisible(first, new Set(states.flatMap(({ before }) => before)));
    const tookMs = performance.now() - begun;
    for (const { subscriber, visible, group, changes, before } of states) {
      // Otherwise its keys were read meanwhile, or its permissions have changed.
      const isSame = subscriber.keys.visible === visible && subscriber.group === group;
      if (isSame && canRecheck(subscriber)) subscriber.keys.recheck(changes, before, now);
    }
    return tookMs;
  }

  /** The first of all visible keys, and those of `before` that are visible. */
  async #readVisible(
    { prepared, subscriber: { source } }: CheckedState,
    before: ReadonlySet<string>,
  ): Promise<ReadonlySet<string>> {
    const visible = await this.reads.visibleKeys(await this.reads.prepareKeys(source, prepared.caller));
    if (visible.size < MAX_VISIBLE_KEYS) return visible;
    const left = [...before].filter((key) => !visible.has(key)).slice(0, MAX_CHECKED_KEYS);
    const found = new Set(visible);
    for (let keys: readonly string[] = left; keys.length > 0; ) {
      const { items, unread } = await this.reads.changed(prepared, keys, () => true);
      for (const key of items.keys()) found.add(key);
      keys = [...unread];
    }
    return found;
  }
}

/** A subscriber that is stale or being resolved reads its keys anyway. */
function canRecheck({ isResolved, isStale }: EventSubscriber): boolean {
  return isResolved && !isStale;
}

type CheckedState = NonNullable<ReturnType<typeof stateOf>>;

function stateOf(subscriber: EventSubscriber) {
  const { prepared, group, keys } = subscriber;
  const { visible, relatedChanges: changes } = keys;
  if (!canRecheck(subscriber) || prepared === null || visible === null) return null;
  return { subscriber, prepared, visible, group, changes, before: [...visible] };
}
