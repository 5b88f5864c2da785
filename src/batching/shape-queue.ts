/** The reads of one shape that wait or are in flight: how many of them one statement carries, and on which connections. */
import { performance } from 'node:perf_hooks';
import { copyBorrowed } from '../postgres/wire/wire-query.js';
import type { ConnectionSlot, ReadProfile } from './connection-slots.js';
import { type CostClass, CostModel, MAX_BATCH_READS } from './cost-model.js';
import type { PlanKind, ShapeRecord, ShapeStats } from './shape-stats.js';

/** A read that may share one statement with others. */
export interface Shape {
  readonly statement: { readonly text: string; readonly parameters: readonly unknown[] };
  /** What it answers with: of an operation, several lists. */
  readonly result?: string;
  /** The statement for many sets of values; compiled when it is first needed. Empty where there is none. */
  readonly batchText: () => string;
  /** Whether connections do not keep the statement: it is parsed and planned each time. */
  readonly isUnprepared?: boolean;
  /** Whether each read is planned for its values, though connections keep the statement. */
  readonly isPlannedPerRead?: boolean;
  /** Whether its rows are found before they are put in order. */
  readonly isFenced?: boolean;
}

/** Who waits for an answer. */
export interface ReadListener {
  /** Whether the client has disconnected: its read is not sent. */
  readonly aborted: boolean;
  /** Who asks, as far as callers share connections; '' where that does not matter. */
  readonly caller?: string;
  /** The cell, borrowed from the connection for the time of the call; null when there is none. `reads` shared the statement. */
  onResult(cell: Buffer | null, reads: number): void;
  onError(error: unknown): void;
}

/** So many statements of cheap reads are in flight on a connection: while one is in PostgreSQL, the other is in Node. */
const MAX_STATEMENTS_IN_FLIGHT = 2;
/** So many times slower than another one is a connection behind whose statement none should go. */
const MAX_SLOT_SLOWDOWN = 2;
/** After this time reads do not wait for those before them, if a connection is free. */
export const MAX_BATCH_WAIT_MS = 20;

export class PendingRead {
  readonly parameters: (string | null)[];
  readonly prepare: boolean;
  /** The number of the sweep before which it arrived. */
  readonly arrived: number;
  /** Whether it was to be sent on a connection that could not be opened. */
  isReturned = false;
  readonly #listener: ReadListener;
  #answered = false;

  constructor(parameters: (string | null)[], prepare: boolean, listener: ReadListener, arrived: number) {
    this.parameters = parameters;
    this.prepare = prepare;
    this.arrived = arrived;
    this.#listener = listener;
  }

  get isGone(): boolean {
    return this.#listener.aborted;
  }

  get isAnswered(): boolean {
    return this.#answered;
  }

  get caller(): string {
    return this.#listener.caller ?? '';
  }

  onResult(cell: Buffer | null, reads: number): void {
    if (this.#answered) return;
    this.#answered = true;
    try {
      this.#listener.onResult(cell, reads);
    } catch (error) {
      this.#listener.onError(error);
    }
  }

  onError(error: unknown): void {
    if (this.#answered) return;
    this.#answered = true;
    this.#listener.onError(error);
  }
}

export class ShapeQueue implements ReadProfile {
  readonly shape: Shape;
  readonly waiting: PendingRead[] = [];
  /** Those whose batch failed or took too long: each is sent by itself. */
  readonly individual: PendingRead[] = [];
  isQueued = false;
  readonly #costs = new CostModel();
  readonly #slots: ConnectionSlot[] = [];
  #readsInFlight = 0;
  /** When a statement was last sent. */
  #sentAt = 0;
  #batchable: boolean | null = null;
  readonly #stats: ShapeStats;
  #record: ShapeRecord;

  constructor(shape: Shape, stats: ShapeStats) {
    this.shape = shape;
    this.#stats = stats;
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

  /** Whose read is the next, where it is or may be slow: others must find connections beside them. '' for no matter. */
  get caller(): string {
    return this.#mayBeSlow ? ((this.individual[0] ?? this.waiting[0])?.caller ?? '') : '';
  }

  get #mayUseAnotherSlot(): boolean {
    return this.#slots.length < this.#costs.maxSlots;
  }

  /** Reads that the next statement may carry. */
  get maxReads(): number {
    const { batchSize, costClass } = this.#costs;
    return costClass === 'cheap' ? Math.min(batchSize, this.#share) : batchSize;
  }

  /** What is just not too large or too deep for one read may be so for several. */
  get isBatchable(): boolean {
    try {
      this.#batchable ??= this.shape.batchText() !== '';
    } catch {
      this.#batchable = false;
    }
    return this.#batchable;
  }

  /** Of all reads, those that one statement should carry so that all of them keep its connections busy. */
  get #share(): number {
    const statements = this.#costs.maxSlots * MAX_STATEMENTS_IN_FLIGHT;
    return Math.ceil((this.waiting.length + this.#readsInFlight) / statements);
  }

  /** Whether it is better to wait until more have come: not when that would leave the database idle. */
  shouldWait(now: number): boolean {
    if (this.costClass !== 'cheap' || this.#slots.length === 0 || now - this.#sentAt > MAX_BATCH_WAIT_MS) return false;
    return this.waiting.length < Math.min(this.#share, MAX_BATCH_READS) || !(this.#mayUseAnotherSlot || this.busySlot);
  }

  /**
   * The connection behind whose statement another one may go, since a batch can be split; null where it needs one of its own. A
   * backend that finds work when it is done need not be woken, which costs more than the work.
   */
  get busySlot(): ConnectionSlot | null {
    if (this.costClass !== 'cheap' || this.#mayUseAnotherSlot || !this.isBatchable) return null;
    let least = Infinity;
    for (const { slowdown } of this.#slots) least = Math.min(least, slowdown);
    return (
      this.#slots.find((slot) => slot.load < MAX_STATEMENTS_IN_FLIGHT && slot.slowdown <= MAX_SLOT_SLOWDOWN * least) ??
      null
    );
  }

  onSent(reads: number, slot: ConnectionSlot, now: number): void {
    if (slot.load++ === 0) this.#slots.push(slot);
    this.#readsInFlight += reads;
    this.#sentAt = now;
  }

  /** They are not in flight any more; returns for how many milliseconds they were. */
  onAnswered(reads: number, slot: ConnectionSlot, sentAt: number): number {
    if (--slot.load === 0) this.#slots.splice(this.#slots.indexOf(slot), 1);
    this.#readsInFlight -= reads;
    const now = performance.now();
    // What it has waited for the one before it is not its own time.
    const ms = now - Math.max(sentAt, slot.answeredAt);
    slot.answeredAt = now;
    return ms;
  }

  /** Of an answer: its rows may be counted. */
  sample(cell: Buffer | null): void {
    this.#record.sample(cell, this.shape.result === 'operation');
  }

  /** Remembers what a statement took. */
  learn(ms: number, reads: number, slot: ConnectionSlot, failed: boolean): void {
    if (!this.#record.isKept) this.#record = recordOf(this.shape, this.#stats);
    this.#record.add(slot.answeredAt, ms, reads, failed);
    const expected = this.#costs.expectedMs(reads);
    if (expected !== null && !failed) slot.slowdown += (ms / expected - slot.slowdown) / 2;
    this.#costs.learn(ms, reads, failed);
  }

  markSlow(): void {
    this.#costs.markSlow();
  }

  /** Takes out those that arrived before or at the given sweep. */
  takeExpired(arrived: number): PendingRead[] {
    const isExpired = (read: PendingRead): boolean => read.arrived <= arrived;
    const expired = [...this.waiting, ...this.individual].filter(isExpired);
    if (expired.length > 0)
      for (const list of [this.waiting, this.individual])
        list.splice(0, Infinity, ...list.filter((read) => !isExpired(read)));
    return expired;
  }

  /** Those to be sent next, without those whose client has left. */
  next(maxReads: number): PendingRead[] {
    const reads = this.individual.length > 0 ? this.individual.splice(0, 1) : this.waiting.splice(0, maxReads);
    for (const read of reads) if (read.isGone) read.onResult(null, 1);
    return reads.some((read) => read.isAnswered) ? reads.filter((read) => !read.isAnswered) : reads;
  }
}

/** For which values PostgreSQL plans a shape: for none in particular, or for those of each read. */
export function planKindOf({ isFenced, isPlannedPerRead, isUnprepared }: Shape): PlanKind {
  if (isFenced) return 'fenced';
  return isPlannedPerRead || isUnprepared ? 'custom' : 'generic';
}

function recordOf(shape: Shape, stats: ShapeStats): ShapeRecord {
  return stats.of(shape.statement.text, planKindOf(shape), shape.statement.parameters.length);
}

/** Hands on what arrives; a failure may be recovered from. */
export class RecoveringListener implements ReadListener {
  readonly #listener: ReadListener;
  readonly onError: (error: unknown) => void;

  constructor(listener: ReadListener, recover: (error: unknown) => void) {
    this.#listener = listener;
    this.onError = recover;
  }

  get aborted(): boolean {
    return this.#listener.aborted;
  }

  get caller(): string {
    return this.#listener.caller ?? '';
  }

  onResult(cell: Buffer | null, reads: number): void {
    this.#listener.onResult(cell, reads);
  }
}

/** Settles a promise. */
export class PromiseListener implements ReadListener {
  readonly #request: { readonly aborted: boolean };
  readonly #resolve: (cell: Buffer | null) => void;
  readonly onError: (error: unknown) => void;
  readonly caller: string;

  constructor(
    request: { readonly aborted: boolean },
    caller: string,
    resolve: (cell: Buffer | null) => void,
    reject: (error: unknown) => void,
  ) {
    this.#request = request;
    this.caller = caller;
    this.#resolve = resolve;
    this.onError = reject;
  }

  get aborted(): boolean {
    return this.#request.aborted;
  }

  onResult(cell: Buffer | null): void {
    this.#resolve(copyBorrowed(cell));
  }
}
