/**
 * Work that waits in turn for something scarce, such as a connection. One queue decides: callers take turns, and each has a share, so that
 * a caller with many requests delays only itself. Every wait has a deadline, and the queue has a bound.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { serviceUnavailable } from './errors.js';

/** The caller of the work, and the facts about it that the queue needs. */
export interface Turn {
  /** '' for the service itself, which has no share. */
  readonly caller: string;
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

export interface LimiterOptions {
  /** Milliseconds. */
  readonly waitTimeout: number;
  /**
   * The most that one caller may have at a time. By default half, a quarter for work that takes several locks, and three quarters of both
   * while there is no other caller.
   */
  readonly share?: number;
  readonly maxWaiting?: number;
  /** The error for work whose time has passed, or for which the queue has no room. */
  readonly refusal: () => Error;
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
}

/** A caller with work that waits or runs. */
interface Caller {
  readonly name: string;
  readonly waiting: Set<Waiting>;
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
  /** Callers whose work has met a deadlock, and until when it runs one at a time. */
  readonly #calm = new Map<string, number>();
  /** The caller of the last turn, and when the last turns of this one and of any other caller were. */
  readonly #last = { caller: '', at: Number.NEGATIVE_INFINITY, otherAt: Number.NEGATIVE_INFINITY };
  #running = 0;
  #waiting = 0;
  #turns = 0;
  #isFollowed = false;
  #isClosed = false;

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
    return [...this.#callers.values()].flatMap(({ name, waiting }) => Array<string>(waiting.size).fill(name));
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
    if (this.#isClosed) throw stopped();
    const outer = this.#outerPlace(turn.scope);
    return outer ? outer.inner(this.options).#enter(turn) : this.#enter(turn);
  }

  #enter(turn: Turn): Place | Promise<Place> {
    this.#note(turn.caller);
    const caller = this.#callerOf(turn.caller);
    return this.#mayRun(caller, turn) ? this.#take(caller, turn) : this.#wait(caller, turn);
  }

  #callerOf(name: string): Caller {
    const known = this.#callers.get(name);
    if (known) return known;
    const caller: Caller = { name, waiting: new Set(), running: 0, locking: 0, served: this.#turns - HALF };
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
      this.#forget(caller);
      this.#admit();
    });
    if (turn.scope) turn.scope.place = place;
    return place;
  }

  #forget({ name, running, waiting }: Caller): void {
    if (running === 0 && waiting.size === 0) this.#callers.delete(name);
  }

  #wait(caller: Caller, turn: Turn): Promise<Place> {
    return new Promise((resolve, reject) => {
      const end = (): void => {
        clearTimeout(timer);
        if (caller.waiting.delete(waiting)) this.#waiting--;
      };
      const refuse = (reason: Error): void => {
        end();
        this.#forget(caller);
        reject(reason);
      };
      const admit = (): void => {
        end();
        resolve(this.#take(caller, turn));
      };
      const waiting: Waiting = { turn, admit, refuse, since: this.#turns - HALF };
      const timer = setTimeout(() => {
        this.isStarved = true;
        refuse(this.options.refusal());
      }, this.options.waitTimeout);
      caller.waiting.add(waiting);
      this.#waiting++;
      turn.client?.onAbort?.(() => {
        if (caller.waiting.has(waiting)) refuse(clientLeft());
      });
      this.#bound();
    });
  }

  /** The caller with the longest queue gives up its last work. If there are several, the newest caller does. */
  #bound(): void {
    if (this.#waiting <= (this.options.maxWaiting ?? MAX_WAITING)) return;
    let longest: Caller | null = null;
    for (const caller of this.#callers.values())
      if (caller.waiting.size >= (longest?.waiting.size ?? 0)) longest = caller;
    [...(longest?.waiting ?? [])].at(-1)?.refuse(this.options.refusal());
  }

  #admit(): void {
    while (this.#waiting > 0 && this.#running < this.size) {
      const next = this.#next();
      if (next === null) return;
      if (next.turn.client?.aborted) next.refuse(clientLeft());
      else next.admit();
    }
  }

  /** The caller with the least running work is next. If there are several, the one whose last turn is the longest ago is, then the first. */
  #next(): Waiting | null {
    let found: { readonly caller: Caller; readonly waiting: Waiting } | null = null;
    for (const caller of this.#callers.values()) {
      const isLater =
        found !== null &&
        (runningOf(caller) - runningOf(found.caller) || lastTurnOf(caller) - lastTurnOf(found.caller)) >= 0;
      // A caller without a free place would have its whole queue looked through.
      if (isLater || !this.#mayRun(caller, OWN_TURN)) continue;
      for (const waiting of caller.waiting)
        if (this.#mayRun(caller, waiting.turn)) {
          found = { caller, waiting };
          break;
        }
    }
    return found?.waiting ?? null;
  }

  /** After a deadlock. For a while, work of these callers that takes locks runs one at a time. */
  calm(callers: Iterable<string>): void {
    const until = performance.now() + CALM_MS;
    for (const name of callers) this.#calm.set(name, until);
    setTimeout(() => this.#admit(), CALM_MS).unref();
  }

  /** All work that waits is refused, and so is what comes later. */
  close(): void {
    this.#isClosed = true;
    for (const { waiting } of [...this.#callers.values()]) for (const { refuse } of [...waiting]) refuse(stopped());
  }
}

/** A new caller comes after those that were served before, and before the one that was served last. */
const HALF = 0.5;

/** Work without a caller, such as a batch, is that of several callers. It waits for its turn, and not for the others to end. */
function runningOf({ name, running }: Caller): number {
  return name === '' ? 0 : running;
}

/** The turn that the caller had last, or for work without a caller the turn at which the oldest of it came. */
function lastTurnOf({ name, served, waiting }: Caller): number {
  if (name !== '') return served;
  for (const { since } of waiting) return since;
  return served;
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
