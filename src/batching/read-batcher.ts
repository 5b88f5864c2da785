/**
 * Reads that travel together. What a statement costs on its way, not PostgreSQL, bounds small reads: so requests of one shape
 * that wait at the moment a connection is free become one statement, and each is answered from its own row. Only requests
 * that were not sent yet join: none is answered from a snapshot older than its arrival. One that waits for nothing is sent
 * at once, as it is.
 */
import { performance } from 'node:perf_hooks';
import { ServiceError, serviceUnavailable } from '../errors.js';
import type { Connection } from '../postgres/connection.js';
import type { WireQuery } from '../postgres/wire-query.js';
import { arrayLiteral } from '../sql/literal.js';
import { ConnectionSlots } from './connection-slots.js';
import { Deadlines } from './deadlines.js';
import {
  MAX_BATCH_MS,
  MAX_BATCH_READS,
  MAX_BATCH_WAIT_MS,
  PendingRead,
  type ReadListener,
  type Shape,
  ShapeQueue,
} from './shape-queue.js';

/** Milliseconds between two looks at what runs for nobody any more. */
const SWEEP = 500;

/** Answers whether the members wait again. */
type End = (error: Error | null, unsent: boolean, parted: boolean) => boolean;

export class ReadBatcher {
  /** How many statements carried so many members: counted here, read when somebody asks for metrics. */
  readonly sizes = new Float64Array(MAX_BATCH_READS + 1);
  /** Cohorts whose members were sent once more, each alone. */
  splits = 0;
  /** Whether some have waited in vain, and nothing was answered since. */
  isStarved = false;
  readonly #lanes: ConnectionSlots;
  readonly #mostMembers: number;
  readonly #queues = new WeakMap<Shape, ShapeQueue>();
  /** Shapes with members that wait, in the order in which they get their turn. */
  #turns: ShapeQueue[] = [];
  readonly #deadlines = new Deadlines(MAX_BATCH_MS);
  #scheduled = false;
  #timer: NodeJS.Timeout | null = null;
  #sweeper: NodeJS.Timeout | null = null;
  #sweeps = 0;
  readonly #waitSweeps: number;

  /** `together` is false where each read is to travel alone; none waits longer than `waitTimeout`, in milliseconds. */
  constructor(wires: readonly Connection[], together: boolean, waitTimeout: number) {
    this.#lanes = new ConnectionSlots(wires, () => this.#schedule());
    this.#waitSweeps = Math.ceil(waitTimeout / SWEEP);
    this.#mostMembers = together ? MAX_BATCH_READS : 1;
  }

  read(shape: Shape, parameters: (string | null)[], prepare: boolean, waiter: ReadListener): void {
    let queue = this.#queues.get(shape);
    if (!queue) {
      queue = new ShapeQueue(shape);
      this.#queues.set(shape, queue);
    }
    queue.waiting.push(new PendingRead(parameters, prepare, waiter, this.#sweeps));
    this.#enter(queue);
    this.#schedule();
    this.#sweeper ??= setInterval(() => this.#sweep(), SWEEP).unref();
  }

  /** Connections. */
  get most(): number {
    return this.#lanes.size;
  }

  /** Those that have a statement on its way. */
  get busy(): number {
    return this.#lanes.busy;
  }

  /** Members that no statement carries yet. */
  get waiting(): number {
    return this.#turns.reduce((sum, queue) => sum + queue.waiting.length + queue.individual.length, 0);
  }

  #enter(queue: ShapeQueue): void {
    if (queue.isQueued) return;
    queue.isQueued = true;
    this.#turns.push(queue);
  }

  /** After everything that arrived together was taken in. */
  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#advance();
    });
  }

  /** Each shape that waits sends once, then the others have their turn. */
  #advance(): void {
    const now = performance.now();
    const held: ShapeQueue[] = [];
    while (this.#turns.length > 0) {
      const turns = this.#turns;
      this.#turns = [];
      for (const queue of turns) {
        if (!this.#maySend(queue, now)) {
          held.push(queue);
          continue;
        }
        queue.isQueued = false;
        this.#send(queue, now);
        if (!queue.isEmpty) this.#enter(queue);
      }
    }
    if (held.length === 0) return;
    this.#turns = [...held, ...this.#turns];
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#advance();
    }, MAX_BATCH_WAIT_MS + 1).unref();
  }

  #maySend(queue: ShapeQueue, now: number): boolean {
    if (this.#mostMembers > 1 && queue.individual.length === 0) {
      if (queue.shouldWait(now)) return false;
      if (queue.busySlot) return true;
    }
    return this.#lanes.mayTake(queue);
  }

  #send(queue: ShapeQueue, now: number): void {
    // Whoever has been parted from others goes with none of them, nor behind them.
    const isParted = queue.individual.length > 0;
    const most = Math.min(queue.maxReads, this.#mostMembers, queue.waiting.length);
    const { caller } = queue;
    const members = queue.next(most > 1 && !queue.isBatchable ? 1 : most);
    const [first] = members;
    if (first === undefined) return;
    const behind = this.#mostMembers > 1 && !isParted ? queue.busySlot : null;
    const lane = behind ?? this.#lanes.take(queue, caller);
    queue.onSent(members.length, lane, now);
    this.sizes[members.length] = (this.sizes[members.length] as number) + 1;
    const end: End = (error, unsent, parted) => {
      const time = queue.onAnswered(members.length, lane, now);
      if (!unsent) {
        this.isStarved = false;
        queue.learn(time, members.length, lane, error !== null);
      }
      if (lane.load === 0) this.#lanes.release(lane, !unsent);
      const again = unsent && !parted && this.#mayReturn(members);
      if (again) {
        for (const member of members) member.isReturned = true;
        queue.waiting.unshift(...members);
        this.#enter(queue);
      }
      if (this.#turns.length > 0) this.#schedule();
      return again;
    };
    // Whoever goes behind another one must be able to part from it, also alone.
    const isCohort = members.length > 1 || behind !== null;
    lane.connection.run(isCohort ? this.#together(queue, members, lane.connection, end) : alone(queue, first, end));
  }

  /** What runs for requests that have all left is stopped, and who has waited too long is told so. */
  #sweep(): void {
    this.#sweeps++;
    if (this.#lanes.busy > 0) this.#lanes.stopAbandoned();
    if (this.#turns.length > 0) this.#expire();
    else if (this.#lanes.busy === 0 && this.#sweeper) {
      clearInterval(this.#sweeper);
      this.#sweeper = null;
    }
  }

  #expire(): void {
    for (const queue of this.#turns)
      for (const member of queue.takeExpired(this.#sweeps - this.#waitSweeps)) {
        this.isStarved = true;
        member.onError(
          serviceUnavailable('database', 'All connections are taken', { option: 'DATABASE_WAIT_TIMEOUT' }),
        );
      }
  }

  /** Where a connection could not be opened, another one may do. Those that are only being opened are waited for once. */
  #mayReturn(members: readonly PendingRead[]): boolean {
    if (this.#lanes.isAnyOpen) return true;
    return this.#lanes.isAnyOpening && members.every((member) => !member.isReturned);
  }

  /** One that fails must not fail its neighbours: then each is sent alone. */
  #together(queue: ShapeQueue, members: readonly PendingRead[], wire: Connection, end: End): WireQuery {
    const { statement, batchText: cohort } = queue.shape;
    const { parameters } = members[0] as PendingRead;
    // Without values they all ask for the same.
    if (parameters.length === 0) return shared(statement.text, members, end);
    const text = cohort();
    let parted = false;
    const part = (): void => {
      parted = true;
      this.splits++;
      queue.individual.push(...members.filter((member) => !member.isAnswered));
      this.#enter(queue);
      this.#schedule();
    };
    const deadline = this.#deadlines.add(() => {
      queue.markSlow();
      part();
      wire.stopAbandoned();
    });
    return {
      text,
      parameters: parameters.map((_, slot) => arrayLiteral(members.map((member) => member.parameters[slot] ?? null))),
      prepare: true,
      columns: 2,
      isAbandoned: () => parted || members.every(isGone),
      row: (number, cell) => members[number - 1]?.onResult(cell),
      end: (error, unsent) => {
        this.#deadlines.remove(deadline);
        // Those that were parted are answered each by its own statement.
        if (end(error, unsent, parted) || parted || members.every((member) => member.isAnswered)) return;
        if (error !== null && isOfTheirValues(error)) part();
        else {
          const reason = error ?? new Error('a cohort was not answered in full');
          for (const member of members) member.onError(reason);
        }
      },
    };
  }
}

function alone({ shape }: ShapeQueue, member: PendingRead, end: End): WireQuery {
  return {
    text: shape.statement.text,
    parameters: member.parameters,
    prepare: member.prepare,
    columns: 1,
    isAbandoned: () => member.isGone,
    row: (_, cell) => member.onResult(cell),
    end: (error, unsent) => {
      if (end(error, unsent, false)) return;
      if (error === null) member.onResult(null);
      else member.onError(error);
    },
  };
}

function shared(text: string, members: readonly PendingRead[], end: End): WireQuery {
  return {
    text,
    parameters: [],
    prepare: true,
    columns: 1,
    isAbandoned: () => members.every(isGone),
    row: (_, cell) => {
      for (const member of members) member.onResult(cell);
    },
    end: (error, unsent) => {
      if (end(error, unsent, false)) return;
      for (const member of members) {
        if (error === null) member.onResult(null);
        else member.onError(error);
      }
    },
  };
}

function isGone(member: PendingRead): boolean {
  return member.isGone;
}

/** A failure that may lie in the values of one member, its time included; a lost connection would only come again. */
function isOfTheirValues(error: Error): boolean {
  if (error instanceof ServiceError) return error.status < 500;
  const code = 'code' in error ? String(error.code) : '';
  return code === '57014' || (/^[0-9A-Z]{5}$/.test(code) && !/^(08|25|53300|57|58)/.test(code));
}
