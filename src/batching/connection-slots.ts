/**
 * The connections for reads, and who may use them: what is or may be slow leaves some of them to the others, and one that
 * cannot be opened is left aside while others can.
 */
import type { Connection } from '../postgres/connection.js';

/** A connection, and how many statements are on their way on it: all of one shape. */
export interface ConnectionSlot {
  readonly connection: Connection;
  load: number;
  /** When the last of them was answered. */
  ended: number;
  /** How many times longer its statements take than they should: a backend may have to share its processor with others. */
  slowdown: number;
  /** Whether it carries what is not slow. */
  isFast: boolean;
  /** Whose slow read it carries; '' for nobody's in particular. */
  caller: string;
}

/** Whose statement needs a connection. */
export interface ReadProfile {
  readonly isFast: boolean;
  readonly isCheap: boolean;
  readonly isUnknown: boolean;
  /** Whose read it is, where it is or may be slow; '' where that does not matter. */
  readonly caller: string;
}

/** The part of the connections that slow reads may not use, nor half of it those that may be slow: they never stand in the way. */
const RESERVED_SHARE = 1 / 4;

/** Milliseconds for which a connection that could not be opened is left aside. */
const RETRY_OPEN_AFTER_MS = 1_000;

export class ConnectionSlots {
  readonly size: number;
  /** The one that was used last is the last. */
  readonly #free: ConnectionSlot[];
  readonly #aside: ConnectionSlot[] = [];
  readonly #all: readonly ConnectionSlot[];
  readonly #parallel: ConnectionSlot | undefined;
  readonly #reserved: number;
  readonly #onReturn: () => void;
  /** How many carry what is or may be slow. */
  #slow = 0;
  /** And for whom. */
  readonly #held = new Map<string, number>();

  /** `onReturn` is called when one that was left aside may be used again. */
  constructor(connections: readonly Connection[], onReturn: () => void) {
    this.#all = connections.map((connection) => ({
      connection,
      load: 0,
      ended: 0,
      slowdown: 1,
      isFast: true,
      caller: '',
    }));
    this.#free = [...this.#all];
    this.#parallel = this.#free[0];
    this.size = connections.length;
    this.#reserved = connections.length > 1 ? Math.ceil(connections.length * RESERVED_SHARE) : 0;
    this.#onReturn = onReturn;
  }

  get busy(): number {
    return this.size - this.#free.length - this.#aside.length;
  }

  get isAnyOpen(): boolean {
    return this.#all.some(({ connection: wire }) => wire.isOpen);
  }

  get isAnyOpening(): boolean {
    return this.#all.some(({ connection: wire }) => wire.isOpening);
  }

  stopAbandoned(): void {
    for (const { connection: wire } of this.#all) wire.stopAbandoned();
  }

  /**
   * One caller takes no more connections for slow reads than are left to others: alone about half of them, and less the more
   * callers there are, so that whoever comes next finds one.
   */
  mayTake({ isFast, isUnknown, caller }: ReadProfile): boolean {
    if (this.#free.length === 0 && this.#aside.length < this.size) return false;
    if (isFast) return true;
    const kept = isUnknown ? (this.#reserved + 1) >> 1 : this.#reserved;
    const left = Math.max(1, this.size - this.#aside.length - kept) - this.#slow;
    if (left <= 0) return false;
    return caller === '' || (this.#held.get(caller) ?? 0) < left;
  }

  /**
   * The one that was used last: its statements are prepared, its memory is warm. Only the first may use several processors: a
   * dear read that comes alone is done sooner, many would share them at a loss.
   */
  take({ isFast, isCheap }: Omit<ReadProfile, 'caller'>, caller: string): ConnectionSlot {
    const isDear = !isCheap && this.#free[0] === this.#parallel;
    const lane = (isDear ? this.#free.shift() : this.#free.pop()) ?? (this.#aside.shift() as ConnectionSlot);
    lane.isFast = isFast;
    lane.caller = isFast ? '' : caller;
    if (!isFast) this.#slow++;
    if (lane.caller !== '') this.#held.set(lane.caller, (this.#held.get(lane.caller) ?? 0) + 1);
    return lane;
  }

  #letGo({ isFast, caller }: ConnectionSlot): void {
    if (!isFast) this.#slow--;
    if (caller === '') return;
    const held = (this.#held.get(caller) ?? 1) - 1;
    if (held > 0) this.#held.set(caller, held);
    else this.#held.delete(caller);
  }

  release(lane: ConnectionSlot, couldOpen: boolean): void {
    this.#letGo(lane);
    if (couldOpen) this.#return(lane, this.#free.length);
    else {
      this.#aside.push(lane);
      setTimeout(() => {
        const position = this.#aside.indexOf(lane);
        // It may be in use, where all of them were aside.
        if (position < 0) return;
        this.#aside.splice(position, 1);
        this.#return(lane, this.#free[0] === this.#parallel ? 1 : 0);
        this.#onReturn();
      }, RETRY_OPEN_AFTER_MS).unref();
    }
  }

  #return(lane: ConnectionSlot, position: number): void {
    if (lane === this.#parallel) this.#free.unshift(lane);
    else this.#free.splice(position, 0, lane);
  }
}
