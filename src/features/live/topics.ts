/**
 * Topics: subscriptions that get the same answer. They read with one statement and equal values, so one read serves all of them. A
 * statement belongs to what its callers may see, and the caller's own values are among its values. `TopicReader` reads the topics
 * whose answer may have changed, `Publisher` sends an answer to all subscribers of a topic.
 */

import { unprocessable } from '../../base/errors.js';
import { bind } from '../../compiler/sql/parameter.js';
import { callerName, type Identity } from '../../server/access/identity.js';
import type { LoggedTable, Sources, TableChanges } from '../../server/changes/change-source.js';
import type { CommitVisibility } from '../../server/changes/changes.js';
import { dependenciesOf, type LinkValue, probeKey } from '../../server/changes/dependencies.js';
import {
  DependencyIndex,
  type Dependent,
  DependentShape,
  type FoundLinks,
} from '../../server/changes/dependency-index.js';
import type { CompiledRead } from '../../server/execute/reads/compiled-read.js';
import type { PreparedRead, Reads } from '../../server/execute/reads/reads.js';
import type { LiveStats } from './live-stats.js';
import { type LiveAnswer, type LiveListener, type LiveSource, type Rights, Subscriber } from './subscribers.js';

/** Replaces the tag of an answer that was withdrawn before it was sent. */
const WITHDRAWN = 'withdrawn';

/** Serves the subscribers of topics. */
export interface QueryEngine {
  readonly topics: Topics;
  resolve(subscriber: QuerySubscriber, caller: Identity, isValid: () => boolean): Promise<void>;
}

export class QuerySubscriber extends Subscriber {
  readonly waitsForRights = false;
  topic: Topic | null = null;
  /** How many reads of its topic had begun when it joined: their answers are too old for it. */
  joinedAt = 0;
  /** The tag of the answer that it has; '' for none. */
  tag = '';

  constructor(
    readonly source: LiveSource,
    readonly listener: LiveListener,
    private readonly engine: QueryEngine,
  ) {
    super();
  }

  resolve(caller: Identity, isValid: () => boolean): Promise<void> {
    return this.engine.resolve(this, caller, isValid);
  }

  /** Joins the topic of the read, and leaves its former one. */
  join(prepared: PreparedRead): Topic {
    const topic = this.engine.topics.join(this, prepared);
    if (this.resolved(prepared.caller, topic)) this.tag = WITHDRAWN;
    this.joinedAt = topic.reads;
    return topic;
  }

  /** Returns whether it had another answer. */
  send(answer: LiveAnswer): boolean {
    if (this.isClosed || answer.tag === this.tag) return false;
    this.tag = answer.tag;
    this.listener.answer(answer);
    return true;
  }

  /** An answer that waits stays: it is withdrawn if the caller turns out to have other rights. */
  onUnresolved(): void {}

  onClosed(): void {
    this.engine.topics.leave(this);
  }

  ping(): void {
    this.listener.ping();
  }

  end(error: unknown): void {
    this.listener.end(error);
  }
}

export class Topic implements Dependent {
  readonly probe: LinkValue | null;
  since = 0;
  found: FoundLinks | null = null;
  readonly subscribers = new Set<QuerySubscriber>();
  /** The tag of the last answer; '' before the first. */
  tag = '';
  isRunning = false;
  /** How many reads have begun. */
  reads = 0;
  /** How many reads had begun when the last subscriber joined that waits for an answer. */
  awaitedSince = 0;
  /** Whether it has to be read again after the running read. */
  isDirty = false;
  /** Failed attempts since the last answer. */
  failures = 0;

  constructor(
    readonly shape: LiveShape,
    readonly key: string,
    readonly prepared: PreparedRead,
  ) {
    const { probe } = shape.dependencies;
    this.probe = probe && probeKey(probe, prepared.query.values, prepared.caller);
  }

  /** Subscribers that may get the answer of the last read: they are resolved, and joined before it began. */
  get current(): QuerySubscriber[] {
    return [...this.subscribers].filter(({ isResolved, joinedAt }) => isResolved && joinedAt < this.reads);
  }
}

type LiveShape = DependentShape<Topic>;

/** All topics, by the statements that read them and the tables that these depend on. */
export class Topics {
  readonly #index = new DependencyIndex<Topic>();
  /** Null until the tables below each view are known. */
  #sources: Sources | null = null;

  /** `digestOf` differs for reads whose callers the database distinguishes. */
  constructor(private readonly digestOf: (read: PreparedRead) => string) {}

  get shapes(): number {
    return this.#index.shapes.size;
  }

  get size(): number {
    return this.#index.size;
  }

  all(): Iterable<Topic> {
    return this.#index.all();
  }

  /** Tables or views may have been added. */
  forgetSources(): void {
    this.#sources = null;
  }

  /** Every subscriber has to join again. */
  reset(sources: Sources): void {
    this.#sources = sources;
    this.#index.clear();
  }

  join(subscriber: QuerySubscriber, prepared: PreparedRead): Topic {
    const { compiled, query, caller } = prepared;
    const shape = this.#index.shapes.get(compiled) ?? this.#newShape(compiled);
    const values = bind(compiled.statement.parameters, query.values, caller);
    const key = JSON.stringify([this.digestOf(prepared), ...values]);
    const topic = shape.entries.get(key) ?? new Topic(shape, key, prepared);
    if (subscriber.topic !== topic) this.leave(subscriber);
    this.#index.add(shape, topic);
    subscriber.topic = topic;
    topic.subscribers.add(subscriber);
    return topic;
  }

  leave(subscriber: QuerySubscriber): void {
    const { topic } = subscriber;
    subscriber.topic = null;
    if (topic === null) return;
    topic.subscribers.delete(subscriber);
    if (topic.subscribers.size === 0) this.#index.remove(topic.shape, topic);
  }

  #newShape(compiled: CompiledRead): LiveShape {
    const dependencies = dependenciesOf(compiled, this.#sources ?? new Map());
    if (this.#sources !== null && dependencies.unseen !== null)
      throw unprocessable(
        `This query cannot be live, because some changes of its data are not reported: ${dependencies.unseen}`,
      );
    return new DependentShape(compiled, dependencies);
  }

  /** A read of the topic begins. */
  begin(topic: Topic): void {
    topic.since = this.#index.journal.end;
  }

  /** The topic has an answer. Returns whether no change since its read began may change it. */
  settle(topic: Topic, links: string | null | undefined): boolean {
    const { shape, key } = topic;
    // Everybody may have left it.
    if (shape.entries.get(key) !== topic || this.#index.shapes.get(shape.compiled) !== shape) return true;
    return this.#index.settle(shape, topic, { links, hidesRows: false }) !== null;
  }

  /** The topics whose answer may differ after the change. */
  touchedBy(change: TableChanges): Iterable<Topic> {
    return this.#index.touchedBy(change);
  }

  /** The columns of a table, by position, that decide which topics a change touches; null if no topic reads the table. */
  wanted(table: LoggedTable): readonly boolean[] | null {
    return this.#index.wanted(table);
  }
}

/** Reads at the same time: more would delay those of requests. */
const MAX_RUNNING = 1_000;

/** When a read began. */
export interface ReadStart {
  /** How far the log had been read, in bytes. */
  readonly position: number;
  /** When the oldest change was committed that led to the read, in milliseconds since 1970. */
  readonly changedAt: number;
}

export interface TopicListener {
  /** How far the log has been read, in bytes. */
  readonly position: number;
  onAnswer(topic: Topic, cell: Buffer | null, start: ReadStart): void;
  onFailure(topic: Topic, error: unknown): void;
}

interface TopicServices {
  readonly topics: Topics;
  readonly reads: Reads;
  readonly visibility: CommitVisibility;
  readonly stats: LiveStats;
  readonly rights: Rights;
}

/** Reads the topics whose answer may have changed: together, and at most once per interval. */
export class TopicReader {
  readonly #dirty = new Set<Topic>();
  #running = 0;
  #timer: NodeJS.Timeout | null = null;
  #readAt = 0;

  constructor(
    private readonly services: TopicServices,
    private readonly intervalMs: number,
    private readonly listener: TopicListener,
  ) {}

  /** Reads it soon, or at once if `now`. */
  touch(topic: Topic, now = false): void {
    if (topic.isRunning) topic.isDirty = true;
    else this.#dirty.add(topic);
    this.#schedule(now);
  }

  stop(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#dirty.clear();
  }

  #schedule(now: boolean): void {
    if (this.#dirty.size === 0 || (this.#timer && !now)) return;
    if (this.#timer) clearTimeout(this.#timer);
    const wait = now ? 0 : Math.max(0, this.#readAt + this.intervalMs - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#read();
    }, wait);
  }

  /** A change may arrive by the log before it is visible to reads. */
  async #read(): Promise<void> {
    this.#readAt = performance.now();
    const start = { position: this.listener.position, changedAt: this.services.stats.takeChangedAt() };
    const topics: Topic[] = [];
    for (const topic of this.#dirty) {
      if (topics.length + this.#running >= MAX_RUNNING) break;
      this.#dirty.delete(topic);
      // Changes from now on are for the next read.
      topic.isRunning = true;
      this.services.topics.begin(topic);
      topics.push(topic);
    }
    this.#running += topics.length;
    await this.services.visibility.wait();
    for (const topic of topics) this.#send(topic, start);
  }

  #send(topic: Topic, start: ReadStart): void {
    const { reads, stats, rights } = this.services;
    const { generation } = rights;
    /** Answers that were read under former rights are not sent. */
    const isCurrent = (): boolean => generation === rights.generation;
    const done = (): void => {
      topic.isRunning = false;
      this.#running--;
      if ((topic.isDirty || !isCurrent()) && topic.subscribers.size > 0) this.#dirty.add(topic);
      topic.isDirty = false;
      this.#schedule(this.#running + this.#dirty.size >= MAX_RUNNING);
    };
    const fail = (error: unknown): void => {
      if (isCurrent()) this.listener.onFailure(topic, error);
      done();
    };
    if (topic.subscribers.size === 0) {
      done();
      return;
    }
    stats.reads++;
    topic.reads++;
    try {
      reads.answer(topic.prepared, {
        // An aborted read would be answered as if the item did not exist.
        aborted: false,
        caller: callerName(topic.prepared.caller, { address: '' }),
        onResult: (cell, _, links) => {
          if (!this.services.topics.settle(topic, links)) topic.isDirty = true;
          if (isCurrent()) this.listener.onAnswer(topic, cell, start);
          done();
        },
        onError: fail,
      });
    } catch (error) {
      fail(error);
    }
  }
}

/** Milliseconds of one slice. */
const SLICE_MS = 4;
/** Subscribers between two checks of the clock. */
const STRIDE = 16;

/**
 * Writing to ten thousand connections takes a tenth of a second, so it is done in slices, between which requests are served and other
 * topics get their turn. A newer answer replaces the one that is being sent: subscribers that do not have that one yet get the newer one
 * at once, the others in the next round. No subscriber waits longer than one round.
 */
export class Publisher {
  /** In the order of their turns. */
  readonly #publications = new Map<Topic, Publication>();
  #next: NodeJS.Immediate | null = null;

  constructor(private readonly onSent: () => void) {}

  /** Calls back when every current subscriber has the answer, or a newer one. */
  publish(topic: Topic, answer: LiveAnswer, onDone: () => void): void {
    const running = this.#publications.get(topic);
    if (running) {
      running.replace(answer, onDone);
      return;
    }
    const publication = new Publication(topic, answer, onDone);
    // A small topic is served at once, unless others wait.
    const isSmall = topic.subscribers.size <= STRIDE && this.#publications.size === 0;
    if (isSmall && this.#advance(publication, Number.POSITIVE_INFINITY)) return;
    this.#publications.set(topic, publication);
    this.#next ??= setImmediate(() => this.#slice());
  }

  #slice(): void {
    const until = performance.now() + SLICE_MS;
    this.#next = null;
    for (const [topic, publication] of this.#publications) {
      const isDone = this.#advance(publication, until);
      this.#publications.delete(topic);
      // Its next turn comes after those that wait.
      if (!isDone) this.#publications.set(topic, publication);
      if (performance.now() > until) break;
    }
    if (this.#publications.size > 0) this.#next ??= setImmediate(() => this.#slice());
  }

  /** Returns whether it is done. */
  #advance(publication: Publication, until: number): boolean {
    for (let count = 1; ; count++) {
      const subscriber = publication.next();
      if (subscriber === null) return true;
      if (subscriber.send(publication.answer)) this.onSent();
      if (count % STRIDE === 0 && performance.now() > until) return false;
    }
  }
}

/** Visits the subscribers of a topic until all of them have its newest answer. */
class Publication {
  answer: LiveAnswer;
  /** The number of the read: subscribers that joined or were resolved since it began wait for the next one. */
  #read: number;
  #left: Iterator<QuerySubscriber>;
  /** Whether some of the visited subscribers have an older answer. */
  #isBehind = false;
  /** How many subscribers were visited. */
  #visited = 0;
  /** Callbacks, each with the count of visits after which all subscribers of its time were visited. */
  #waiting: { readonly until: number; readonly onDone: () => void }[];

  constructor(
    private readonly topic: Topic,
    answer: LiveAnswer,
    onDone: () => void,
  ) {
    this.answer = answer;
    this.#read = topic.reads;
    this.#left = topic.subscribers.values();
    this.#waiting = [{ until: topic.subscribers.size, onDone }];
  }

  replace(answer: LiveAnswer, onDone: () => void): void {
    this.answer = answer;
    this.#read = this.topic.reads;
    this.#isBehind = true;
    this.#waiting.push({ until: this.#visited + this.topic.subscribers.size, onDone });
  }

  /** The next subscriber that may get the answer, or null if there is none. */
  next(): QuerySubscriber | null {
    for (;;) {
      const { value: subscriber, done } = this.#left.next();
      if (done && !this.#isBehind) break;
      if (done) {
        this.#isBehind = false;
        this.#left = this.topic.subscribers.values();
        continue;
      }
      this.#visited++;
      this.#callBack(this.#visited);
      // After a change of rights, subscribers are resolved again and wait for the next read.
      if (subscriber.isResolved && subscriber.joinedAt < this.#read) return subscriber;
    }
    this.#callBack(Number.POSITIVE_INFINITY);
    return null;
  }

  #callBack(visited: number): void {
    for (let [first] = this.#waiting; first && first.until < visited; [first] = this.#waiting) {
      this.#waiting.shift();
      first.onDone();
    }
  }
}
