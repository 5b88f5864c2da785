/**
 * What waits and what is on its way, of the reads of one shape: how dear they are, how many of them should travel together,
 * and on which connections.
 */
import { performance } from 'node:perf_hooks';
import type { ConnectionSlot, ReadProfile } from './connection-slots.js';

/** A read whose values may travel beside those of others. */
export interface Shape {
  readonly statement: { readonly text: string };
  /** The statement for many sets of values; compiled when it is first needed. */
  readonly batchText: () => string;
}

/** Who waits for an answer. */
export interface ReadListener {
  /** Whoever has left is not asked for. */
  readonly aborted: boolean;
  /** Who asks, as far as callers share connections; '' where that does not matter. */
  readonly caller?: string;
  /** The cell, lent as the connection lends it; null when there is none. */
  onResult(cell: Buffer | null): void;
  onError(error: unknown): void;
}

/** Milliseconds that a cohort may take: dear reads travel alone, cheap ones in company. */
const BATCH_BUDGET_MS = 4;
export const MAX_BATCH_READS = 64;
/** So many statements of cheap reads are on their way on a connection: while one is in PostgreSQL, the other is in Node. */
const MAX_STATEMENTS_IN_FLIGHT = 2;
/** A read is cheap when at least so many fit into the budget; of the cheapest, one backend serves more than Node can take. */
const CHEAP_READS_PER_BATCH = 8;
const CHEAPEST_READS_PER_BATCH = 80;
/** Connections that cheap reads of one shape use at a time. */
const MAX_SLOTS_OF_CHEAP_SHAPE = 2;
/** Company pays where it takes at most so many times longer than one alone; else it is not tried for so many statements. */
const MAX_BATCH_SLOWDOWN = 1.25;
const STATEMENTS_BETWEEN_TRIALS = 16;
/** Milliseconds that a statement takes by itself, at most. */
const STATEMENT_OVERHEAD_MS = 0.1;
/** So many times slower than another one is a connection behind whose statement none should go. */
const MAX_SLOT_SLOWDOWN = 2;
/** Milliseconds after which members do not wait for those before them, if a connection is free. */
export const MAX_BATCH_WAIT_MS = 20;
/** Milliseconds after which nobody waits for a cohort any more: one of its members is dear, and each is sent alone. */
export const MAX_BATCH_MS = 250;
/** Milliseconds from which a read is slow. On a busy machine the fast ones are far from cheap, and must not count as slow. */
const SLOW_READ_MS = 50;

export class PendingRead {
  readonly parameters: (string | null)[];
  readonly prepare: boolean;
  /** At which look at what waits it came. */
  readonly arrived: number;
  /** Whether it was to be sent on a connection that could not be opened. */
  isReturned = false;
  readonly #waiter: ReadListener;
  #answered = false;

  constructor(parameters: (string | null)[], prepare: boolean, waiter: ReadListener, arrived: number) {
    this.parameters = parameters;
    this.prepare = prepare;
    this.arrived = arrived;
    this.#waiter = waiter;
  }

  get isGone(): boolean {
    return this.#waiter.aborted;
  }

  get isAnswered(): boolean {
    return this.#answered;
  }

  get caller(): string {
    return this.#waiter.caller ?? '';
  }

  onResult(cell: Buffer | null): void {
    if (this.#answered) return;
    this.#answered = true;
    try {
      this.#waiter.onResult(cell);
    } catch (error) {
      this.#waiter.onError(error);
    }
  }

  onError(error: unknown): void {
    if (this.#answered) return;
    this.#answered = true;
    this.#waiter.onError(error);
  }
}

/** What waits and what is on its way, of one shape. */
export class ShapeQueue implements ReadProfile {
  readonly shape: Shape;
  readonly waiting: PendingRead[] = [];
  /** Those whose cohort failed or took too long: each is sent by itself. */
  readonly individual: PendingRead[] = [];
  /** Members on their way. */
  #carried = 0;
  /** When a statement was last sent. */
  #sent = 0;
  /** Where its statements are on their way. */
  readonly #lanes: ConnectionSlot[] = [];
  isQueued = false;
  /**
   * Milliseconds per member, null before the first answer. It falls fast and rises slowly: what a read takes when nothing is in
   * its way is its cost, the rest is waiting, which company makes shorter.
   */
  #cost: number | null = null;
  /**
   * Members that a statement may carry though they seem dear: where all processors are busy even the cheapest take long alone,
   * and hardly longer in company. It grows while company pays.
   */
  #trial = 1;
  /** Milliseconds that one takes alone, null before the first. */
  #single: number | null = null;
  /** Statements to come before company is tried again. */
  #rest = 0;
  #joinable: boolean | null = null;

  constructor(shape: Shape) {
    this.shape = shape;
  }

  get isEmpty(): boolean {
    return this.waiting.length === 0 && this.individual.length === 0;
  }

  get isUnknown(): boolean {
    return this.#cost === null;
  }

  get isSlow(): boolean {
    return this.#cost !== null && this.#cost > SLOW_READ_MS;
  }

  get isCheap(): boolean {
    return this.#cost !== null && this.#cost * CHEAP_READS_PER_BATCH <= BATCH_BUDGET_MS;
  }

  /** Whose read is the next, where it is or may be slow: others must find connections beside them. '' for no matter. */
  get caller(): string {
    if (!this.isUnknown && !this.isSlow) return '';
    return (this.individual[0] ?? this.waiting[0])?.caller ?? '';
  }

  /** Of a cheap read: the connections that its statements share. */
  get #mostLanes(): number {
    return (this.#cost ?? BATCH_BUDGET_MS) * CHEAPEST_READS_PER_BATCH <= BATCH_BUDGET_MS ? 1 : MAX_SLOTS_OF_CHEAP_SHAPE;
  }

  /** Whether its next statement is none that others should be kept from. */
  get isFast(): boolean {
    return !this.isUnknown && !this.isSlow && this.#mayUseAnother;
  }

  get #mayUseAnother(): boolean {
    return this.#lanes.length < this.#mostLanes;
  }

  get maxReads(): number {
    if (this.#cost === null) return 1;
    const affordable = Math.min(MAX_BATCH_READS, Math.floor(BATCH_BUDGET_MS / this.#cost));
    return this.isCheap ? Math.min(affordable, this.#share) : Math.max(affordable, this.#trial);
  }

  /** What is just not too large or too deep for one member may be so for several. */
  get isBatchable(): boolean {
    try {
      this.#joinable ??= this.shape.batchText() !== '';
    } catch {
      this.#joinable = false;
    }
    return this.#joinable;
  }

  /** Of all members, those that one statement should carry. */
  get #share(): number {
    return Math.ceil((this.waiting.length + this.#carried) / (this.#mostLanes * MAX_STATEMENTS_IN_FLIGHT));
  }

  /** Whether it is better to wait until more have come: not when that would leave the database idle. */
  shouldWait(now: number): boolean {
    if (!this.isCheap || this.#lanes.length === 0 || now - this.#sent > MAX_BATCH_WAIT_MS) return false;
    return this.waiting.length < Math.min(this.#share, MAX_BATCH_READS) || !(this.#mayUseAnother || this.busySlot);
  }

  /**
   * The connection behind whose statement another one may go, since it can part from it; null where it needs one of its own. A
   * backend that finds work when it is done need not be woken, which costs more than the work.
   */
  get busySlot(): ConnectionSlot | null {
    if (!this.isCheap || this.#mayUseAnother || !this.isBatchable) return null;
    let least = Infinity;
    for (const { slowdown: drag } of this.#lanes) least = Math.min(least, drag);
    return (
      this.#lanes.find((lane) => lane.load < MAX_STATEMENTS_IN_FLIGHT && lane.slowdown <= MAX_SLOT_SLOWDOWN * least) ??
      null
    );
  }

  /** So many members leave on a connection. */
  onSent(members: number, lane: ConnectionSlot, now: number): void {
    if (lane.load++ === 0) this.#lanes.push(lane);
    this.#carried += members;
    this.#sent = now;
  }

  /** They are not on their way any more; answers for how long they were. */
  onAnswered(members: number, lane: ConnectionSlot, sent: number): number {
    if (--lane.load === 0) this.#lanes.splice(this.#lanes.indexOf(lane), 1);
    this.#carried -= members;
    const now = performance.now();
    // What it has waited for the one before it is not its own time.
    const time = now - Math.max(sent, lane.ended);
    lane.ended = now;
    return time;
  }

  /** Remembers what a statement took. */
  learn(time: number, members: number, lane: ConnectionSlot, failed: boolean): void {
    const cost = time / members;
    if (this.#cost !== null && !failed)
      lane.slowdown += (time / (STATEMENT_OVERHEAD_MS + this.#cost * members) - lane.slowdown) / 2;
    if (!failed) this.#tryCompany(time, members);
    this.#learn(cost, failed);
  }

  #tryCompany(time: number, members: number): void {
    const known = this.#single ?? time;
    if (members === 1) this.#single = known + (time - known) / 4;
    if (members < this.#trial || --this.#rest > 0) return;
    const pays = members === 1 || time <= MAX_BATCH_SLOWDOWN * known;
    if (!pays) this.#rest = STATEMENTS_BETWEEN_TRIALS;
    this.#trial = pays && time * 4 < MAX_BATCH_MS ? Math.min(MAX_BATCH_READS, members * 2) : Math.max(1, members >> 1);
  }

  /** What fails does so fast: of that nothing is learned but that it took long. */
  #learn(cost: number, failed: boolean): void {
    if (failed && cost < (this.#cost ?? SLOW_READ_MS)) return;
    const known = this.#cost ?? cost;
    this.#cost = known + (cost - known) * (cost < known ? 0.5 : 0.01);
  }

  /** So dear, as far as we know, that its reads travel alone until some of them have shown otherwise. */
  markSlow(): void {
    this.#cost = MAX_BATCH_MS;
  }

  /** Takes out those that came so long ago. */
  takeExpired(arrived: number): PendingRead[] {
    const isExpired = (member: PendingRead): boolean => member.arrived <= arrived;
    const expired = [...this.waiting, ...this.individual].filter(isExpired);
    if (expired.length > 0)
      for (const list of [this.waiting, this.individual])
        list.splice(0, Infinity, ...list.filter((member) => !isExpired(member)));
    return expired;
  }

  /** Those to be sent next, without those that have left. */
  next(most: number): PendingRead[] {
    const members = this.individual.length > 0 ? this.individual.splice(0, 1) : this.waiting.splice(0, most);
    for (const member of members) if (member.isGone) member.onResult(null);
    return members.some((member) => member.isAnswered) ? members.filter((member) => !member.isAnswered) : members;
  }
}
