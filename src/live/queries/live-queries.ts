/**
 * Live queries: a subscription gets the answer of a read, and a new one whenever it changes. A change leads to the topics it may
 * touch; they are read again, together, at most once per interval. Rights are those of the moment: after every change of users, policies
 * or the schema each subscription begins anew, and what was read under former rights is not sent.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { callerName } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import { forbidden, invalidQuery, isPassing, serviceUnavailable } from '../../base/errors.js';
import type { Observer } from '../../base/observe.js';
import type { PreparedRead, Reads } from '../../engine/reads/reads.js';
import { NO_CLIENT } from '../../engine/stages.js';
import { tagOf } from '../../http/etag.js';
import type { Mirror } from '../../mirror/watch.js';
import { type LoggedTable, positionText } from '../../postgres/changes/pgoutput.js';
import type { TableName } from '../../postgres/changes/publication.js';
import type { Checks } from '../../postgres/health.js';
import type { Database } from '../../postgres/pools/database.js';
import { within } from '../../postgres/wire/time-limit.js';
import type { Sources, Transaction } from '../changes/change-source.js';
import { type LiveMode, waysOf } from '../changes/change-sources.js';
import { type ChangeListener, ChangeStream } from '../changes/change-stream.js';
import { CommitVisibility } from '../changes/visibility.js';
import type { EventHost } from '../events/event-host.js';
import { LiveEvents } from '../events/live-events.js';
import { checkLive } from '../live-health.js';
import { LiveStats } from '../live-stats.js';
import { type LiveListener, type LiveSource, NOBODY } from '../subscriber.js';
import { SubscriptionCounts, type SubscriptionLimits } from '../subscription-counts.js';
import { Publisher } from './publisher.js';
import { Sweep } from './sweep.js';
import { Subscriber, type Topic } from './topic.js';
import { type ReadMoment, type TopicListener, TopicReader } from './topic-reader.js';
import { Topics } from './topics.js';

export interface LiveLimits extends SubscriptionLimits {
  readonly mode: LiveMode;
  /** Milliseconds. */
  readonly interval: number;
  /** Bytes of log that PostgreSQL may keep for a stream. */
  readonly maxWal: number;
}

/** Milliseconds between two rounds of reading everything again while changes are not told. */
const POLL_MS = 1_000;
/** Milliseconds after which a stream that nobody needs is closed. */
const IDLE_MS = 5_000;
/** Milliseconds between two looks at who of those that are told events is still who they were. */
const LOOK_MS = 500;
/** Milliseconds in which changes of rights are gathered. */
const GATHER_MS = 50;
const MAX_RETRY_MS = 5_000;
/** Milliseconds that events wait for the stream to open, and between two looks at it. */
const OPENING_MS = 2_000;
const OPENING_PAUSE_MS = 10;
/** Milliseconds for the slot and the publications to be dropped. */
const STOP_MS = 2_000;
/** Subscriptions that begin anew at the same time. */
const MAX_RESOLVING = 50;

export class LiveQueries implements ChangeListener, TopicListener, EventHost {
  readonly #reads: Reads;
  readonly #limits: LiveLimits;
  readonly stream: ChangeStream;
  readonly stats = new LiveStats();
  readonly #visibility: CommitVisibility;
  readonly #subscribers = new Set<Subscriber>();
  readonly counts: SubscriptionCounts;
  readonly events: LiveEvents;
  readonly topics = new Topics();
  readonly #reader: TopicReader;
  readonly #publisher = new Publisher(this, () => this.stats.sent++);
  readonly #sweep = new Sweep(this.#subscribers, (each, beats) => this.#lookAt(each, beats));
  #anew: NodeJS.Timeout | null = null;
  #timers: NodeJS.Timeout[] = [];
  #idle: NodeJS.Timeout | null = null;
  /** Grows when rights, users or the schema change: what was read before is not sent after. */
  generation = 0;
  /** Grows when sessions end. */
  #looks = 0;
  #isStopped = false;

  constructor(
    reads: Reads,
    database: Database,
    mirror: Mirror,
    policies: Policies,
    limits: LiveLimits,
    observe: Observer,
  ) {
    this.#reads = reads;
    this.#limits = limits;
    this.counts = new SubscriptionCounts(limits);
    this.#visibility = new CommitVisibility(database, () => this.#late());
    this.events = new LiveEvents({ reads, mirror, policies, visibility: this.#visibility }, this);
    this.#reader = new TopicReader(reads, this.#visibility, this.stats, limits.interval, this);
    const tables = (): TableName[] =>
      [...mirror.model.collections.values()].map(({ schema, table }) => ({ schema, name: table }));
    this.stream = new ChangeStream(waysOf(limits.mode, database, tables, limits.maxWal), this, observe);
    mirror.onChange(() => {
      this.topics.forgetSources();
      this.stream.tablesChanged();
      this.rightsChanged();
    });
  }

  get position(): number {
    return this.stream.position;
  }

  get moment(): number {
    return this.generation + this.#looks;
  }

  get subscriptions(): number {
    return this.counts.total;
  }

  get interval(): number {
    return this.#limits.interval;
  }

  /** Why there are no live queries; null where there are. */
  async obstacle(): Promise<string | null> {
    if (this.#limits.mode === 'off') return 'LIVE is off';
    return this.stream.obstacle();
  }

  /** For /server/health. */
  check(): Promise<Checks> {
    return checkLive(this.#limits.mode, this.stream, this.subscriptions);
  }

  /** Resolves with how to end it; the first answer comes to the listener. */
  async subscribe(source: LiveSource, listener: LiveListener): Promise<() => void> {
    if (this.#isStopped) throw serviceUnavailable('live', 'The service stops');
    this.counts.enter();
    const subscriber = new Subscriber(source, listener);
    const close = (): void => this.#close(subscriber);
    this.#subscribers.add(subscriber);
    try {
      await this.#begin();
      await this.#resolve(subscriber);
    } catch (error) {
      close();
      throw error;
    }
    return close;
  }

  /** Users, roles, policies, tokens or the schema have changed. */
  rightsChanged(): void {
    if (this.subscriptions === 0) return;
    this.generation++;
    this.#anew ??= setTimeout(() => {
      this.#anew = null;
      const all = this.#subscribers.values();
      const ofEvents = this.events.all.values();
      // Each may need a look-up: all at once would stand before those of requests.
      const next = async (): Promise<void> => {
        for (const subscriber of all) await this.#resolveAgain(subscriber);
        await this.events.resolveAll(ofEvents);
      };
      for (let lane = 0; lane < MAX_RESOLVING; lane++) void next();
    }, GATHER_MS);
  }

  /** Sessions may have ended: whoever is not who they were gets nothing more. */
  lookAgain(): void {
    this.#looks++;
    for (const subscriber of this.#subscribers) this.#look(subscriber);
    this.events.look();
  }

  /** Every subscription ends: clients subscribe again, elsewhere. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const subscriber of [...this.#subscribers]) {
      this.#close(subscriber);
      subscriber.listener.end(null);
    }
    this.events.stop();
    this.#rest();
    await within(this.stream.close(), STOP_MS).catch(() => {});
  }

  /** For who is told each change: waits a moment for the stream; where it takes longer, they begin anew when it is open. */
  async begin(): Promise<void> {
    if (this.#isStopped) throw serviceUnavailable('live', 'The service stops');
    await this.#begin();
    const until = performance.now() + OPENING_MS;
    while (this.stream.state === 'opening' && performance.now() < until) await sleep(OPENING_PAUSE_MS);
    if (this.stream.state !== 'open') await this.#check();
  }

  async #check(): Promise<void> {
    const obstacle = await this.obstacle();
    if (obstacle !== null) throw serviceUnavailable('live', `There are no live queries: ${obstacle}`);
    if (this.#isStopped) throw serviceUnavailable('live', 'The service stops');
  }

  async #begin(): Promise<void> {
    if (this.#idle) clearTimeout(this.#idle);
    this.#idle = null;
    if (this.stream.state === 'closed') {
      await this.#check();
      this.stream.open();
    }
    if (this.#timers.length > 0) return;
    this.#timers = [
      setInterval(() => {
        if (this.stream.state !== 'open') this.#touchAll();
      }, POLL_MS).unref(),
      setInterval(() => this.events.look(Date.now()), LOOK_MS).unref(),
    ];
    this.#sweep.start();
  }

  #rest(): void {
    for (const timer of this.#timers.splice(0)) clearInterval(timer);
    this.#sweep.stop();
    this.#reader.stop();
    this.#visibility.stop();
    for (const timer of [this.#anew, this.#idle]) if (timer) clearTimeout(timer);
    this.#anew = this.#idle = null;
  }

  #close(subscriber: Subscriber): void {
    if (subscriber.isClosed) return;
    subscriber.isClosed = true;
    this.#subscribers.delete(subscriber);
    this.topics.leave(subscriber);
    this.counts.leave(subscriber.owner);
    this.left();
  }

  left(): void {
    if (this.subscriptions > 0 || this.#isStopped) return;
    this.#idle ??= setTimeout(() => {
      this.#rest();
      void this.stream.close();
    }, IDLE_MS).unref();
  }

  /** Finds out who asks and what may be read, and joins the topic of it. */
  async #resolve(subscriber: Subscriber): Promise<void> {
    const turn = ++subscriber.turn;
    const { moment } = this;
    const { source } = subscriber;
    const caller = await source.identify();
    const query = await source.parse(caller);
    const compiled = await this.#reads.prepare(query, caller, { ...NO_CLIENT, address: source.address });
    if (subscriber.isClosed || subscriber.turn !== turn) return;
    // What was found out before a change of rights, or the end of a session, must not be read after it.
    if (moment !== this.moment) return this.#resolve(subscriber);
    subscriber.owner ??= this.counts.own(callerName(caller, source));
    subscriber.caller = caller;
    this.#join(subscriber, { query, compiled, caller, need: null });
  }

  async #resolveAgain(subscriber: Subscriber): Promise<void> {
    try {
      if (!subscriber.isClosed) await this.#resolve(subscriber);
    } catch (error) {
      // Until then it gets nothing: what it may read is not known.
      if (isPassing(error)) setTimeout(() => void this.#resolveAgain(subscriber), POLL_MS).unref();
      else this.#end(subscriber, error);
    }
  }

  #end(subscriber: Subscriber, error: unknown): void {
    if (subscriber.isClosed) return;
    this.#close(subscriber);
    subscriber.listener.end(error);
  }

  #join(subscriber: Subscriber, prepared: PreparedRead): void {
    if (prepared.compiled.stream) throw invalidQuery('A live query cannot be an export');
    const topic = this.topics.join(subscriber, prepared);
    subscriber.generation = this.generation;
    // A read that runs already began too early for who comes now: they may have a newer answer.
    subscriber.joinedAt = topic.reads;
    if (!topic.isRunning && subscriber.tag !== '' && subscriber.tag === topic.tag) return;
    topic.tag = '';
    topic.awaitedSince = topic.reads;
    this.#reader.touch(topic, true);
  }

  wanted(table: LoggedTable): readonly boolean[] | null {
    const ofQueries = this.topics.wanted(table);
    const ofEvents = this.events.wanted(table);
    if (ofQueries === null || ofEvents === null) return ofQueries ?? ofEvents;
    return ofQueries.map((isWanted, position) => isWanted || ofEvents[position] === true);
  }

  committed({ xid, time, changes, isVisible }: Transaction): void {
    if (!isVisible) this.#visibility.add(xid);
    if (changes.length === 0) return;
    this.stats.transactions++;
    for (const change of changes)
      for (const topic of this.topics.touchedBy(change)) {
        this.stats.changedAt = Math.min(this.stats.changedAt, time);
        this.#reader.touch(topic);
      }
    // Some may have been missed before it is open: then all begin anew.
    if (this.stream.state === 'open') this.events.committed(changes, xid);
  }

  /** Of which tables each view shows rows may have changed too: everything begins anew. */
  resynced(sources: Sources): void {
    this.topics.reset(sources);
    this.events.resynced(sources);
    this.stats.resyncs++;
    this.rightsChanged();
  }

  lost(): void {
    this.#visibility.forget();
    this.#touchAll();
  }

  /** What was read meanwhile lacks changes that are told already. */
  #late(): void {
    this.stats.resyncs++;
    this.events.miss();
    this.#touchAll();
  }

  #touchAll(): void {
    for (const topic of this.topics.all()) this.#reader.touch(topic);
  }

  onAnswer(topic: Topic, cell: Buffer | null, { position, changedAt }: ReadMoment): void {
    topic.failures = 0;
    const tag = cell === null ? '' : tagOf(cell);
    if (cell !== null && tag !== topic.tag) {
      // Who has joined meanwhile waits for the next one, also where it is the same.
      topic.tag = topic.awaitedSince < topic.reads ? tag : '';
      const answer = { body: Buffer.from(cell), tag, position: positionText(position) };
      this.#publisher.publish(topic, answer, () => {
        if (changedAt !== Number.POSITIVE_INFINITY) this.stats.addLag(Date.now() - changedAt);
      });
      return;
    }
    if (cell === null) for (const subscriber of this.#current(topic)) this.#end(subscriber, forbidden());
    else this.stats.unchanged++;
  }

  /** Those who may have it: the others have not been looked at since rights have changed, or wait for the next read. */
  #current(topic: Topic): Subscriber[] {
    return [...topic.subscribers].filter(
      ({ generation, joinedAt }) => generation === this.generation && joinedAt < topic.reads,
    );
  }

  /** A database that is away comes back; what a caller may not read is the end. */
  onFailure(topic: Topic, error: unknown): void {
    const isLasting = !isPassing(error);
    // Who waits for the first answer is told at once.
    for (const subscriber of this.#current(topic)) if (isLasting || subscriber.tag === '') this.#end(subscriber, error);
    if (isLasting) return;
    const pause = Math.min(this.#limits.interval * 2 ** topic.failures++, MAX_RETRY_MS);
    setTimeout(() => {
      if (topic.subscribers.size > 0) this.#reader.touch(topic);
    }, pause).unref();
  }

  /** Tokens expire without anybody saying so. */
  #lookAt(subscriber: Subscriber, beats: boolean): void {
    if (beats) subscriber.listener.beat();
    if (subscriber.caller !== null && subscriber.caller.validUntil <= Date.now()) this.#look(subscriber);
  }

  #look(subscriber: Subscriber): void {
    if (subscriber.caller === null || subscriber.generation !== this.generation) return;
    try {
      const caller = subscriber.source.identify();
      if (caller === subscriber.caller) return;
      if (caller instanceof Promise) caller.catch(() => {});
      // Until it is known who asks it gets nothing.
      subscriber.generation = NOBODY;
      void this.#resolveAgain(subscriber);
    } catch (error) {
      this.#end(subscriber, error);
    }
  }
}
