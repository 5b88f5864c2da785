/**
 * Reads that travel together. The driver's cost per statement, not PostgreSQL, bounds small reads: so requests of one shape
 * that wait at the moment a connection is free become one statement, and each is answered from its own row. Only requests
 * that were not sent yet join: none is answered from a snapshot older than its arrival. One that waits for nothing is sent
 * at once, as it is.
 */
import { arrayLiteral } from '../sql/codec.js';
import type { Database } from './database.js';

/** A read whose values may travel beside those of others. */
export interface Shape {
  readonly statement: { readonly text: string };
  /** The statement for many sets of values; compiled when it is first needed. */
  readonly cohort: () => string;
}

/** Who waits for an answer. */
export interface Waiter {
  readonly aborted: boolean;
}

interface Member {
  readonly parameters: (string | null)[];
  readonly waiter: Waiter;
  readonly prepare: boolean;
  readonly resolve: (cell: Buffer | null) => void;
  readonly reject: (error: unknown) => void;
}

/** Milliseconds that a cohort may take: dear reads travel alone, cheap ones in company. */
const BUDGET = 4;
const MOST_MEMBERS = 64;
/** So many cohorts of cheap reads are on their way at a time: while one is in PostgreSQL, the other is in Node. */
const CHEAP_LANES = 2;
/** A read is cheap when at least so many fit into the budget. */
const CHEAP_MEMBERS = 8;
/** Milliseconds after which members do not wait for those before them, if a connection is free. */
const PATIENCE = 5;

/** Milliseconds after which nobody waits for a cohort any more: one of its members is dear, and each is sent alone. */
const LONGEST = 250;

/** What waits and what is on its way, of one shape. */
class Queue {
  readonly shape: Shape;
  readonly waiting: Member[] = [];
  running = 0;
  sent = 0;
  /**
   * Milliseconds per member, null before the first answer. It falls fast and rises slowly: what a read takes when nothing is in
   * its way is its cost, the rest is waiting, which company makes shorter.
   */
  #cost: number | null = null;

  constructor(shape: Shape) {
    this.shape = shape;
  }

  get mostMembers(): number {
    if (this.#cost === null) return 1;
    return Math.max(1, Math.min(MOST_MEMBERS, Math.floor(BUDGET / this.#cost)));
  }

  maySend(now: number): boolean {
    return this.running < CHEAP_LANES || this.mostMembers < CHEAP_MEMBERS || now - this.sent > PATIENCE;
  }

  learn(cost: number): void {
    const known = this.#cost ?? cost;
    this.#cost = known + (cost - known) * (cost < known ? 0.5 : 0.05);
  }

  /** So dear, as far as we know, that its reads travel alone until some of them have shown otherwise. */
  becomeDear(): void {
    this.#cost = LONGEST;
  }
}

export class Cohorts {
  /** How many statements carried so many members: counted here, read when somebody asks for metrics. */
  readonly sizes = new Float64Array(MOST_MEMBERS + 1);
  /** Cohorts whose members were sent once more, each alone. */
  parted = 0;
  readonly #database: Database;
  readonly #connections: number;
  readonly #queues = new WeakMap<Shape, Queue>();
  /** Shapes with members that wait, in the order in which they get their turn. */
  #turns: Queue[] = [];
  #running = 0;
  #scheduled = false;
  #timer: NodeJS.Timeout | null = null;

  constructor(database: Database, connections: number) {
    this.#database = database;
    this.#connections = connections;
  }

  read(shape: Shape, parameters: (string | null)[], prepare: boolean, waiter: Waiter): Promise<Buffer | null> {
    return new Promise((resolve, reject) => {
      let queue = this.#queues.get(shape);
      if (!queue) {
        queue = new Queue(shape);
        this.#queues.set(shape, queue);
      }
      if (queue.waiting.push({ parameters, prepare, waiter, resolve, reject }) === 1) this.#turns.push(queue);
      this.#schedule();
    });
  }

  /** Members that no statement carries yet. */
  get waiting(): number {
    return this.#turns.reduce((sum, queue) => sum + queue.waiting.length, 0);
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
    while (this.#turns.length > 0 && this.#running < this.#connections) {
      const turns = this.#turns;
      this.#turns = [];
      for (const queue of turns) {
        if (this.#running < this.#connections && queue.maySend(now)) {
          this.#send(queue, now);
          if (queue.waiting.length > 0) this.#turns.push(queue);
        } else held.push(queue);
      }
    }
    if (held.length === 0) return;
    this.#turns = [...held, ...this.#turns];
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#advance();
    }, PATIENCE + 1).unref();
  }

  #send(queue: Queue, now: number): void {
    const present = queue.waiting.splice(0, queue.mostMembers).filter((member) => {
      if (member.waiter.aborted) member.resolve(null);
      return !member.waiter.aborted;
    });
    if (present.length === 0) return;
    this.sizes[present.length] = (this.sizes[present.length] ?? 0) + 1;
    queue.running++;
    queue.sent = now;
    this.#running++;
    const settle = (): void => {
      queue.running--;
      this.#running--;
      queue.learn((performance.now() - now) / present.length);
      if (this.#turns.length > 0) this.#schedule();
    };
    const [first] = present as [Member];
    void (present.length === 1 ? this.#sendAlone(queue, first) : this.#sendTogether(queue, present)).then(settle);
  }

  async #sendAlone({ shape }: Queue, { parameters, prepare, resolve, reject }: Member): Promise<void> {
    await this.#database.cell(shape.statement.text, parameters, prepare).then(resolve, reject);
  }

  /** One that fails must not fail its neighbours: then each is sent alone. */
  async #sendTogether(queue: Queue, members: readonly Member[]): Promise<void> {
    const [{ parameters }] = members as [Member];
    // Without values they all ask for the same.
    if (parameters.length === 0) return this.#share(queue, members);
    let apart: Promise<unknown> | null = null;
    const part = (): void => {
      queue.becomeDear();
      if (apart === null) this.parted++;
      apart ??= Promise.all(members.map((member) => this.#sendAlone(queue, member)));
    };
    const timer = setTimeout(part, LONGEST);
    try {
      const lists = parameters.map((_, slot) => arrayLiteral(members.map((member) => member.parameters[slot] ?? null)));
      const rows = await this.#database.numberedCells(queue.shape.cohort(), lists);
      let answered = 0;
      // Holes are passed over: a failed statement before this one can leave some (porsager/postgres#1181).
      rows.forEach(([number, cell]) => {
        answered++;
        members[Number(number) - 1]?.resolve(cell);
      });
      if (answered < members.length) throw new Error('a cohort was not answered in full');
    } catch (error) {
      if (isOfTheirValues(error)) part();
      if (apart === null) for (const { reject } of members) reject(error);
    } finally {
      clearTimeout(timer);
      await apart;
    }
  }

  async #share({ shape }: Queue, members: readonly Member[]): Promise<void> {
    const prepare = members.some((member) => member.prepare);
    try {
      const cell = await this.#database.cell(shape.statement.text, [], prepare);
      for (const { resolve } of members) resolve(cell);
    } catch (error) {
      for (const { reject } of members) reject(error);
    }
  }
}

/** A failure that may lie in the values of one member, its time included; a lost connection would only come again. */
function isOfTheirValues(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return code === '57014' || (/^[0-9A-Z]{5}$/.test(code) && !/^(08|25|53|57|58)/.test(code));
}
