/**
 * The state of the replicas, in memory that all threads share: one thread measures them, all choose among them. Positions are
 * bytes of the primary's log. The position of a caller's last write is kept by a hash of the name: callers that share a slot have
 * the later position of both, which is never too early.
 */
import { UNKNOWN_POSITION } from '../../server/postgres/pools/sessions.js';

/**
 * `behind`: by more than allowed. `lost`: it does not answer. `primary`: it is the primary itself. `promoted`: it is another one.
 * `diverged`: it follows another one. `cluster`, `database`: it is another one than that of DATABASE_URL.
 */
const STATES = [
  'unknown',
  'ready',
  'behind',
  'lost',
  'primary',
  'promoted',
  'diverged',
  'cluster',
  'database',
] as const;
export type ReplicaState = (typeof STATES)[number];

const CALLERS = 16_384;
/** From here on a value is no position but the number of one that is not known. */
const UNKNOWN = BigInt(UNKNOWN_POSITION);
/**
 * Where the primary was when the model was read, how often it was replaced, how often a position was noted that is not known, the
 * timeline that replicas were last compared with, and the latest that any thread has written on.
 */
const HEAD = 5;
/** Each replica has three: its replay position, its state, and its lag in milliseconds. */
const FIELDS = 3;

export class ReplicaBoard {
  readonly buffer: SharedArrayBuffer;
  readonly #cells: BigInt64Array;

  /** With the buffer of another thread, what that one knows. */
  constructor(
    private readonly replicas: number,
    buffer?: SharedArrayBuffer,
  ) {
    const length = HEAD + replicas * FIELDS + CALLERS;
    this.buffer = buffer ?? new SharedArrayBuffer(length * BigInt64Array.BYTES_PER_ELEMENT);
    this.#cells = new BigInt64Array(this.buffer);
    if (!buffer) this.model = UNKNOWN_POSITION;
  }

  /** Behind the last change of the schema that the model shows: what has not replayed it cannot be asked. */
  get model(): number {
    return this.#get(0);
  }

  set model(position: number) {
    this.#set(0, position);
  }

  /** Changes when another server has become the primary: positions of the former mean nothing there. */
  get primaries(): number {
    return this.#get(1);
  }

  /** Grows with each position that is not known. */
  get unknown(): number {
    return this.#get(2);
  }

  /** The timeline of the primary. A replica on another one is not ready. */
  get timeline(): number {
    return this.#get(3);
  }

  set timeline(timeline: number) {
    this.#set(3, timeline);
  }

  /** The latest that was written on: reads must not be served from an earlier one. */
  get writtenTimeline(): number {
    return this.#get(4);
  }

  raiseWrittenTimeline(timeline: number): void {
    this.#raise(4, BigInt(timeline));
  }

  /** Another cluster counts timelines from its own beginning. */
  resetWrittenTimeline(timeline: number): void {
    this.#set(4, timeline);
  }

  replayed(replica: number): number {
    return this.#get(HEAD + replica * FIELDS);
  }

  setReplayed(replica: number, position: number): void {
    this.#set(HEAD + replica * FIELDS, position);
  }

  raiseReplayed(replica: number, position: number): void {
    this.#raise(HEAD + replica * FIELDS, BigInt(position));
  }

  state(replica: number): ReplicaState {
    return STATES[this.#get(HEAD + replica * FIELDS + 1)] ?? 'unknown';
  }

  setState(replica: number, state: ReplicaState): void {
    this.#set(HEAD + replica * FIELDS + 1, STATES.indexOf(state));
  }

  lagMs(replica: number): number {
    return this.#get(HEAD + replica * FIELDS + 2);
  }

  setLagMs(replica: number, ms: number): void {
    this.#set(HEAD + replica * FIELDS + 2, Math.round(ms));
  }

  /** The position behind the last write of the caller. */
  written(hash: number): number {
    return Math.min(this.#get(this.#cellOf(hash)), UNKNOWN_POSITION);
  }

  raiseWritten(hash: number, position: number): void {
    const cell = this.#cellOf(hash);
    // Behind one that is not known: the answer that settles that one may be too early for this.
    if (this.#raise(cell, BigInt(position)) >= UNKNOWN) this.#forget([cell]);
  }

  /** When so many were unknown the primary was asked, and answered this: all that they stand for had been written. */
  settleUnknown(unknown: number, position: number): void {
    const newest = UNKNOWN + BigInt(unknown);
    for (let cell = this.#cellOf(0); cell < this.#cells.length; cell++) {
      const value = Atomics.load(this.#cells, cell);
      if (value >= UNKNOWN && value <= newest) Atomics.compareExchange(this.#cells, cell, value, BigInt(position));
    }
  }

  /** Another server is the primary: where its log is behind what callers have written is not known until it is asked again. */
  replacePrimary(): void {
    Atomics.add(this.#cells, 1, 1n);
    const written: number[] = [];
    for (let cell = this.#cellOf(0); cell < this.#cells.length; cell++) if (this.#get(cell) > 0) written.push(cell);
    this.#forget(written);
  }

  /**
   * An unknown position has a number, so that an answer to an earlier question does not settle it. It is counted again when it is
   * written: a reader in between has not seen it.
   */
  #forget(cells: readonly number[]): void {
    const number = Atomics.add(this.#cells, 2, 1n) + 1n;
    for (const cell of cells) this.#raise(cell, UNKNOWN + number);
    Atomics.add(this.#cells, 2, 1n);
  }

  #cellOf(hash: number): number {
    return HEAD + this.replicas * FIELDS + (hash % CALLERS);
  }

  #get(cell: number): number {
    return Number(Atomics.load(this.#cells, cell));
  }

  #set(cell: number, value: number): void {
    Atomics.store(this.#cells, cell, BigInt(value));
  }

  /** Answers what is there then. */
  #raise(cell: number, value: bigint): bigint {
    let current = Atomics.load(this.#cells, cell);
    while (current < value) {
      const previous = Atomics.compareExchange(this.#cells, cell, current, value);
      if (previous === current) return value;
      current = previous;
    }
    return current;
  }
}
