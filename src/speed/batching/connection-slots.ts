/**
 * The connections for reads, and which reads may use them: reads that are or may be slow leave some of them to others. A connection that
 * cannot be opened is set aside while others can be opened.
 */
import type { Connection } from '../../server/postgres/wire/connection.js';
import type { CostClass } from './cost-model.js';

/** A connection, and how many statements are in flight on it: all of one shape. */
export interface ConnectionSlot {
  readonly connection: Connection;
  load: number;
  /** Whether the transactions of several callers are in flight on it. */
  isPipeline: boolean;
  /** When the last statement was answered. */
  answeredAt: number;
  /** How many times longer its statements take than expected: a backend may share its CPU with others. */
  slowdown: number;
  /** Whether it carries a limited read. */
  isLimited: boolean;
  /** The caller of the limited read that it carries; '' for none. */
  caller: string;
}

/** A read that needs a connection. */
export interface ReadProfile {
  readonly costClass: CostClass;
  /** Whether it must leave some connections to others: it is or may be slow, or its shape has its share already. */
  readonly isLimited: boolean;
  /** The caller, if the read is or may be slow; else ''. */
  readonly caller: string;
}

/** The part of the connections that limited reads may not use; reads of unknown cost may use half of it. */
const RESERVED_SHARE = 1 / 4;

/** For this long a connection that could not be opened is set aside. */
const RETRY_OPEN_AFTER_MS = 1_000;

export class ConnectionSlots {
  readonly size: number;
  /** Connections that have a statement in flight. */
  busy = 0;
  /** The one that was used last comes last. */
  readonly #free: ConnectionSlot[];
  readonly #aside: ConnectionSlot[] = [];
  readonly #all: readonly ConnectionSlot[];
  readonly #parallel: ConnectionSlot | undefined;
  readonly #reserved: number;
  /** How many carry limited reads. */
  #limited = 0;
  readonly #limitedByCaller = new Map<string, number>();

  /** Calls `onReturn` when a connection that was set aside may be used again. */
  constructor(
    connections: readonly Connection[],
    private readonly onReturn: () => void,
  ) {
    this.#all = connections.map((connection) => ({
      connection,
      load: 0,
      isPipeline: false,
      answeredAt: 0,
      slowdown: 1,
      isLimited: false,
      caller: '',
    }));
    this.#free = [...this.#all];
    this.#parallel = this.#free[0];
    this.size = connections.length;
    this.#reserved = connections.length > 1 ? Math.ceil(connections.length * RESERVED_SHARE) : 0;
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
   * A caller takes no more connections for slow reads than are left to others: a single caller about half of them, and less if there are
   * more callers, so that the next one finds a free connection.
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
   * Takes the connection that was used last: its statements are prepared, and its memory is warm. A read that is or may be slow takes the
   * one that was unused for longest, even if it has to be opened: cheap reads get the warm ones. Only the first connection may use
   * several CPUs, and only while nothing else runs: that makes one expensive read faster, but many of them slower.
   */
  take({ costClass, isLimited }: ReadProfile, caller: string): ConnectionSlot {
    const isMaybeSlow = costClass === 'unknown' || costClass === 'slow';
    const isParallelFree = this.#free[0] === this.#parallel;
    const useParallel = isParallelFree && costClass !== 'cheap' && this.busy === 0;
    const coldest = isParallelFree && !useParallel && this.#free.length > 1 ? 1 : 0;
    const slot =
      (isMaybeSlow || useParallel ? this.#free.splice(coldest, 1)[0] : this.#free.pop()) ?? this.#aside.shift();
    if (slot === undefined) throw new Error('no connection is free');
    this.busy++;
    slot.isLimited = isLimited;
    slot.caller = isLimited ? caller : '';
    if (isLimited) this.#limited++;
    if (slot.caller !== '') this.#limitedByCaller.set(slot.caller, (this.#limitedByCaller.get(slot.caller) ?? 0) + 1);
    return slot;
  }

  release(slot: ConnectionSlot, couldOpen: boolean): void {
    this.busy--;
    this.#uncount(slot);
    if (couldOpen) this.#return(slot, this.#free.length);
    else {
      this.#aside.push(slot);
      setTimeout(() => {
        const position = this.#aside.indexOf(slot);
        // It may be in use if all of them were set aside.
        if (position < 0) return;
        this.#aside.splice(position, 1);
        this.#return(slot, this.#free[0] === this.#parallel ? 1 : 0);
        this.onReturn();
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
