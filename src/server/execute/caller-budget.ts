/**
 * The time that callers may take from the event loop. A request of a known shape costs next to nothing; a new shape has to be planned, compiled
 * and checked, a new document parsed and validated, while other requests wait. Each caller has a share of the loop for that and
 * may save up some of it; a caller who has used it up is refused until time has passed.
 */

import { requestsExceeded } from '../../base/errors.js';
import { growingCache } from '../../base/growing-cache.js';
import { runSteps, type Steps } from '../../base/time-slices.js';
import { callerName } from '../access/identity.js';
import { TurnQueue } from '../node/turns.js';

/** The caller whose budget pays for the work. */
export interface BilledCaller {
  readonly caller: { readonly user: string | null; readonly administrator: boolean };
  readonly from: { readonly address: string };
}

/** The writer pays for a write. */
export function billWriter({ caller, author }: WrittenBy): BilledCaller {
  return { caller, from: { address: author.ip ?? '' } };
}

interface WrittenBy {
  readonly caller: BilledCaller['caller'];
  readonly author: { readonly ip: string | null };
}

interface CallerBudgetLimits {
  /** Percent of the loop; 0 for no limit. */
  readonly share: number;
  /** Milliseconds that may be saved up. */
  readonly burst: number;
}

interface Budget {
  /** Milliseconds; below zero for a debt. */
  left: number;
  at: number;
}

/** Callers that are remembered. */
const MAX_CALLERS = 10_000;

/** Characters of a shape or a document from which on it has to wait for its turn. */
const LARGE_CHARACTERS = 2_000;

export class CallerBudgets {
  readonly #turns = new TurnQueue();
  readonly #accounts = growingCache<Budget>(MAX_CALLERS);

  constructor(private readonly limits: CallerBudgetLimits) {}

  /** Does the work and counts its time. With null the time is not counted. */
  run<Result>(billed: BilledCaller | null, work: () => Result): Result {
    const account = billed && this.#accountOf(billed);
    if (!account) return work();
    this.#refuseDebtor(account);
    return this.#count(account, work);
  }

  /** The same, but large work is done in turns, step by step. */
  inTurn<Result>(billed: BilledCaller | null, size: number, work: () => Steps<Result>): Result | Promise<Result> {
    return size < LARGE_CHARACTERS
      ? this.run(billed, () => runSteps(work()))
      : this.#inTurns(billed && this.#accountOf(billed), billed ? callerName(billed.caller, billed.from) : '', work());
  }

  /** Only the first step can be refused: work that has begun is completed. */
  async #inTurns<Result>(account: Budget | null, caller: string, steps: Steps<Result>): Promise<Result> {
    for (let isFirst = true; ; isFirst = false) {
      const { done, value } = await this.#turns.run(caller, () => {
        if (!account) return steps.next();
        if (isFirst) this.#refuseDebtor(account);
        return this.#count(account, () => steps.next());
      });
      if (done) return value;
    }
  }

  #refuseDebtor(account: Budget): void {
    this.#refill(account, performance.now());
    if (account.left <= 0)
      throw requestsExceeded({ option: 'CALLER_LOOP_SHARE', limit: this.limits.share }, this.#wait(account));
  }

  #count<Result>(account: Budget, work: () => Result): Result {
    const start = performance.now();
    const used = process.cpuUsage();
    try {
      return work();
    } finally {
      // Wall time counts other processes, CPU time of the process counts other threads: the smaller one is closer.
      const { user, system } = process.cpuUsage(used);
      const cost = Math.min(performance.now() - start, (user + system) / 1_000);
      account.left = Math.max(account.left - cost, -this.limits.burst);
    }
  }

  #accountOf({ caller, from }: BilledCaller): Budget | null {
    const { share, burst } = this.limits;
    if (caller.administrator || share === 0) return null;
    const name = callerName(caller, from);
    const existing = this.#accounts.get(name);
    if (existing) return existing;
    const account: Budget = { left: burst, at: performance.now() };
    this.#accounts.set(name, account);
    return account;
  }

  #refill(account: Budget, now: number): void {
    const { share, burst } = this.limits;
    account.left = Math.min(burst, account.left + ((now - account.at) * share) / 100);
    account.at = now;
  }

  /** Milliseconds until a small part is there again. */
  #wait({ left }: Budget): number {
    const { share, burst } = this.limits;
    return ((burst / 10 - left) * 100) / share;
  }
}
