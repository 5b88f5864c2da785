/** Reads topics whose answer may have changed: together, at most once per interval, and so many at a time. */
import { callerName } from '../../access/identity.js';
import type { Reads } from '../../engine/reads/reads.js';
import type { CommitVisibility } from '../changes/visibility.js';
import type { LiveStats } from '../live-stats.js';
import type { Topic } from './topic.js';

/** Reads at the same time: more would stand before those of others. */
const MAX_RUNNING = 1_000;

export interface ReadMoment {
  /** How far the log was read before, in bytes. */
  readonly position: number;
  /** When the oldest change was committed that led to the read, in milliseconds since 1970. */
  readonly changedAt: number;
}

export interface TopicListener {
  /** How far the log was read, in bytes. */
  readonly position: number;
  /** Grows when rights change: what was read before is read again. */
  readonly generation: number;
  onAnswer(topic: Topic, cell: Buffer | null, moment: ReadMoment): void;
  onFailure(topic: Topic, error: unknown): void;
}

export class TopicReader {
  readonly #reads: Reads;
  readonly #visibility: CommitVisibility;
  readonly #stats: LiveStats;
  readonly #intervalMs: number;
  readonly #listener: TopicListener;
  readonly #dirty = new Set<Topic>();
  #running = 0;
  #timer: NodeJS.Timeout | null = null;
  #readAt = 0;

  constructor(
    reads: Reads,
    visibility: CommitVisibility,
    stats: LiveStats,
    intervalMs: number,
    listener: TopicListener,
  ) {
    this.#reads = reads;
    this.#visibility = visibility;
    this.#stats = stats;
    this.#intervalMs = intervalMs;
    this.#listener = listener;
  }

  /** It is read soon; `now` for whom somebody waits. */
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
    const wait = now ? 0 : Math.max(0, this.#readAt + this.#intervalMs - performance.now());
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#read();
    }, wait);
  }

  /** What was committed must be visible before it is read: the log may be faster. */
  async #read(): Promise<void> {
    this.#readAt = performance.now();
    const moment = { position: this.#listener.position, changedAt: this.#stats.takeChangedAt() };
    const topics: Topic[] = [];
    for (const topic of this.#dirty) {
      if (topics.length + this.#running >= MAX_RUNNING) break;
      this.#dirty.delete(topic);
      // What changes from now on is for the next read.
      topic.isRunning = true;
      topics.push(topic);
    }
    this.#running += topics.length;
    await this.#visibility.wait();
    for (const topic of topics) this.#send(topic, moment);
  }

  #send(topic: Topic, moment: ReadMoment): void {
    const listener = this.#listener;
    const { generation } = listener;
    /** Of former rights nothing is told. */
    const isCurrent = (): boolean => generation === listener.generation;
    const done = (): void => {
      topic.isRunning = false;
      this.#running--;
      if ((topic.isDirty || !isCurrent()) && topic.subscribers.size > 0) this.#dirty.add(topic);
      topic.isDirty = false;
      this.#schedule(this.#running + this.#dirty.size >= MAX_RUNNING);
    };
    const fail = (error: unknown): void => {
      if (isCurrent()) listener.onFailure(topic, error);
      done();
    };
    if (topic.subscribers.size === 0) {
      done();
      return;
    }
    this.#stats.reads++;
    topic.reads++;
    try {
      this.#reads.answer(topic.prepared, {
        // A read that is left out would be answered as if there were no such item.
        aborted: false,
        caller: callerName(topic.prepared.caller, { address: '' }),
        onResult: (cell) => {
          if (isCurrent()) listener.onAnswer(topic, cell, moment);
          done();
        },
        onError: fail,
      });
    } catch (error) {
      fail(error);
    }
  }
}
