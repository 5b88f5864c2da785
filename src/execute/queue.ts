/**
 * What waits and what is on its way, of the reads of one shape: how dear they are, how many of them should travel together,
 * and on which connections.
 */
import { performance } from 'node:perf_hooks';
import type { Lane, Passenger } from './lanes.js';

/** A read whose values may travel beside those of others. */
export interface Shape {
  readonly statement: { readonly text: string };
  /** The statement for many sets of values; compiled when it is first needed. */
  readonly cohort: () => string;
}

/** Who waits for an answer. */
export interface Waiter {
  /** Whoever has left is not asked for. */
  readonly aborted: boolean;
  /** Who asks, as far as callers share connections; '' where that does not matter. */
  readonly caller?: string;
  /** The cell, lent as the connection lends it; null when there is none. */
  take(cell: Buffer | null): void;
  fail(error: unknown): void;
}

/** Milliseconds that a cohort may take: dear reads travel alone, cheap ones in company. */
const BUDGET = 4;
export const MOST_MEMBERS = 64;
/** So many statements of cheap reads are on their way on a connection: while one is in PostgreSQL, the other is in Node. */
const DEPTH = 2;
/** A read is cheap when at least so many fit into the budget; of the cheapest, one backend serves more than Node can take. */
const CHEAP_MEMBERS = 8;
const CHEAPEST_MEMBERS = 80;
/** Connections that cheap reads of one shape use at a time. */
const CHEAP_LANES = 2;
/** Company pays where it takes at most so many times longer than one alone; else it is not tried for so many statements. */
const PAYING = 1.25;
const RESTING = 16;
/** Milliseconds that a statement takes by itself, at most. */
const OVERHEAD = 0.1;
/** So many times slower than another one is a connection behind whose statement none should go. */
const LAGGING = 2;
/** Milliseconds after which members do not wait for those before them, if a connection is free. */
export const PATIENCE = 20;
/** Milliseconds after which nobody waits for a cohort any more: one of its members is dear, and each is sent alone. */
export const LONGEST = 250;
/** Milliseconds from which a read is slow. On a busy machine the fast ones are far from cheap, and must not count as slow. */
const SLOW = 50;

export class Member {
  readonly parameters: (string | null)[];
  readonly prepare: boolean;
  /** At which look at what waits it came. */
  readonly arrived: number;
  /** Whether it was to be sent on a connection that could not be opened. */
  isReturned = false;
  readonly #waiter: Waiter;
  #answered = false;

  constructor(parameters: (string | null)[], prepare: boolean, waiter: Waiter, arrived: number) {
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

  take(cell: Buffer | null): void {
    if (this.#answered) return;
    this.#answered = true;
    try {
      this.#waiter.take(cell);
    } catch (error) {
      this.#waiter.fail(error);
    }
  }

  fail(error: unknown): void {
    if (this.#answered) return;
    this.#answered = true;
    this.#waiter.fail(error);
  }
}

/** What waits and what is on its way, of one shape. */
export class Queue implements Passenger {
  readonly shape: Shape;
  readonly waiting: Member[] = [];
  /** Those whose cohort failed or took too long: each is sent by itself. */
  readonly alone: Member[] = [];
  /** Members on their way. */
  #carried = 0;
  /** When a statement was last sent. */
  #sent = 0;
  /** Where its statements are on their way. */
  readonly #lanes: Lane[] = [];
  isTurning = false;
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
    return this.waiting.length === 0 && this.alone.length === 0;
  }

  get isUnknown(): boolean {
    return this.#cost === null;
  }

  get isSlow(): boolean {
    return this.#cost !== null && this.#cost > SLOW;
  }

  get isCheap(): boolean {
    return this.#cost !== null && this.#cost * CHEAP_MEMBERS <= BUDGET;
  }

  /** Whose read is the next, where it is or may be slow: others must find connections beside them. '' for no matter. */
  get caller(): string {
    if (!this.isUnknown && !this.isSlow) return '';
    return (this.alone[0] ?? this.waiting[0])?.caller ?? '';
  }

  /** Of a cheap read: the connections that its statements share. */
  get #mostLanes(): number {
    return (this.#cost ?? BUDGET) * CHEAPEST_MEMBERS <= BUDGET ? 1 : CHEAP_LANES;
  }

  /** Whether its next statement is none that others should be kept from. */
  get isSwift(): boolean {
    return !this.isUnknown && !this.isSlow && this.#mayUseAnother;
  }

  get #mayUseAnother(): boolean {
    return this.#lanes.length < this.#mostLanes;
  }

  get mostMembers(): number {
    if (this.#cost === null) return 1;
    const affordable = Math.min(MOST_MEMBERS, Math.floor(BUDGET / this.#cost));
    return this.isCheap ? Math.min(affordable, this.#share) : Math.max(affordable, this.#trial);
  }

  /** What is just not too large or too deep for one member may be so for several. */
  get isJoinable(): boolean {
    try {
      this.#joinable ??= this.shape.cohort() !== '';
    } catch {
      this.#joinable = false;
    }
    return this.#joinable;
  }

  /** Of all members, those that one statement should carry. */
  get #share(): number {
    return Math.ceil((this.waiting.length + this.#carried) / (this.#mostLanes * DEPTH));
  }

  /** Whether it is better to wait until more have come: not when that would leave the database idle. */
  shouldWait(now: number): boolean {
    if (!this.isCheap || this.#lanes.length === 0 || now - this.#sent > PATIENCE) return false;
    return this.waiting.length < Math.min(this.#share, MOST_MEMBERS) || !(this.#mayUseAnother || this.busyLane);
  }

  /**
   * The connection behind whose statement another one may go, since it can part from it; null where it needs one of its own. A
   * backend that finds work when it is done need not be woken, which costs more than the work.
   */
  get busyLane(): Lane | null {
    if (!this.isCheap || this.#mayUseAnother || !this.isJoinable) return null;
    let least = Infinity;
    for (const { drag } of this.#lanes) least = Math.min(least, drag);
    return this.#lanes.find((lane) => lane.load < DEPTH && lane.drag <= LAGGING * least) ?? null;
  }

  /** So many members leave on a connection. */
  depart(members: number, lane: Lane, now: number): void {
    if (lane.load++ === 0) this.#lanes.push(lane);
    this.#carried += members;
    this.#sent = now;
  }

  /** They are not on their way any more; answers for how long they were. */
  arrive(members: number, lane: Lane, sent: number): number {
    if (--lane.load === 0) this.#lanes.splice(this.#lanes.indexOf(lane), 1);
    this.#carried -= members;
    const now = performance.now();
    // What it has waited for the one before it is not its own time.
    const time = now - Math.max(sent, lane.ended);
    lane.ended = now;
    return time;
  }

  /** Remembers what a statement took. */
  learn(time: number, members: number, lane: Lane, failed: boolean): void {
    const cost = time / members;
    if (this.#cost !== null && !failed) lane.drag += (time / (OVERHEAD + this.#cost * members) - lane.drag) / 2;
    if (!failed) this.#tryCompany(time, members);
    this.#learn(cost, failed);
  }

  #tryCompany(time: number, members: number): void {
    const known = this.#single ?? time;
    if (members === 1) this.#single = known + (time - known) / 4;
    if (members < this.#trial || --this.#rest > 0) return;
    const pays = members === 1 || time <= PAYING * known;
    if (!pays) this.#rest = RESTING;
    this.#trial = pays && time * 4 < LONGEST ? Math.min(MOST_MEMBERS, members * 2) : Math.max(1, members >> 1);
  }

  /** What fails does so fast: of that nothing is learned but that it took long. */
  #learn(cost: number, failed: boolean): void {
    if (failed && cost < (this.#cost ?? SLOW)) return;
    const known = this.#cost ?? cost;
    this.#cost = known + (cost - known) * (cost < known ? 0.5 : 0.01);
  }

  /** So dear, as far as we know, that its reads travel alone until some of them have shown otherwise. */
  becomeDear(): void {
    this.#cost = LONGEST;
  }

  /** Takes out those that came so long ago. */
  takeExpired(arrived: number): Member[] {
    const isExpired = (member: Member): boolean => member.arrived <= arrived;
    const expired = [...this.waiting, ...this.alone].filter(isExpired);
    if (expired.length > 0)
      for (const list of [this.waiting, this.alone])
        list.splice(0, Infinity, ...list.filter((member) => !isExpired(member)));
    return expired;
  }

  /** Those to be sent next, without those that have left. */
  next(most: number): Member[] {
    const members = this.alone.length > 0 ? this.alone.splice(0, 1) : this.waiting.splice(0, most);
    for (const member of members) if (member.isGone) member.take(null);
    return members.some((member) => member.isAnswered) ? members.filter((member) => !member.isAnswered) : members;
  }
}
