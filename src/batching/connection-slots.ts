/**
 * The connections for reads, and who may use them: what is or may be slow leaves some of them to the others, and one that
 * cannot be opened is left aside while others can.
 */
import type { Connection } from '../postgres/wire/connection.js';
import type { CostClass } from './cost-model.js';

/** A connection, and how many statements are in flight on it: all of one shape. */
export interface ConnectionSlot {
  readonly connection: Connection;
  load: number;
  /** When the last of them was answered. */
  answeredAt: number;
  /** How many times longer its statements take than they should: a backend may have to share its processor with others. */
  slowdown: number;
  /** Whether what it carries counts against the connections that limited reads may use. */
  isLimited: boolean;
  /** Whose limited read it carries; '' for nobody's in particular. */
  caller: string;
}

/** What is known of a read that needs a connection. */
export interface ReadProfile {
  readonly costClass: CostClass;
  /** Whether it must leave some connections to others: it is or may be slow, or its shape has its share of them already. */
  readonly isLimited: boolean;
  /** Whose read it is, where it is or may be slow; '' where that does not matter. */
  readonly caller: string;
}

/** The part of the connections that limited reads may not use, nor half of it those of unknown cost. */
const RESERVED_SHARE = 1 / 4;

/** For this long a connection that could not be opened is left aside. */
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
  /** How many carry limited reads. */
  #limited = 0;
  readonly #limitedByCaller = new Map<string, number>();

  /** `onReturn` is called when one that was left aside may be used again. */
  constructor(connections: readonly Connection[], onReturn: () => void) {
    this.#all = connections.map((connection) => ({
      connection,
      load: 0,
      answeredAt: 0,
      slowdown: 1,
      isLimited: false,
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
    return this.#all.some(({ connection }) => connection.isOpen);
  }

  get isAnyOpening(): boolean {
    return this.#all.some(({ connection }) => connection.isOpening);
  }

  stopAbandoned(): void {
    for (const { connection } of this.#all) connection.stopAbandoned();
  }

  /**
   * One caller takes no more connections for slow reads than are left to others: the only one about half of them, and less the
   * more callers there are, so that whoever comes next finds one.
   */
  mayTake({ costClass, isLimited, caller }: ReadProfile): boolean {
    if (this.#free.length === 0 && this.#aside.length < this.size) return false;
    if (!isLimited) return true;
    const reserved = costClass === 'unknown' ? (this.#reserved + 1) >> 1 : this.#reserved;
    const left = Math.max(1, this.size - this.#aside.length - reserved) - this.#limited;
    if (left <= 0) return false;
    return caller === '' || (this.#limitedByCaller.get(caller) ?? 0) < left;
  }

  /**
   * The one that was used last: its statements are prepared, its memory is warm. What is or may be slow takes the one that was not
   * used for longest instead, even if it has to be opened: the warm ones are left to cheap reads. Only the first may use several
   * processors, and only while nothing else runs: one expensive read is done sooner with them, many share them at a loss.
   */
  take({ costClass, isLimited }: ReadProfile, caller: string): ConnectionSlot {
    const isMaybeSlow = costClass === 'unknown' || costClass === 'slow';
    const isParallelFree = this.#free[0] === this.#parallel;
    const useParallel = isParallelFree && costClass !== 'cheap' && this.busy === 0;
    const coldest = isParallelFree && !useParallel && this.#free.length > 1 ? 1 : 0;
    const slot =
      (isMaybeSlow || useParallel ? this.#free.splice(coldest, 1)[0] : this.#free.pop()) ?? this.#aside.shift();
    if (slot === undefined) throw new Error('no connection is free');
    slot.isLimited = isLimited;
    slot.caller = isLimited ? caller : '';
    if (isLimited) this.#limited++;
    if (slot.caller !== '') this.#limitedByCaller.set(slot.caller, (this.#limitedByCaller.get(slot.caller) ?? 0) + 1);
    return slot;
  }

  release(slot: ConnectionSlot, couldOpen: boolean): void {
    this.#uncount(slot);
    if (couldOpen) this.#return(slot, this.#free.length);
    else {
      this.#aside.push(slot);
      setTimeout(() => {
        const position = this.#aside.indexOf(slot);
        // It may be in use, where all of them were aside.
        if (position < 0) return;
        this.#aside.splice(position, 1);
        this.#return(slot, this.#free[0] === this.#parallel ? 1 : 0);
        this.#onReturn();
      }, RETRY_OPEN_AFTER_MS).unref();
    }
  }

  #uncount({ isLimited, caller }: ConnectionSlot): void {
    if (isLimited) this.#limited--;
    if (caller === '') return;
    const count = (this.#limitedByCaller.get(caller) ?? 1) - 1;
    if (count > 0) this.#limitedByCaller.set(caller, count);
    else this.#limitedByCaller.delete(caller);
  }

  #return(slot: ConnectionSlot, position: number): void {
    if (slot === this.#parallel) this.#free.unshift(slot);
    else this.#free.splice(position, 0, slot);
  }
}
