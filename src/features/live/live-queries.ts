/**
 * Live queries: a subscription gets the answer of a read, and a new one whenever it changes. A change touches the topics that depend on
 * it; they are read again, together, at most once per interval. After every change of users, policies or the schema each subscription
 * is resolved again, and answers that were read under former rights are not sent. Events (`../events`) share the stream of changes.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { forbidden, invalidQuery, isPassing, StartError, serviceUnavailable } from '../../base/errors.js';
import { asError } from '../../base/narrow.js';
import type { Observer } from '../../base/observe.js';
import { within } from '../../base/time-limit.js';
import type { Collection } from '../../compiler/model/model.js';
import type { Identity } from '../../server/access/identity.js';
import type { Policies } from '../../server/access/policies.js';
import type { ChangeEvent } from '../../server/changes/change-event.js';
import type { LiveMode, LogFigures, Sources, TableChanges, Transaction } from '../../server/changes/change-source.js';
import { type ChangeListener, ChangeStream, changeSources } from '../../server/changes/change-stream.js';
import type { TableName } from '../../server/changes/publication.js';
import { CommitVisibility } from '../../server/changes/visibility.js';
import type { Reads } from '../../server/execute/reads/reads.js';
import { NO_CLIENT } from '../../server/execute/stages.js';
import { tagOf } from '../../server/http/etag.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import { type Check, type Checks, HEALTH_TIMEOUT_MS } from '../../server/postgres/health.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { type LoggedChange, type LoggedTable, positionText } from '../../server/postgres/wire/pgoutput.js';
import { Freshness } from '../../speed/cache/freshness.js';
import type { ReadCache } from '../../speed/cache/read-cache.js';
import { LiveEvents } from './live-events.js';
import { LiveStats } from './live-stats.js';
import {
  type LiveListener,
  type LiveSource,
  type Rights,
  Subscribers,
  type SubscriptionLimits,
} from './subscribers.js';
import { keyIn } from './table-log.js';
import {
  Publisher,
  type QueryEngine,
  QuerySubscriber,
  type ReadStart,
  type Topic,
  type TopicListener,
  TopicReader,
  Topics,
} from './topics.js';

interface LiveLimits extends SubscriptionLimits {
  readonly mode: LiveMode;
  /** Milliseconds. */
  readonly interval: number;
  /** Bytes of log that PostgreSQL may keep for a stream. */
  readonly maxWal: number;
}

export interface LiveServices {
  readonly reads: Reads;
  readonly database: Database;
  readonly mirror: Mirror;
  readonly policies: Policies;
  /** Answers in memory, which changes drop; null if none are kept. */
  readonly cache: ReadCache | null;
}

/** Milliseconds between two polls of everything while no changes arrive. */
const POLL_MS = 1_000;
/** Milliseconds after which a stream without subscriptions is closed. */
const IDLE_MS = 5_000;
const MAX_RETRY_MS = 5_000;
/** Milliseconds that a subscription to events waits for the stream to open, and between two checks of it. */
const OPENING_MS = 2_000;
const OPENING_PAUSE_MS = 10;
/** Milliseconds for the slot and the publications to be dropped. */
const STOP_MS = 2_000;

export class LiveQueries implements ChangeListener, QueryEngine, TopicListener, Rights {
  readonly #reads: Reads;
  readonly stream: ChangeStream;
  readonly stats = new LiveStats();
  readonly events: LiveEvents;
  readonly topics = new Topics((read) => this.#reads.settingsOf(read)?.digest ?? '');
  readonly #cache: ReadCache | null;
  readonly #freshness: Freshness | null;
  readonly #visibility: CommitVisibility;
  readonly #subscribers: Subscribers;
  readonly #reader: TopicReader;
  readonly #publisher = new Publisher(() => this.stats.sent++);
  #polling: NodeJS.Timeout | null = null;
  #idle: NodeJS.Timeout | null = null;
  #isStopped = false;
  /** Reports changes to the program, or null if it does not want them. */
  #watch: ChangeWatch | null = null;

  constructor(
    { reads, database, mirror, policies, cache }: LiveServices,
    private readonly limits: LiveLimits,
    observe: Observer,
  ) {
    this.#reads = reads;
    this.#cache = cache;
    const { stats } = this;
    const subscribers = new Subscribers(limits, () => this.#onEmpty());
    const visibility = new CommitVisibility(database, () => this.#onLateCommits());
    this.#subscribers = subscribers;
    this.#visibility = visibility;
    this.events = new LiveEvents(
      { reads, mirror, policies, visibility, stats },
      {
        subscribers,
        interval: limits.interval,
        isOpen: () => this.stream.state === 'open',
        open: () => this.#openForEvents(),
      },
    );
    this.#reader = new TopicReader({ reads, visibility, stats, rights: this }, limits.interval, this);
    const tables = (): TableName[] =>
      [...mirror.model.collections.values()].map(({ schema, table }) => ({ schema, name: table }));
    this.stream = new ChangeStream(changeSources(limits.mode, database, tables, limits.maxWal), this, observe);
    this.#freshness = cache && new Freshness(database, this.stream, visibility, cache);
    mirror.onChange(() => {
      cache?.clear();
      this.#outdateSources();
      this.stream.tablesChanged();
      this.rightsChanged();
    });
    policies.onChange(() => {
      cache?.clear();
      this.rightsChanged();
    });
  }

  /** Opens the stream for the cache of reads, which keeps it open. Throws if there is none. */
  async startCache(): Promise<void> {
    if (this.#freshness === null) return;
    const obstacle = await this.obstacle();
    if (obstacle !== null) throw new StartError(`READ_CACHE_SIZE needs live queries: ${obstacle}`);
    this.stream.open();
    this.#freshness.start();
  }

  get generation(): number {
    return this.#subscribers.generation;
  }

  get position(): number {
    return this.stream.position;
  }

  get subscriptions(): number {
    return this.#subscribers.counts.total;
  }

  /** The reason why there are no live queries, or null. */
  async obstacle(): Promise<string | null> {
    if (this.limits.mode === 'off') return 'LIVE is off';
    return this.stream.obstacle();
  }

  /** For /server/health. */
  async check(): Promise<Checks> {
    const ofStream = await checkLive(this.limits.mode, this.stream, this.subscriptions);
    return this.#cache === null ? ofStream : { ...ofStream, 'live:cache': [checkCache(this.#cache)] };
  }

  /** Reports each change that is committed from now on. Rejects if PostgreSQL does not report changes. */
  async watchChanges(mirror: Mirror, listener: (event: ChangeEvent) => void): Promise<void> {
    this.#watch = new ChangeWatch(mirror, listener);
    await this.#openForEvents();
  }

  /** Resolves with how to end it; the listener gets the first answer. */
  async subscribe(source: LiveSource, listener: LiveListener): Promise<() => void> {
    const subscriber = new QuerySubscriber(source, listener, this);
    await this.#subscribers.add(subscriber, () => this.#open());
    return () => this.#subscribers.close(subscriber);
  }

  /** Users, roles, policies, tokens or the schema have changed. */
  rightsChanged(): void {
    if (this.subscriptions > 0) this.#subscribers.rightsChanged();
  }

  sessionsEnded(): void {
    this.#subscribers.sessionsEnded();
  }

  /** Ends every subscription: clients subscribe again, at another instance. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#subscribers.endAll();
    this.#stopTimers();
    this.#freshness?.stop();
    this.#cache?.lose();
    await within(this.stream.close(), STOP_MS).catch(() => {});
  }

  async #open(): Promise<void> {
    this.#checkRunning();
    if (this.#idle) clearTimeout(this.#idle);
    this.#idle = null;
    if (this.stream.state === 'closed') {
      await this.#checkAvailable();
      this.stream.open();
    }
    if (this.#polling) return;
    this.#polling = setInterval(() => {
      if (this.stream.state !== 'open') this.#touchAll();
    }, POLL_MS).unref();
    this.#subscribers.start();
  }

  /** Waits a short time for the stream: a subscription to events that begins before it is open begins again when it is. */
  async #openForEvents(): Promise<void> {
    await this.#open();
    const until = performance.now() + OPENING_MS;
    while (this.stream.state === 'opening' && performance.now() < until) await sleep(OPENING_PAUSE_MS);
    if (this.stream.state !== 'open') await this.#checkAvailable();
  }

  async #checkAvailable(): Promise<void> {
    const obstacle = await this.obstacle();
    if (obstacle !== null) throw serviceUnavailable('live', `There are no live queries: ${obstacle}`);
    this.#checkRunning();
  }

  #checkRunning(): void {
    if (this.#isStopped) throw serviceUnavailable('live', 'The service stops');
  }

  #stopTimers(): void {
    if (this.#polling) clearInterval(this.#polling);
    if (this.#idle) clearTimeout(this.#idle);
    this.#polling = this.#idle = null;
    this.#subscribers.stop();
    this.#reader.stop();
    this.events.stop();
    this.#visibility.stop();
  }

  #onEmpty(): void {
    if (this.#isStopped) return;
    this.#idle ??= setTimeout(() => {
      this.#stopTimers();
      this.#idle = null;
      if (this.#cache === null && this.#watch === null) void this.stream.close();
    }, IDLE_MS).unref();
  }

  async resolve(subscriber: QuerySubscriber, caller: Identity, isValid: () => boolean): Promise<void> {
    const { source } = subscriber;
    const query = await source.parse(caller);
    const compiled = await this.#reads.prepare(query, caller, { ...NO_CLIENT, address: source.address });
    if (!isValid()) return;
    if (compiled.stream) throw invalidQuery('A live query cannot be an export');
    const topic = subscriber.join({ query, compiled, caller, need: null });
    if (!topic.isRunning && subscriber.tag !== '' && subscriber.tag === topic.tag) return;
    // A read that runs began too early for this subscriber: it may have a newer answer.
    topic.tag = '';
    topic.awaitedSince = topic.reads;
    this.#reader.touch(topic, true);
  }

  wanted(table: LoggedTable): readonly boolean[] | null {
    return wantedByAny([
      this.topics.wanted(table),
      this.events.wanted(table),
      this.#cache === null ? null : this.#cache.wanted(table),
      this.#watch === null ? null : this.#watch.wanted(table),
    ]);
  }

  arriving(xid: number, tables: Iterable<LoggedTable>): void {
    this.#cache?.arriving(xid, tables);
  }

  committed(transaction: Transaction): void {
    const { xid, time, changes, isVisible } = transaction;
    if (!isVisible) this.#visibility.add(xid);
    if (changes.length === 0) return;
    this.#cache?.committed({ xid, changes, isVisible });
    this.stats.transactions++;
    for (const change of changes)
      for (const topic of this.topics.touchedBy(change)) {
        this.stats.changedAt = Math.min(this.stats.changedAt, time);
        this.#reader.touch(topic);
      }
    // Before the stream is open, changes may be missing: then all subscriptions begin again.
    if (this.stream.state !== 'open') return;
    this.events.committed(transaction);
    this.#watch?.committed(changes);
  }

  /** The tables below views may have changed too, so every subscription is resolved again. */
  resynced(sources: Sources): void {
    this.topics.reset(sources);
    this.events.resynced(sources);
    this.#cache?.reset(sources);
    this.#watch?.resynced();
    this.stats.resyncs++;
    this.rightsChanged();
  }

  lost(): void {
    this.#cache?.lose();
    this.#visibility.forget();
    this.#touchAll();
  }

  refreshing(): void {
    this.#outdateSources();
    this.#cache?.lose();
  }

  /** Tables or views may have been added. Until they are known, nothing is refused for lack of a table. */
  #outdateSources(): void {
    this.topics.forgetSources();
    this.events.outdateSources();
  }

  /** Commits became visible after reads had stopped waiting for them: these reads lack changes that were reported already. */
  #onLateCommits(): void {
    this.stats.resyncs++;
    this.events.miss();
    this.#touchAll();
  }

  #touchAll(): void {
    for (const topic of this.topics.all()) this.#reader.touch(topic);
  }

  onAnswer(topic: Topic, cell: Buffer | null, { position, changedAt }: ReadStart): void {
    topic.failures = 0;
    if (cell === null) {
      for (const subscriber of topic.current) this.#subscribers.end(subscriber, forbidden());
      return;
    }
    const tag = tagOf(cell);
    if (tag === topic.tag) {
      this.stats.unchanged++;
      return;
    }
    // Subscribers that joined since the read began wait for the next answer, even if it is the same.
    topic.tag = topic.awaitedSince < topic.reads ? tag : '';
    const answer = { body: Buffer.from(cell), tag, position: positionText(position) };
    this.#publisher.publish(topic, answer, () => {
      if (changedAt !== Number.POSITIVE_INFINITY) this.stats.addLag(Date.now() - changedAt);
    });
  }

  /** Reads are retried if the failure is temporary. Otherwise, and before the first answer, the subscription ends. */
  onFailure(topic: Topic, error: unknown): void {
    const isTemporary = isPassing(error);
    for (const subscriber of topic.current)
      if (!isTemporary || subscriber.tag === '') this.#subscribers.end(subscriber, error);
    if (!isTemporary) return;
    const pause = Math.min(this.limits.interval * 2 ** topic.failures++, MAX_RETRY_MS);
    setTimeout(() => {
      if (topic.subscribers.size > 0) this.#reader.touch(topic);
    }, pause).unref();
  }
}

/** The columns that one of them wants, or null if none wants the table. */
function wantedByAny(each: readonly (readonly boolean[] | null)[]): readonly boolean[] | null {
  const wanting = each.filter((wanted) => wanted !== null);
  const [first, ...others] = wanting;
  if (first === undefined || others.length === 0) return first ?? null;
  return first.map((_, position) => wanting.some((wanted) => wanted[position] === true));
}

/** Milliseconds behind the log from which on live answers are too late. */
const MAX_LAG_MS = 10_000;
/** Milliseconds for which old transactions may keep answers out of memory. */
const MAX_HELD_MS = 10_000;
/** The share of the allowed WAL above which the health check reports the slot: by then it should have been replaced. */
const MANY = 1 / 4;

/** The part of /server/health about live queries: the source of changes, the lag, and the WAL that PostgreSQL keeps. */
async function checkLive(mode: LiveMode, stream: ChangeStream, subscriptions: number): Promise<Checks> {
  const found = { componentType: 'component', observedValue: subscriptions, observedUnit: 'subscriptions' };
  if (mode === 'off') return { 'live:stream': [{ status: 'ok', ...found, output: 'off: LIVE is off' }] };
  const { state, failure, figures } = stream;
  if (state !== 'closed' && state !== 'open') {
    const reason = failure ? `: ${failure.message}` : '';
    const output = `live queries are polled every second until the source of changes works again${reason}`;
    return { 'live:stream': [{ status: 'degraded', ...found, output }] };
  }
  const described = await within(stream.describe(), HEALTH_TIMEOUT_MS).catch(asError);
  if (described instanceof Error)
    return { 'live:stream': [{ status: 'degraded', ...found, output: described.message }] };
  const ofStream: Checks = { 'live:stream': [{ status: 'ok', ...found, output: described }] };
  if (state === 'closed' || figures === null) return ofStream;
  return { ...ofStream, 'live:lag': [checkLag(figures)], 'live:wal': [checkWal(figures)] };
}

/** Whether answers can be kept in memory. */
function checkCache({ entries, pending }: ReadCache): Check {
  const found = { componentType: 'component', observedValue: entries, observedUnit: 'answers kept' };
  const { heldMs, obstacle } = pending;
  if (heldMs <= MAX_HELD_MS || obstacle === null) return { status: 'ok', ...found };
  return { status: 'degraded', ...found, output: obstacle };
}

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

/** Committed changes, for the program that the service runs in: which item of which collection, whatever program has written it. */
class ChangeWatch {
  #isSynced = false;

  constructor(
    private readonly mirror: Mirror,
    private readonly listener: (event: ChangeEvent) => void,
  ) {}

  /** The key columns of collections that are served. */
  wanted(table: LoggedTable): readonly boolean[] | null {
    const collection = this.#collectionOf(table);
    if (!collection) return null;
    const names = collection.key.map(({ column, name }) => column?.name ?? name);
    return table.columns.map(({ name }) => names.includes(name));
  }

  committed(changes: readonly TableChanges[]): void {
    for (const { table, rows } of changes) {
      const collection = this.#collectionOf(table);
      if (!collection) continue;
      if (rows === null) this.listener({ collection: collection.name, action: 'resync', key: null });
      for (const row of rows ?? []) this.listener(eventOf(collection, table, row));
    }
  }

  /** Changes may have been missed, except when the stream opens for the first time. */
  resynced(): void {
    if (this.#isSynced) this.listener({ collection: null, action: 'resync', key: null });
    this.#isSynced = true;
  }

  #collectionOf({ schema, name }: LoggedTable): Collection | undefined {
    const { collections } = this.mirror.model;
    const found = [...collections.values()].find((each) => each.schema === schema && each.table === name);
    return found?.system ? undefined : found;
  }
}

function eventOf({ name, key }: Collection, table: LoggedTable, { action, before, after }: LoggedChange): ChangeEvent {
  const columns = key.map((field) =>
    table.columns.findIndex((each) => each.name === (field.column?.name ?? field.name)),
  );
  const shown = keyIn(after ?? before, columns);
  return action === 'truncate' || shown === null
    ? { collection: name, action: 'resync', key: null }
    : { collection: name, action, key: shown };
}
