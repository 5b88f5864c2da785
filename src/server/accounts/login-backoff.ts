/**
 * Failed logins slow the next ones down, and suspend nobody. Counted in the memory of each instance, by what was sent: an
 * account that does not exist is counted like one that does, so they cannot be distinguished.
 *
 * - An address that has failed too often is refused until its time has come: twice as long with each failure.
 * - Attempts at an account that has been failed too often, from wherever, take turns. They wait for theirs, without a connection. From a
 *   suspicious address, an attempt that would wait too long is refused.
 * - A stranger can keep nobody out: from an address that is not suspicious nobody waits longer than `MAX_WAIT_MS`, and from one where
 *   the same account came in before nobody waits at all, until guesses come from there too.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { LRUCache } from 'lru-cache';
import { requestsExceeded } from '../../base/errors.js';
import { growingCache } from '../../base/growing-cache.js';
import { networkOf } from '../access/addresses.js';

interface BackoffLimits {
  /** Failures that cost nothing. */
  readonly after: number;
  /** The longest wait of an address; 0 for no backoff. */
  readonly maxWaitMs: number;
}

/** Where somebody tries to come in, and as whom. */
export interface Attempt {
  readonly address: string;
  readonly account: string;
}

/** Whether it succeeded, or proved nothing because something else went wrong. A failure is counted beforehand. */
export type AttemptOutcome = 'good' | 'void';

/** Limits logins: how many an address may try, and how soon the next one may come. */
export interface LoginLimit {
  /** Counts an attempt before its outcome is known, so that many at once are counted too. */
  attempt(address: string): Promise<void>;
  /** Takes an attempt back: a caller who knows the password is no guesser. */
  forgive(address: string): Promise<void>;
  /** Resolves when it may be made. */
  enter(attempt: Attempt): Promise<void>;
  /** Records the outcome of an attempt that was made and did not fail. */
  settle(attempt: Attempt, outcome: AttemptOutcome): Promise<void>;
}

const FIRST_WAIT_MS = 500;

/** After this time one failure is forgotten. */
const FORGET_AFTER_MS = 30_000;

/** A mistyped password fails a few times; so many failures in this time make an address suspicious. */
const SUSPICIOUS_FAILURES = 3;
const SUSPICIOUS_FOR_MS = 900_000;

/** A login waits no longer for its turn. */
const MAX_WAIT_MS = 5_000;

/** Logins that wait at the same time, all in all. */
const MAX_WAITING = 1_000;

/** Addresses, accounts and pairs of them that are remembered. */
const MAX_REMEMBERED = 20_000;

interface Failures {
  /** Failures that still count. */
  count: number;
  /** All failures, including those that no longer count, except very old ones. */
  total: number;
  /** When the last one was. */
  at: number;
  /** The time of the next attempt. */
  turn: number;
}

type Memory = LRUCache<string, Failures>;

export class LoginBackoff {
  readonly #addresses: Memory = growingCache(MAX_REMEMBERED);
  readonly #accounts: Memory = growingCache(MAX_REMEMBERED);
  /** Where accounts came in before, and how often they were failed from there since. */
  readonly #known = growingCache<number>(MAX_REMEMBERED);
  #waiting = 0;

  constructor(
    private readonly limits: BackoffLimits,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Counts an attempt before its outcome is known, so that many at once are counted too; resolves when it may be made. */
  async enter(attempt: Attempt): Promise<void> {
    if (this.limits.maxWaitMs === 0) return;
    const { address, account, pair } = namesOf(attempt);
    const failed = this.#known.get(pair);
    const from = this.#read(this.#addresses, address);
    const suspicious = from.total >= SUSPICIOUS_FAILURES;
    if (failed !== undefined) {
      // Guesses come from there too: from then on it is an address like any other.
      if (failed < this.limits.after) this.#known.set(pair, failed + 1);
      else this.#known.delete(pair);
    } else this.#refuseUntil(from.at + this.#gap(from.count, this.limits.maxWaitMs));
    const wait = failed === undefined ? this.#takeTurn(account, suspicious) : 0;
    this.#count(this.#addresses, address);
    this.#count(this.#accounts, account);
    if (wait === 0) return;
    this.#waiting++;
    await sleep(wait);
    this.#waiting--;
  }

  settle(attempt: Attempt, outcome: AttemptOutcome): void {
    const { address, account, pair } = namesOf(attempt);
    this.#discount(this.#addresses, address);
    this.#discount(this.#accounts, account);
    const failed = this.#known.get(pair);
    if (outcome === 'good') this.#known.set(pair, 0);
    else if (failed !== undefined) this.#known.set(pair, Math.max(failed - 1, 0));
  }

  #refuseUntil(time: number): void {
    const wait = time - this.now();
    if (wait > 0) throw requestsExceeded({ option: 'LOGIN_BACKOFF_AFTER', limit: this.limits.after }, wait);
  }

  /** Returns the milliseconds until then. */
  #takeTurn(account: string, suspicious: boolean): number {
    const at = this.#read(this.#accounts, account);
    const now = this.now();
    const gap = this.#gap(at.count, Math.min(this.limits.maxWaitMs, MAX_WAIT_MS));
    if (gap === 0) return 0;
    const turn = Math.max(at.turn, at.at + gap, now);
    const inTime = turn - now <= MAX_WAIT_MS && this.#waiting < MAX_WAITING;
    if (!inTime && suspicious) this.#refuseUntil(turn);
    if (inTime) this.#accounts.set(account, { ...at, turn: turn + gap });
    return this.#waiting < MAX_WAITING ? Math.min(turn - now, MAX_WAIT_MS) : 0;
  }

  #gap(count: number, maxWaitMs: number): number {
    const { after } = this.limits;
    return count < after ? 0 : Math.min(FIRST_WAIT_MS * 2 ** (count - after), maxWaitMs);
  }

  #read(memory: Memory, name: string): Failures {
    const failures = memory.get(name);
    if (!failures) return NONE;
    const passed = this.now() - failures.at;
    const count = Math.max(failures.count - Math.floor(passed / FORGET_AFTER_MS), 0);
    return { ...failures, count, total: passed > SUSPICIOUS_FOR_MS ? count : failures.total };
  }

  #count(memory: Memory, name: string): void {
    const { count, total, turn } = this.#read(memory, name);
    memory.set(name, { count: count + 1, total: total + 1, at: this.now(), turn });
  }

  /** Takes the last one back. */
  #discount(memory: Memory, name: string): void {
    const failures = memory.get(name);
    if (!failures) return;
    if (failures.total <= 1) memory.delete(name);
    else memory.set(name, { ...failures, count: Math.max(failures.count - 1, 0), total: failures.total - 1 });
  }
}

const NONE: Failures = { count: 0, total: 0, at: Number.NEGATIVE_INFINITY, turn: 0 };

/**
 * All spellings of an address that `lower()` of the database takes for one are one name. It folds each character by itself: no final sigma,
 * and a capital I with a dot is an i.
 */
function fold(account: string): string {
  const letters = [...account.slice(0, 1_000).normalize('NFKC')];
  return letters.map((letter) => (letter === '\u0130' ? 'i' : letter.toLowerCase())).join('');
}

/** The texts of a client may be of any length. */
function namesOf({ address, account }: Attempt): { address: string; account: string; pair: string } {
  const network = networkOf(address);
  const name = fold(account).slice(0, 320);
  return { address: network, account: name, pair: `${network} ${name}` };
}
