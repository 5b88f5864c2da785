/**
 * Work that waits in turn for something scarce, such as a connection. One queue decides: callers take turns, and each has a share, so that
 * a caller with many requests delays only itself. Every wait has a deadline, and the queue has a bound.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { serviceUnavailable } from './errors.js';
import { Heap } from './heap.js';

/** The caller of the work, and the facts about it that the queue needs. */
export interface Turn {
  /** '' for the service itself, which has no share. */
  readonly caller: string;
  /** Callers with a lower rank come first, and those with the same rank take turns. */
  readonly rank?: number;
  /** The client that waits for the work. It leaves the queue when it disconnects. */
  readonly client?: { readonly aborted: boolean; onAbort?(listener: () => void): void };
  /** Whether it takes several locks, so that work of the same kind may deadlock with it. */
  readonly takesLocks?: boolean;
  /** The running work that gets the place: what it begins from then on is inside of it. */
  readonly scope?: Scope | undefined;
}

/** Work that has a place, or may get one later. */
export interface Scope {
  readonly outer: Scope | null;
  place: HeldPlace | null;
  isOver: boolean;
}

const scopes = new AsyncLocalStorage<Scope>();

function newScope(place: HeldPlace | null): Scope {
  let outer = scopes.getStore() ?? null;
  while (outer?.isOver) outer = outer.outer;
  return { outer, place, isOver: false };
}

/** Runs work that may get a place later, with a turn that names the scope. */
export async function inScope<Result>(work: (scope: Scope) => Promise<Result>): Promise<Result> {
  const scope = newScope(null);
  try {
    return await scopes.run(scope, () => work(scope));
  } finally {
    scope.isOver = true;
  }
}

export const OWN_TURN: Turn = Object.freeze({ caller: '' });
const LOCKING_TURN: Turn = Object.freeze({ caller: '', takesLocks: true });

export interface LimiterOptions {
  /** Milliseconds. By default work waits for as long as the work before it takes. */
  readonly waitTimeout?: number;
  /**
   * The most that one caller may have at a time. By default half, a quarter for work that takes several locks, and three quarters of both
   * while there is no other caller.
   */
  readonly share?: number;
  readonly maxWaiting?: number;
  /** The error for work whose time has passed, or for which the queue has no room. `isBusiest`: its caller has most of the work that waits. */
  readonly refusal?: (isBusiest: boolean) => Error;
}

/** Something that work has, until it leaves it. */
export interface Place {
  /** Runs the work. If places are followed, all that the work begins takes this place. */
  run<Result>(work: () => Promise<Result>): Promise<Result>;
  leave(): void;
}

interface Waiting {
  readonly turn: Turn;
  readonly admit: () => void;
  readonly refuse: (reason: Error) => void;
  /** The number of turns when it came. */
  readonly since: number;
  /** The number of all work that has waited before it. */
  readonly order: number;
}

/** A caller with work that waits or runs. */
interface Caller {
  readonly name: string;
  /** Callers with equal rights are served in this order. */
  readonly order: number;
  /** The work that waits, by whether it takes several locks. */
  readonly waiting: { readonly plain: Waiting[]; readonly locking: Waiting[] };
  rank: number;
  running: number;
  /** How many of these take several locks. */
  locking: number;
  /** The number of the last turn. */
  served: number;
}

const MAX_WAITING = 10_000;

/** Milliseconds after its last turn in which a caller counts as one that may come again. */
const PRESENT_MS = 10_000;

/** A caller has at most one of so many parts of all places. */
const PARTS = 2;
/** Work that takes several locks also takes long, so a caller has less of it at a time. */
const LOCKING_PARTS = 4;

/** Milliseconds after a deadlock in which the callers that took part in it run work that takes locks one at a time. */
const CALM_MS = 2_000;

export class Limiter {
  /** Whether some work has waited in vain, and none has ended since. */
  isStarved = false;
  readonly #callers = new Map<string, Caller>();
  /** Callers with waiting work: the next one first, and the one with the longest queue first. */
  readonly #next = new Heap<Caller>(isNext);
  readonly #longest = new Heap<Caller>(isLonger);
  /** Callers whose work has met a deadlock, and until when it runs one at a time. */
  readonly #calm = new Map<string, number>();
  /** The caller of the last turn, and when the last turns of this one and of any other caller were. */
  readonly #last = { caller: '', at: Number.NEGATIVE_INFINITY, otherAt: Number.NEGATIVE_INFINITY };
  #running = 0;
  #waiting = 0;
  #turns = 0;
  #arrivals = 0;
  #isFollowed = false;
  #closedBy: (() => Error) | null = null;

  /** `size` is how much work runs at a time. */
  constructor(
    private readonly size: number,
    private readonly options: LimiterOptions,
    private readonly root: Limiter | null = null,
  ) {}

  get waiting(): number {
    return this.#waiting;
  }

  /** The callers of the work that waits, in their order; each as often as it has such work. */
  get waitingCallers(): readonly string[] {
    return [...this.#callers.values()].flatMap((caller) => Array<string>(lengthOf(caller)).fill(caller.name));
  }

  /** From now on, work that is begun inside of other work takes its place: it waits only for work inside of the same place. */
  followPlaces(): void {
    this.#isFollowed = true;
  }

  get isFollowed(): boolean {
    return this.root?.isFollowed ?? this.#isFollowed;
  }

  /** Whether the running work is inside of other work that has a place. */
  get isInside(): boolean {
    return this.#outerPlace() !== null;
  }

  /** The place in which the running work was begun. */
  #outerPlace(given?: Scope): HeldPlace | null {
    if (!this.isFollowed) return null;
    let scope = given ? given.outer : (scopes.getStore() ?? null);
    while (scope && (scope.isOver || scope.place?.root !== this)) scope = scope.outer;
    return scope?.place ?? null;
  }

  async run<Result>(turn: Turn, work: () => Promise<Result>): Promise<Result> {
    const place = await this.enter(turn);
    try {
      return await place.run(work);
    } finally {
      place.leave();
    }
  }

  enter(turn: Turn): Place | Promise<Place> {
    if (this.#closedBy) throw this.#closedBy();
    const outer = this.#outerPlace(turn.scope);
    return outer ? outer.inner(this.options).#enter(turn) : this.#enter(turn);
  }

  #enter(turn: Turn): Place | Promise<Place> {
    this.#note(turn.caller);
    const caller = this.#callerOf(turn.caller);
    caller.rank = turn.rank ?? 0;
    if (!this.#mayRun(caller, turn)) return this.#wait(caller, turn);
    const place = this.#take(caller, turn);
    if (this.#waiting > 0) this.#changed(caller);
    return place;
  }

  #callerOf(name: string): Caller {
    const known = this.#callers.get(name);
    if (known) return known;
    const waiting = { plain: [], locking: [] };
    const served = this.#turns - HALF;
    const caller: Caller = { name, order: ++this.#arrivals, waiting, rank: 0, running: 0, locking: 0, served };
    this.#callers.set(name, caller);
    return caller;
  }

  #mayRun({ name, running, locking }: Caller, { takesLocks = false }: Turn): boolean {
    if (this.#running >= this.size) return false;
    if (name !== '' && running >= this.#shareOf(name, PARTS)) return false;
    if (!takesLocks) return true;
    if (name !== '' && locking >= this.#shareOf(name, LOCKING_PARTS)) return false;
    return !this.#isCalm(name) || this.#calmRunning() === 0;
  }

  /** The most places that a caller may have. Some are left for the next caller, also if there was none so far. */
  #shareOf(name: string, parts: number): number {
    const { size } = this;
    const { caller, at, otherAt } = this.#last;
    const isAlone = performance.now() - (caller === name ? otherAt : at) > PRESENT_MS;
    return this.options.share ?? Math.max(1, isAlone ? size - Math.ceil(size / 4) : Math.floor(size / parts));
  }

  #note(name: string): void {
    const last = this.#last;
    if (name === '') return;
    if (name !== last.caller) last.otherAt = last.at;
    last.caller = name;
    last.at = performance.now();
  }

  #isCalm(name: string): boolean {
    return (this.#calm.get(name) ?? 0) > performance.now();
  }

  #calmRunning(): number {
    let running = 0;
    for (const name of this.#calm.keys())
      if (this.#isCalm(name)) running += this.#callers.get(name)?.locking ?? 0;
      else this.#calm.delete(name);
    return running;
  }

  #take(caller: Caller, turn: Turn): Place {
    this.#running++;
    caller.running++;
    caller.served = ++this.#turns;
    if (turn.takesLocks) caller.locking++;
    const place = new HeldPlace(this.root ?? this, () => {
      this.isStarved = false;
      this.#running--;
      caller.running--;
      if (turn.takesLocks) caller.locking--;
      this.#changed(caller);
      this.#admit();
    });
    if (turn.scope) turn.scope.place = place;
    return place;
  }

  /** Puts the caller where it belongs after its work has changed. */
  #changed(caller: Caller): void {
    if (lengthOf(caller) > 0) {
      this.#next.put(caller);
      this.#longest.put(caller);
      return;
    }
    this.#next.delete(caller);
    this.#longest.delete(caller);
    if (caller.running === 0) this.#callers.delete(caller.name);
  }

  #wait(caller: Caller, turn: Turn): Promise<Place> {
    const queue = turn.takesLocks ? caller.waiting.locking : caller.waiting.plain;
    return new Promise((resolve, reject) => {
      const end = (): void => {
        clearTimeout(timer);
        if (queue[0] === waiting) queue.shift();
        else queue.splice(queue.indexOf(waiting), 1);
        this.#waiting--;
      };
      const refuse = (reason: Error): void => {
        end();
        this.#changed(caller);
        reject(reason);
      };
      const admit = (): void => {
        end();
        const place = this.#take(caller, turn);
        this.#changed(caller);
        resolve(place);
      };
      const waiting: Waiting = { turn, admit, refuse, since: this.#turns - HALF, order: ++this.#arrivals };
      const timer = this.#atDeadline(refuse);
      queue.push(waiting);
      this.#waiting++;
      this.#changed(caller);
      turn.client?.onAbort?.(() => {
        if (queue.includes(waiting)) refuse(clientLeft());
      });
      this.#bound();
    });
  }

  #atDeadline(refuse: (reason: Error) => void): NodeJS.Timeout | undefined {
    const { waitTimeout } = this.options;
    if (waitTimeout === undefined) return;
    return setTimeout(() => {
      this.isStarved = true;
      refuse(this.#refusal(false));
    }, waitTimeout);
  }

  #refusal(isBusiest: boolean): Error {
    return this.options.refusal?.(isBusiest) ?? serviceUnavailable('database', 'Too many requests are waiting');
  }

  /** The caller with the longest queue gives up its last work. If there are several, the newest caller does. */
  #bound(): void {
    if (this.#waiting <= (this.options.maxWaiting ?? MAX_WAITING)) return;
    const { first: longest } = this.#longest;
    if (longest) lastOf(longest)?.refuse(this.#refusal(lengthOf(longest) > 1));
  }

  #admit(): void {
    while (this.#waiting > 0 && this.#running < this.size) {
      const next = this.#nextWaiting();
      if (!next) return;
      if (next.turn.client?.aborted) next.refuse(clientLeft());
      else next.admit();
    }
  }

  /** The first work that may run. Callers that may not have running work, or had a deadlock, so there are few of them. */
  #nextWaiting(): Waiting | undefined {
    const skipped: Caller[] = [];
    let found: Waiting | undefined;
    for (let { first } = this.#next; first && !found; { first } = this.#next) {
      found = this.#admissible(first);
      if (found) break;
      this.#next.delete(first);
      skipped.push(first);
    }
    for (const caller of skipped) this.#next.put(caller);
    return found;
  }

  /** The first work of the caller that may run. */
  #admissible(caller: Caller): Waiting | undefined {
    const { plain, locking } = caller.waiting;
    return earlier(
      this.#mayRun(caller, OWN_TURN) ? plain[0] : undefined,
      this.#mayRun(caller, LOCKING_TURN) ? locking[0] : undefined,
    );
  }

  /** After a deadlock. For a while, work of these callers that takes locks runs one at a time. */
  calm(callers: Iterable<string>): void {
    const until = performance.now() + CALM_MS;
    for (const name of callers) this.#calm.set(name, until);
    setTimeout(() => this.#admit(), CALM_MS).unref();
  }

  /** All work that waits is refused, and so is what comes later. */
  close(reason: () => Error = stopped): void {
    this.#closedBy = reason;
    for (const { waiting } of [...this.#callers.values()])
      for (const { refuse } of [...waiting.plain, ...waiting.locking]) refuse(reason());
  }
}

/** By rank, the caller with the least running work is next. If there are several, the one whose last turn is the longest ago is, then the first. */
function isNext(one: Caller, other: Caller): boolean {
  return (
    (one.rank - other.rank ||
      runningOf(one) - runningOf(other) ||
      lastTurnOf(one) - lastTurnOf(other) ||
      one.order - other.order) < 0
  );
}

function isLonger(one: Caller, other: Caller): boolean {
  return (lengthOf(one) - lengthOf(other) || one.rank - other.rank || one.order - other.order) > 0;
}

/** A new caller comes after those that were served before, and before the one that was served last. */
const HALF = 0.5;

/** Work without a caller, such as a batch, is that of several callers. It waits for its turn, and not for the others to end. */
function runningOf({ name, running }: Caller): number {
  return name === '' ? 0 : running;
}

/** The turn that the caller had last, or for work without a caller the turn at which the oldest of it came. */
function lastTurnOf(caller: Caller): number {
  return caller.name === '' ? (earlier(caller.waiting.plain[0], caller.waiting.locking[0])?.since ?? 0) : caller.served;
}

function earlier(one: Waiting | undefined, other: Waiting | undefined): Waiting | undefined {
  return one && other ? (one.order < other.order ? one : other) : (one ?? other);
}

function lengthOf({ waiting: { plain, locking } }: Caller): number {
  return plain.length + locking.length;
}

function lastOf({ waiting }: Caller): Waiting | undefined {
  const [plain, locking] = [waiting.plain.at(-1), waiting.locking.at(-1)];
  return (plain?.order ?? 0) > (locking?.order ?? 0) ? plain : locking;
}

class HeldPlace implements Place {
  #inner: Limiter | null = null;
  #isLeft = false;
  readonly #scope = newScope(this);

  constructor(
    readonly root: Limiter,
    private readonly release: () => void,
  ) {}

  run<Result>(work: () => Promise<Result>): Promise<Result> {
    return this.root.isFollowed ? scopes.run(this.#scope, work) : work();
  }

  /** The queue of the work inside of this place, which runs one at a time. */
  inner(options: LimiterOptions): Limiter {
    this.#inner ??= new Limiter(1, options, this.root);
    return this.#inner;
  }

  leave(): void {
    if (this.#isLeft) return;
    this.#isLeft = true;
    this.#scope.isOver = true;
    this.release();
  }
}

function clientLeft(): Error {
  return serviceUnavailable('database', 'The client disconnected');
}

function stopped(): Error {
  return serviceUnavailable('database', 'The service is stopping');
}
