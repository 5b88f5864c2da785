/**
 * Subscriptions that get the same answer: they read with one statement and equal values, so that one read serves all of them.
 * A statement belongs to what its callers may see, and the caller's own values are among its values.
 */
import type { Identity } from '../../access/identity.js';
import type { CompiledRead } from '../../engine/reads/compiled-read.js';
import type { PreparedRead } from '../../engine/reads/reads.js';
import type { TableChanges } from '../changes/change-source.js';
import { changedKeys, type Dependencies, probeKey } from '../dependencies.js';
import { type LiveAnswer, type LiveListener, type LiveSource, NOBODY } from '../subscriber.js';
import { nextPhase } from './sweep.js';

/** Instead of the tag of an answer: there was one, which was not sent and must not be any more. */
const WITHDRAWN = 'withdrawn';

export class Subscriber {
  readonly source: LiveSource;
  readonly listener: LiveListener;
  /** Whose it is, for limits; null until that is known. */
  owner: string | null = null;
  caller: Identity | null = null;
  topic: Topic | null = null;
  #generation = NOBODY;
  /** Under which rights it has got what it got last. */
  #joined: { readonly generation: number; readonly topic: Topic | null } = { generation: NOBODY, topic: null };
  /** How many reads of its topic had begun when it joined: what these find is too old for it. */
  joinedAt = 0;
  /** Of the answer that it has; '' for none. */
  tag = '';
  isClosed = false;
  /** Counts its resolutions: what an older one finds out is void. */
  turn = 0;
  readonly phase = nextPhase();

  constructor(source: LiveSource, listener: LiveListener) {
    this.source = source;
    this.listener = listener;
  }

  /** Of the rights under which it has joined its topic. */
  get generation(): number {
    return this.#generation;
  }

  set generation(generation: number) {
    this.#generation = generation;
    // Who asks is looked up from time to time, and mostly is who they were.
    if (generation === NOBODY) return;
    const { topic } = this;
    const isSame = generation === this.#joined.generation && topic === this.#joined.topic;
    this.#joined = { generation, topic };
    if (this.listener.withdraw(isSame)) this.tag = WITHDRAWN;
  }

  /** Answers whether it had another one. */
  send(answer: LiveAnswer): boolean {
    if (this.isClosed || answer.tag === this.tag) return false;
    this.tag = answer.tag;
    this.listener.answer(answer);
    return true;
  }
}

export class Topic {
  readonly shape: LiveShape;
  readonly key: string;
  readonly prepared: PreparedRead;
  readonly probe: string | null;
  readonly subscribers = new Set<Subscriber>();
  /** Of the last answer; '' before the first. */
  tag = '';
  isRunning = false;
  /** How many have begun. */
  reads = 0;
  /** How many had begun when the last one joined who waits for an answer. */
  awaitedSince = 0;
  /** Whether it has to be read again when the running read is done. */
  isDirty = false;
  /** Failed attempts since the last answer. */
  failures = 0;

  constructor(shape: LiveShape, key: string, prepared: PreparedRead) {
    this.shape = shape;
    this.key = key;
    this.prepared = prepared;
    const { probe } = shape.dependencies;
    this.probe = probe && probeKey(probe, prepared.query.values, prepared.caller);
  }
}

/** All topics of one statement. */
export class LiveShape {
  readonly compiled: CompiledRead;
  readonly dependencies: Dependencies;
  readonly topics = new Map<string, Topic>();
  /** By the values of the probe. */
  readonly #byProbe = new Map<string, Set<Topic>>();
  /** Those without such values. */
  readonly #unprobed = new Set<Topic>();

  constructor(compiled: CompiledRead, dependencies: Dependencies) {
    this.compiled = compiled;
    this.dependencies = dependencies;
  }

  add(topic: Topic): void {
    this.topics.set(topic.key, topic);
    if (topic.probe === null) this.#unprobed.add(topic);
    else {
      const alike = this.#byProbe.get(topic.probe) ?? new Set();
      this.#byProbe.set(topic.probe, alike.add(topic));
    }
  }

  remove(topic: Topic): void {
    this.topics.delete(topic.key);
    this.#unprobed.delete(topic);
    if (topic.probe === null) return;
    const alike = this.#byProbe.get(topic.probe);
    alike?.delete(topic);
    if (alike?.size === 0) this.#byProbe.delete(topic.probe);
  }

  /** The topics whose answer may be another after the change of a table that they depend on. */
  *touchedBy({ table, rows }: TableChanges): Iterable<Topic> {
    const { probe } = this.dependencies;
    if (probe === null || rows === null || probe.table !== table.name || probe.schema !== table.schema) {
      yield* this.topics.values();
      return;
    }
    const keys = new Set<string>();
    for (const row of rows) {
      const changed = changedKeys(probe, row);
      if (changed === null) {
        yield* this.topics.values();
        return;
      }
      for (const key of changed) keys.add(key);
    }
    yield* this.#unprobed;
    for (const key of keys) yield* this.#byProbe.get(key) ?? [];
  }
}
