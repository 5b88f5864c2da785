/**
 * Limits of requests, logins and registrations: for one address, and for all together. Each instance counts once for all of its threads, or
 * all instances count together (limit-store.ts). A limit that is off counts nothing.
 */
import { RateLimiterRes } from 'rate-limiter-flexible';
import { requestsExceeded } from '../../base/errors.js';
import { networkOf } from '../access/addresses.js';
import { LoginBackoff, type LoginLimit } from '../accounts/login-backoff.js';
import type { Config } from '../config/config.js';
import { type Counter, type LimitStore, memoryStore } from './limit-store.js';

/** Rejects with REQUESTS_EXCEEDED when there were too many. */
export type Limit = (address: string) => Promise<void>;

export interface Limits {
  /** The limits of requests, or null if all are off. */
  readonly requests: Limit | null;
  readonly logins: LoginLimit;
  readonly registrations: Limit;
}

export function createLimits(config: Config, store: LimitStore): Limits {
  return {
    requests: createLimit(config, store),
    logins: createLoginLimit(config, store),
    registrations: createRegistrationLimit(config, store),
  };
}

/** Limits that another thread counts. It is not asked if all are off. */
export function remoteLimits(
  config: Config,
  counter: { requests: Limit; logins: LoginLimit; registrations: Limit },
): Limits {
  const local = createLimits(config, memoryStore);
  const { attempt, forgive } = config.RATE_LIMITER_LOGIN_ENABLED ? counter.logins : local.logins;
  const { enter, settle } = config.LOGIN_BACKOFF_MAX > 0 ? counter.logins : local.logins;
  return {
    requests: local.requests && counter.requests,
    logins: { attempt, forgive, enter, settle },
    registrations: config.RATE_LIMITER_REGISTRATION_ENABLED ? counter.registrations : local.registrations,
  };
}

function createLimit(config: Config, store: LimitStore): Limit | null {
  const limits: Limit[] = [];
  if (config.RATE_LIMITER_GLOBAL_ENABLED) {
    const { RATE_LIMITER_GLOBAL_POINTS: points, RATE_LIMITER_GLOBAL_DURATION: seconds } = config;
    const all = store.counter({ name: 'all', points, seconds, isFinal: true });
    limits.push(() => consume(all, 'all', 'RATE_LIMITER_GLOBAL_POINTS'));
  }
  if (config.RATE_LIMITER_ENABLED) {
    const { RATE_LIMITER_POINTS: points, RATE_LIMITER_DURATION: seconds } = config;
    const each = store.counter({ name: 'requests', points, seconds, isFinal: true });
    // Before the global one: an address that asks too much must not use up what others may ask.
    limits.unshift((address) => consume(each, networkOf(address), 'RATE_LIMITER_POINTS'));
  }
  if (limits.length === 0) return null;
  return async (address) => {
    for (const limit of limits) await limit(address);
  };
}

function createLoginLimit(config: Config, store: LimitStore): LoginLimit {
  const backoff = new LoginBackoff({ after: config.LOGIN_BACKOFF_AFTER, maxWaitMs: config.LOGIN_BACKOFF_MAX });
  const turns: Pick<LoginLimit, 'enter' | 'settle'> = {
    enter: (attempt) => backoff.enter(attempt),
    settle: async (attempt, outcome) => backoff.settle(attempt, outcome),
  };
  if (!config.RATE_LIMITER_LOGIN_ENABLED) return { attempt: async () => {}, forgive: async () => {}, ...turns };
  const { RATE_LIMITER_LOGIN_POINTS: points, RATE_LIMITER_LOGIN_DURATION: seconds } = config;
  const limiter = store.counter({ name: 'logins', points, seconds, isFinal: false });
  return {
    attempt: (address) => consume(limiter, networkOf(address), 'RATE_LIMITER_LOGIN_POINTS'),
    forgive: async (address) => void (await limiter.reward(networkOf(address))),
    ...turns,
  };
}

/** Counts successful registrations too: repeated attempts must reveal nothing. */
function createRegistrationLimit(config: Config, store: LimitStore): Limit {
  if (!config.RATE_LIMITER_REGISTRATION_ENABLED) return async () => {};
  const { RATE_LIMITER_REGISTRATION_POINTS: points, RATE_LIMITER_REGISTRATION_DURATION: seconds } = config;
  const limiter = store.counter({ name: 'registrations', points, seconds, isFinal: true });
  return (address) => consume(limiter, networkOf(address), 'RATE_LIMITER_REGISTRATION_POINTS');
}

async function consume(limiter: Counter, key: string, option: string): Promise<void> {
  try {
    await limiter.consume(key);
  } catch (refused) {
    if (!(refused instanceof RateLimiterRes)) throw refused;
    throw requestsExceeded({ option, limit: limiter.points }, refused.msBeforeNext);
  }
}
