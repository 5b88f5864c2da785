/**
 * Live queries: a subscription gets the answer of a read, and a new one whenever it changes. A change touches the topics that depend on
 * it; they are read again, together, at most once per interval. After every change of users, policies or the schema each subscription
 * is resolved again, and answers that were read under former rights are not sent. Events (`../events`) share the stream of changes.
 */

import { forbidden, invalidQuery, isPassing } from '../../base/errors.js';
import type { Identity } from '../../server/access/identity.js';
import type { Policies } from '../../server/access/policies.js';
import type { LoggedTable, Sources, Transaction } from '../../server/changes/change-source.js';
import type { ChangeListener, Changes } from '../../server/changes/changes.js';
import { isStream } from '../../server/execute/reads/compiled-read.js';
import type { Reads } from '../../server/execute/reads/reads.js';
import { NO_CLIENT } from '../../server/execute/stages.js';
import { tagOf } from '../../server/http/etag.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';
import { positionText } from '../../server/postgres/wire/log-position.js';
import { LiveEvents } from './live-events.js';
import { LiveStats } from './live-stats.js';
import {
  type LiveListener,
  type LiveSource,
  type Rights,
  Subscribers,
  type SubscriptionLimits,
} from './subscribers.js';
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
  /** Milliseconds. */
  readonly interval: number;
}

export interface LiveServices {
  readonly reads: Reads;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly changes: Changes;
}

/** Milliseconds between two polls of everything while no changes arrive. */
const POLL_MS = 1_000;
const MAX_RETRY_MS = 5_000;

export class LiveQueries implements ChangeListener, QueryEngine, TopicListener, Rights {
  readonly #reads: Reads;
  readonly #changes: Changes;
  readonly stats = new LiveStats();
  readonly events: LiveEvents;
  readonly topics = new Topics((read) => this.#reads.settingsOf(read)?.digest ?? '');
  readonly #subscribers: Subscribers;
  readonly #reader: TopicReader;
  readonly #publisher = new Publisher(() => this.stats.sent++);
  #polling: NodeJS.Timeout | null = null;

  constructor(
    { reads, mirror, policies, changes }: LiveServices,
    private readonly limits: LiveLimits,
  ) {
    this.#reads = reads;
    this.#changes = changes;
    const { stats } = this;
    const { visibility, stream } = changes;
    const subscribers = new Subscribers(limits, () => this.#onEmpty());
    this.#subscribers = subscribers;
    this.events = new LiveEvents(
      { reads, mirror, policies, visibility, stats },
      {
        subscribers,
        interval: limits.interval,
        isOpen: () => stream.state === 'open',
        open: async () => {
          await this.#open();
          // A subscription to events that begins before the stream is open begins again when it is.
          await changes.opened();
        },
      },
    );
    this.#reader = new TopicReader(
      { topics: this.topics, reads, visibility, stats, rights: this },
      limits.interval,
      this,
    );
    changes.add(this);
    mirror.onChange(() => {
      this.#outdateSources();
      this.rightsChanged();
    });
    policies.onChange(() => this.rightsChanged());
  }

  get generation(): number {
    return this.#subscribers.generation;
  }

  get position(): number {
    return this.#changes.stream.position;
  }

  get subscriptions(): number {
    return this.#subscribers.counts.total;
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
  stop(): void {
    this.#subscribers.endAll();
    this.#onEmpty();
  }

  async #open(): Promise<void> {
    await this.#changes.hold(this);
    if (this.subscriptions === 0) this.#changes.release(this);
    else if (this.#polling === null) {
      this.#polling = setInterval(() => {
        if (this.#changes.stream.state !== 'open') this.#touchAll();
      }, POLL_MS).unref();
      this.#subscribers.start();
    }
  }

  #onEmpty(): void {
    if (this.#polling) clearInterval(this.#polling);
    this.#polling = null;
    this.#subscribers.stop();
    this.#reader.stop();
    this.events.stop();
    this.#changes.release(this);
  }

  async resolve(subscriber: QuerySubscriber, caller: Identity, isValid: () => boolean): Promise<void> {
    const { source } = subscriber;
    const query = await source.parse(caller);
    const compiled = await this.#reads.prepare(query, caller, { ...NO_CLIENT, address: source.address });
    if (!isValid()) return;
    if (isStream(compiled)) throw invalidQuery('A live query cannot be an export');
    const topic = subscriber.join({ query, compiled, caller, need: null, links: true });
    if (!topic.isRunning && subscriber.tag !== '' && subscriber.tag === topic.tag) return;
    // A read that runs began too early for this subscriber: it may have a newer answer.
    topic.tag = '';
    topic.awaitedSince = topic.reads;
    this.#reader.touch(topic, true);
  }

  wanted(table: LoggedTable): readonly boolean[] | null {
    const [ofTopics, ofEvents] = [this.topics.wanted(table), this.events.wanted(table)];
    return ofTopics && ofEvents
      ? ofTopics.map((isWanted, position) => isWanted || ofEvents[position] === true)
      : (ofTopics ?? ofEvents);
  }

  committed(transaction: Transaction): void {
    this.stats.transactions++;
    for (const change of transaction.changes)
      for (const topic of this.topics.touchedBy(change)) {
        this.stats.changedAt = Math.min(this.stats.changedAt, transaction.time);
        this.#reader.touch(topic);
      }
    this.events.committed(transaction);
  }

  /** The tables below views may have changed too, so every subscription is resolved again. */
  resynced(sources: Sources): void {
    this.topics.reset(sources);
    this.events.resynced(sources);
    this.stats.resyncs++;
    this.rightsChanged();
  }

  lost(): void {
    this.#touchAll();
  }

  refreshing(): void {
    this.#outdateSources();
  }

  late(): void {
    this.stats.resyncs++;
    this.events.miss();
    this.#touchAll();
  }

  /** Tables or views may have been added. Until they are known, nothing is refused for lack of a table. */
  #outdateSources(): void {
    this.topics.forgetSources();
    this.events.outdateSources();
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
