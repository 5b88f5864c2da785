/** The reads of one shape that wait or are in flight: how many of them one statement carries, and on which connections. */
import { performance } from 'node:perf_hooks';
import { batchText } from '../../compiler/statements/read.js';
import { type CallerSettings, haveEqualSettings } from '../../server/access/database-caller.js';
import type { ShapeRecord, ShapeStats } from '../../server/batching/shape-stats.js';
import { type BoundRead, planKindOf, type ReadListener, type Shape } from '../../server/execute/reads/read-executor.js';
import type { ConnectionSlot, ReadProfile } from './connection-slots.js';
import { type CostClass, CostModel, MAX_BATCH_READS } from './cost-model.js';

/** Statements of cheap reads in flight on a connection: while one is in PostgreSQL, the other is in Node. */
const MAX_STATEMENTS_IN_FLIGHT = 2;
/** Connections while the reads of a shape have different callers in the database: each caller needs a transaction. */
const MAX_APART_SLOTS = 4;
/** Transactions in flight on each of these connections, if they cannot be sent together. */
const MAX_APART_IN_FLIGHT = 4;
/** A connection that is so many times slower than another gets no second statement. */
const MAX_SLOT_SLOWDOWN = 2;
/** While others are answered from memory, so many reads wait for one another, at most so many milliseconds. */
const GATHERED_READS = 8;
const MAX_GATHERING_MS = 2;
/** After this time reads stop waiting for a batch, if a connection is free. */
export const MAX_BATCH_WAIT_MS = 20;

export class PendingRead {
  /** Whether it was returned because its connection could not be opened. */
  isReturned = false;
  #answered = false;

  readonly parameters: (string | null)[];
  readonly settings: CallerSettings | null;

  constructor(
    private readonly read: BoundRead,
    private readonly listener: ReadListener,
    /** The number of the sweep after which it arrived. */
    readonly arrived: number,
  ) {
    this.parameters = read.parameters;
    this.settings = read.settings;
  }

  get prepare(): boolean {
    return this.read.prepare && !this.read.shape.isUnprepared;
  }

  get isGone(): boolean {
    return this.listener.aborted;
  }

  get isAnswered(): boolean {
    return this.#answered;
  }

  get caller(): string {
    return this.listener.caller ?? '';
  }

  onResult(cell: Buffer | null, reads: number, links?: string | null): void {
    if (this.#answered) return;
    this.#answered = true;
    try {
      this.listener.onResult(cell, reads, links);
    } catch (error) {
      this.listener.onError(error);
    }
  }

  onError(error: unknown): void {
    if (this.#answered) return;
    this.#answered = true;
    this.listener.onError(error);
  }
}

export class ShapeQueue implements ReadProfile {
  readonly waiting: PendingRead[] = [];
  /** Reads whose batch failed or took too long: each is sent by itself. */
  readonly individual: PendingRead[] = [];
  isQueued = false;
  readonly #costs = new CostModel();
  readonly #slots: ConnectionSlot[] = [];
  #readsInFlight = 0;
  /** When a statement was last sent. */
  #sentAt = 0;
  #batchText: string | null = null;
  /** The number of reads that were answered from memory, in the last turn of the event loop or when the first of these reads arrived. */
  answered = 0;
  /** Since when reads wait because others are answered from memory; 0 if they do not. */
  #gatheringSince = 0;
  /** Whether waiting reads have callers with different settings, as far as the last statements showed. */
  isApart = false;
  #record: ShapeRecord;

  constructor(
    readonly shape: Shape,
    private readonly stats: ShapeStats,
    /** Whether the transactions of several callers can be sent together. */
    private readonly pipelines: boolean,
  ) {
    this.#record = recordOf(shape, stats);
  }

  get isEmpty(): boolean {
    return this.waiting.length === 0 && this.individual.length === 0;
  }

  get costClass(): CostClass {
    return this.#costs.costClass;
  }

  get #mayBeSlow(): boolean {
    const { costClass } = this.#costs;
    return costClass === 'unknown' || costClass === 'slow';
  }

  get isLimited(): boolean {
    return this.#mayBeSlow || !this.#mayUseAnotherSlot;
  }

  /** The caller of the next read if it is or may be slow, so that other callers find connections; else ''. */
  get caller(): string {
    return this.#mayBeSlow ? ((this.individual[0] ?? this.waiting[0])?.caller ?? '') : '';
  }

  get #mayUseAnotherSlot(): boolean {
    return this.#slots.length < this.#maxSlots;
  }

  get #maxSlots(): number {
    return this.isApart ? MAX_APART_SLOTS : this.#costs.maxSlots;
  }

  get #maxInFlight(): number {
    if (!this.isApart) return MAX_STATEMENTS_IN_FLIGHT;
    return this.pipelines ? 1 : MAX_APART_IN_FLIGHT;
  }

  /** Whether each of the waiting reads is sent by itself, because of its caller. */
  get #isSentAlone(): boolean {
    return this.isApart && !this.pipelines;
  }

  /** Reads that the next statement may carry. */
  get maxReads(): number {
    const { batchSize, costClass } = this.#costs;
    return costClass === 'cheap' && !this.#isSentAlone ? Math.min(batchSize, this.#share) : batchSize;
  }

  get isBatchable(): boolean {
    return this.batchText !== '';
  }

  /** The statement for many sets of values, or empty if there is none: one that is just small enough for one read may be too large or too deep. */
  get batchText(): string {
    try {
      const { plan, model, linked = null } = this.shape;
      this.#batchText ??= plan && model ? batchText({ plan, model }, linked) : '';
    } catch {
      this.#batchText = '';
    }
    return this.#batchText;
  }

  /** Reads per statement that keep all of its connections busy. */
  get #share(): number {
    const statements = this.#maxSlots * this.#maxInFlight;
    return Math.ceil((this.waiting.length + this.#readsInFlight) / statements);
  }

  /** Whether to wait for more reads: not if that would leave the database idle. */
  shouldWait(now: number): boolean {
    if (this.costClass !== 'cheap' || this.#slots.length === 0 || now - this.#sentAt > MAX_BATCH_WAIT_MS) return false;
    const wanted = this.#isSentAlone ? 1 : Math.min(this.#share, MAX_BATCH_READS);
    return this.waiting.length < wanted || !(this.#mayUseAnotherSlot || this.busySlot);
  }

  /**
   * Whether to wait for more reads, because this thread answers others from memory: it would be no sooner idle, and few reads at a time
   * need PostgreSQL. As soon as a turn of the event loop answers none, reads are sent.
   */
  shouldGather(now: number, answered: number): boolean {
    const isBusy = answered !== this.answered;
    this.answered = answered;
    const wanted = Math.min(GATHERED_READS, this.#costs.batchSize);
    if (!isBusy || this.#mayBeSlow || this.waiting.length >= wanted || !this.isBatchable) return false;
    if (this.#gatheringSince === 0) this.#gatheringSince = now;
    return now - this.#gatheringSince < MAX_GATHERING_MS;
  }

  /**
   * The connection that may get a second statement, because a batch can be split; null if it needs a connection of its own. A backend
   * that finds more work need not be woken, which costs more than the work.
   */
  get busySlot(): ConnectionSlot | null {
    if (this.costClass !== 'cheap' || this.#mayUseAnotherSlot || !this.isBatchable) return null;
    let least = Infinity;
    for (const { slowdown } of this.#slots) least = Math.min(least, slowdown);
    const maxInFlight = this.#maxInFlight;
    const isFree = (slot: ConnectionSlot): boolean => slot.load < maxInFlight && !slot.isPipeline;
    return this.#slots.find((slot) => isFree(slot) && slot.slowdown <= MAX_SLOT_SLOWDOWN * least) ?? null;
  }

  onSent(reads: number, slot: ConnectionSlot, now: number): void {
    this.#gatheringSince = 0;
    if (slot.load++ === 0) this.#slots.push(slot);
    this.#readsInFlight += reads;
    this.#sentAt = now;
  }

  /** Returns for how many milliseconds they were in flight. */
  onAnswered(reads: number, slot: ConnectionSlot, sentAt: number): number {
    if (--slot.load === 0) {
      this.#slots.splice(this.#slots.indexOf(slot), 1);
      slot.isPipeline = false;
    }
    this.#readsInFlight -= reads;
    const now = performance.now();
    // The time behind another statement is not its own.
    const ms = now - Math.max(sentAt, slot.answeredAt);
    slot.answeredAt = now;
    return ms;
  }

  /** Counts the rows of some answers. */
  sample(cell: Buffer | null): void {
    this.#record.sample(cell, this.shape.result === 'operation');
  }

  /** Remembers the duration of a statement. */
  learn(ms: number, reads: number, slot: ConnectionSlot, failed: boolean): void {
    if (!this.#record.isKept) this.#record = recordOf(this.shape, this.stats);
    this.#record.add(slot.answeredAt, ms, reads, failed);
    const expected = this.#costs.expectedMs(reads);
    if (expected !== null && !failed) slot.slowdown += (ms / expected - slot.slowdown) / 2;
    this.#costs.learn(ms, reads, failed);
  }

  markSlow(): void {
    this.#costs.markSlow();
  }

  /** Removes reads that arrived before the given sweep. */
  takeExpired(arrived: number): PendingRead[] {
    const isExpired = (read: PendingRead): boolean => read.arrived <= arrived;
    const expired = [...this.waiting, ...this.individual].filter(isExpired);
    if (expired.length > 0)
      for (const list of [this.waiting, this.individual])
        list.splice(0, Infinity, ...list.filter((read) => !isExpired(read)));
    return expired;
  }

  /** The reads to send next, without those whose client has left. */
  next(maxReads: number): PendingRead[] {
    const reads = this.individual.length > 0 ? this.individual.splice(0, 1) : this.#takeTogether(maxReads);
    for (const read of reads) if (read.isGone) read.onResult(null, 1);
    return reads.some((read) => read.isAnswered) ? reads.filter((read) => !read.isAnswered) : reads;
  }

  /** The first reads that wait; only those that the database cannot distinguish, unless transactions of several callers can be sent together. */
  #takeTogether(maxReads: number): PendingRead[] {
    const { waiting } = this;
    const settings = waiting[0]?.settings ?? null;
    const isAlike = (read: PendingRead | undefined): boolean => haveEqualSettings(read?.settings ?? null, settings);
    let alike = 1;
    while (alike < maxReads && alike < waiting.length && isAlike(waiting[alike])) alike++;
    if (alike >= Math.min(maxReads, waiting.length)) {
      if (alike > 1) this.isApart = false;
      return waiting.splice(0, maxReads);
    }
    this.isApart = true;
    if (this.pipelines) return waiting.splice(0, maxReads);
    const [taken, left]: [PendingRead[], PendingRead[]] = [[], []];
    for (const read of waiting) (taken.length < maxReads && isAlike(read) ? taken : left).push(read);
    waiting.splice(0, Number.POSITIVE_INFINITY, ...left);
    return taken;
  }
}

function recordOf(shape: Shape, stats: ShapeStats): ShapeRecord {
  const { text, parameters } = shape.statement;
  return stats.of(shape.linked?.plainText ?? text, planKindOf(shape), parameters.length);
}
