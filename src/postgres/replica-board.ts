/**
 * What is known of the replicas, in memory that all threads share: one thread looks at them, all choose among them. Positions are
 * bytes of the primary's log. What a caller has written last is kept by a hash of the name: callers that share a place have the
 * later position of both, which is never too early.
 */
import { UNKNOWN_POSITION } from './sessions.js';

/** `behind`: by more than allowed. `lost`: it does not answer. `promoted`: it is not a standby any more. `diverged`: it follows another. */
const STATES = ['unknown', 'ready', 'behind', 'lost', 'promoted', 'diverged'] as const;
export type ReplicaState = (typeof STATES)[number];

const CALLERS = 16_384;
/**
 * Where the primary was when the model was read, how often it was replaced, how many positions could not be asked for, the timeline
 * that replicas were last compared with, and the latest that any thread has written on.
 */
const HEAD = 5;
/** Of a replica: how far it has replayed, its state, and milliseconds that it is behind. */
const FIELDS = 3;

export class ReplicaBoard {
  readonly buffer: SharedArrayBuffer;
  readonly #cells: BigInt64Array;
  readonly #replicas: number;

  /** With the buffer of another thread, what that one knows. */
  constructor(replicas: number, buffer?: SharedArrayBuffer) {
    this.#replicas = replicas;
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

  /** Changes when a position could not be asked for. */
  get unknown(): number {
    return this.#get(2);
  }

  /** Of the primary, by which replicas are ready. */
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
    this.#raise(4, timeline);
  }

  replayed(replica: number): number {
    return this.#get(HEAD + replica * FIELDS);
  }

  setReplayed(replica: number, position: number): void {
    this.#set(HEAD + replica * FIELDS, position);
  }

  raiseReplayed(replica: number, position: number): void {
    this.#raise(HEAD + replica * FIELDS, position);
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
    return this.#get(this.#cellOf(hash));
  }

  raiseWritten(hash: number, position: number): void {
    this.#raise(this.#cellOf(hash), position);
    if (position === UNKNOWN_POSITION) Atomics.add(this.#cells, 2, 1n);
  }

  /** The primary was at this position after all that is unknown had been written. */
  settleUnknown(position: number): void {
    this.#lower(UNKNOWN_POSITION - 1, position);
  }

  /** Another server is the primary: what is beyond the last position of the former is of the former. */
  replacePrimary(last: number, position: number): void {
    Atomics.add(this.#cells, 1, 1n);
    this.#lower(last, position);
  }

  #lower(above: number, position: number): void {
    for (let cell = this.#cellOf(0); cell < this.#cells.length; cell++)
      if (this.#get(cell) > above) this.#set(cell, position);
  }

  #cellOf(hash: number): number {
    return HEAD + this.#replicas * FIELDS + (hash % CALLERS);
  }

  #get(cell: number): number {
    return Number(Atomics.load(this.#cells, cell));
  }

  #set(cell: number, value: number): void {
    Atomics.store(this.#cells, cell, BigInt(value));
  }

  #raise(cell: number, value: number): void {
    const newValue = BigInt(value);
    let current = Atomics.load(this.#cells, cell);
    while (current < newValue) {
      const previous = Atomics.compareExchange(this.#cells, cell, current, newValue);
      if (previous === current) return;
      current = previous;
    }
  }
}
