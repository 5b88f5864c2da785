/**
 * Reads that travel together. What a statement costs on its way, not PostgreSQL, bounds small reads: so requests of one shape
 * that wait at the moment a connection is free become one statement, and each is answered from its own row. Only requests
 * that were not sent yet join: none is answered from a snapshot older than its arrival. One that waits for nothing is sent
 * at once, as it is.
 */
import { arrayLiteral } from '../sql/codec.js';
import { type Lane, LONGEST, Member, MOST_MEMBERS, PATIENCE, Queue, type Shape, type Waiter } from './queue.js';
import type { Errand, Wire } from './wire.js';

/** The part of the connections that slow reads may not use, nor half of it those that may be slow: they never stand in the way. */
const RESERVED = 1 / 4;

type End = (failed: boolean) => void;

export class Cohorts {
  /** How many statements carried so many members: counted here, read when somebody asks for metrics. */
  readonly sizes = new Float64Array(MOST_MEMBERS + 1);
  /** Cohorts whose members were sent once more, each alone. */
  parted = 0;
  /** Connections, and how many of them have a statement on its way. */
  readonly most: number;
  readonly #free: Lane[];
  readonly #parallel: Lane | undefined;
  readonly #reserved: number;
  readonly #mostMembers: number;
  readonly #queues = new WeakMap<Shape, Queue>();
  /** Shapes with members that wait, in the order in which they get their turn. */
  #turns: Queue[] = [];
  #scheduled = false;
  #timer: NodeJS.Timeout | null = null;

  /** `together` is false where each read is to travel alone. */
  constructor(wires: readonly Wire[], together: boolean) {
    this.#free = wires.map((wire) => ({ wire, load: 0, ended: 0, drag: 1 }));
    this.#parallel = this.#free[0];
    this.most = wires.length;
    this.#reserved = wires.length > 1 ? Math.ceil(wires.length * RESERVED) : 0;
    this.#mostMembers = together ? MOST_MEMBERS : 1;
  }

  read(shape: Shape, parameters: (string | null)[], prepare: boolean, waiter: Waiter): void {
    let queue = this.#queues.get(shape);
    if (!queue) {
      queue = new Queue(shape);
      this.#queues.set(shape, queue);
    }
    queue.waiting.push(new Member(parameters, prepare, waiter));
    this.#enter(queue);
    this.#schedule();
  }

  get busy(): number {
    return this.most - this.#free.length;
  }

  /** Members that no statement carries yet. */
  get waiting(): number {
    return this.#turns.reduce((sum, queue) => sum + queue.waiting.length + queue.alone.length, 0);
  }

  #enter(queue: Queue): void {
    if (queue.isTurning) return;
    queue.isTurning = true;
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
    const held: Queue[] = [];
    while (this.#turns.length > 0) {
      const turns = this.#turns;
      this.#turns = [];
      for (const queue of turns) {
        if (!this.#maySend(queue, now)) {
          held.push(queue);
          continue;
        }
        queue.isTurning = false;
        this.#send(queue, now);
        if (!queue.isEmpty) this.#enter(queue);
      }
    }
    if (held.length === 0) return;
    this.#turns = [...held, ...this.#turns];
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#advance();
    }, PATIENCE + 1).unref();
  }

  #maySend(queue: Queue, now: number): boolean {
    const together = this.#mostMembers > 1;
    if (together && queue.shouldWait(now)) return false;
    if (together && queue.busyLane) return true;
    const isSwift = !queue.isUnknown && !queue.isSlow && queue.mayUseAnother;
    const kept = isSwift ? 0 : queue.isUnknown ? (this.#reserved + 1) >> 1 : this.#reserved;
    return this.#free.length > kept;
  }

  #send(queue: Queue, now: number): void {
    const most = Math.min(queue.mostMembers, this.#mostMembers, queue.waiting.length);
    const members = queue.next(most > 1 && !queue.isJoinable ? 1 : most);
    const [first] = members;
    if (first === undefined) return;
    // Behind another one of its shape: a backend that finds work when it is done need not be woken, which costs more than the
    // work. Else the connection that was used last: its statements are prepared, its memory is warm.
    const lane = (this.#mostMembers > 1 && queue.busyLane) || this.#takeLane(queue);
    // Whoever goes behind another one must be able to part from it, also alone.
    const isCohort = members.length > 1 || (lane.load > 0 && queue.isJoinable);
    queue.depart(members.length, lane, now);
    this.sizes[members.length] = (this.sizes[members.length] as number) + 1;
    const end: End = (failed) => {
      queue.arrive(members.length, lane, now, failed);
      if (lane.load === 0) this.#release(lane);
      if (this.#turns.length > 0) this.#schedule();
    };
    lane.wire.run(isCohort ? this.#together(queue, members, first, end) : alone(queue, first, end));
  }

  /** Only one connection may use several processors: a dear read that comes alone is done sooner, many would share them at a loss. */
  #takeLane(queue: Queue): Lane {
    const first = this.#free[0] as Lane;
    if (first === this.#parallel && !queue.isCheap) return this.#free.shift() as Lane;
    return this.#free.pop() as Lane;
  }

  #release(lane: Lane): void {
    if (lane === this.#parallel) this.#free.unshift(lane);
    else this.#free.push(lane);
  }

  /** One that fails must not fail its neighbours: then each is sent alone. */
  #together(queue: Queue, members: readonly Member[], first: Member, end: End): Errand {
    const { statement, cohort } = queue.shape;
    const { parameters } = first;
    // Without values they all ask for the same.
    if (parameters.length === 0) return shared(statement.text, members, end);
    const text = cohort();
    let parted = false;
    const part = (): void => {
      parted = true;
      this.parted++;
      queue.alone.push(...members.filter((member) => !member.isAnswered));
      this.#enter(queue);
      this.#schedule();
    };
    const timer = setTimeout(() => {
      queue.becomeDear();
      part();
    }, LONGEST);
    return {
      text,
      parameters: parameters.map((_, slot) => arrayLiteral(members.map((member) => member.parameters[slot] ?? null))),
      prepare: true,
      row: (number, cell) => members[number - 1]?.take(cell),
      end: (error) => {
        clearTimeout(timer);
        end(error !== null);
        // Those that were parted are answered each by its own statement.
        if (parted || members.every((member) => member.isAnswered)) return;
        if (error !== null && isOfTheirValues(error)) part();
        else {
          const reason = error ?? new Error('a cohort was not answered in full');
          for (const member of members) member.fail(reason);
        }
      },
    };
  }
}

function alone({ shape }: Queue, member: Member, end: End): Errand {
  return {
    text: shape.statement.text,
    parameters: member.parameters,
    prepare: member.prepare,
    row: (_, cell) => member.take(cell),
    end: (error) => {
      end(error !== null);
      if (error === null) member.take(null);
      else member.fail(error);
    },
  };
}

function shared(text: string, members: readonly Member[], end: End): Errand {
  return {
    text,
    parameters: [],
    prepare: true,
    row: (_, cell) => {
      for (const member of members) member.take(cell);
    },
    end: (error) => {
      end(error !== null);
      for (const member of members) {
        if (error === null) member.take(null);
        else member.fail(error);
      }
    },
  };
}

/** A failure that may lie in the values of one member, its time included; a lost connection would only come again. */
function isOfTheirValues(error: Error): boolean {
  const code = 'code' in error ? String(error.code) : '';
  return code === '57014' || (/^[0-9A-Z]{5}$/.test(code) && !/^(08|25|53|57|58)/.test(code));
}
