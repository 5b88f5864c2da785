/**
 * How much one address, and all of them together, may ask. Counted in the memory of each instance, once for all of its
 * threads; nothing is counted, and nothing waited for, while a limit is off.
 */
import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible';
import { networkOf } from '../access/addresses.js';
import { LoginBackoff, type LoginLimit } from '../accounts/login-backoff.js';
import type { Config } from '../config.js';
import { requestsExceeded } from '../errors.js';

/** Rejects with REQUESTS_EXCEEDED when there were too many. */
export type Limit = (address: string) => Promise<void>;

export interface Limits {
  /** Null when no limit is on. */
  readonly requests: Limit | null;
  readonly logins: LoginLimit;
  readonly registrations: Limit;
}

export function createLimits(config: Config): Limits {
  return {
    requests: createLimit(config),
    logins: createLoginLimit(config),
    registrations: createRegistrationLimit(config),
  };
}

/** Limits that another thread counts; it is not asked where none is on. */
export function remoteLimits(
  config: Config,
  counter: { requests: Limit; logins: LoginLimit; registrations: Limit },
): Limits {
  const local = createLimits(config);
  const { attempt, forgive } = config.RATE_LIMITER_LOGIN_ENABLED ? counter.logins : local.logins;
  const { enter, settle } = config.LOGIN_BACKOFF_MAX > 0 ? counter.logins : local.logins;
  return {
    requests: local.requests && counter.requests,
    logins: { attempt, forgive, enter, settle },
    registrations: config.RATE_LIMITER_REGISTRATION_ENABLED ? counter.registrations : local.registrations,
  };
}

function createLimit(config: Config): Limit | null {
  const limits: Limit[] = [];
  if (config.RATE_LIMITER_GLOBAL_ENABLED) {
    const all = makeLimiter(config.RATE_LIMITER_GLOBAL_POINTS, config.RATE_LIMITER_GLOBAL_DURATION);
    limits.push(() => consume(all, 'all', 'RATE_LIMITER_GLOBAL_POINTS'));
  }
  if (config.RATE_LIMITER_ENABLED) {
    const each = makeLimiter(config.RATE_LIMITER_POINTS, config.RATE_LIMITER_DURATION);
    // Before the global one: an address that asks too much must not use up what others may ask.
    limits.unshift((address) => consume(each, networkOf(address), 'RATE_LIMITER_POINTS'));
  }
  if (limits.length === 0) return null;
  return async (address) => {
    for (const limit of limits) await limit(address);
  };
}

function createLoginLimit(config: Config): LoginLimit {
  const backoff = new LoginBackoff({ after: config.LOGIN_BACKOFF_AFTER, maxWaitMs: config.LOGIN_BACKOFF_MAX });
  const turns: Pick<LoginLimit, 'enter' | 'settle'> = {
    enter: (attempt) => backoff.enter(attempt),
    settle: async (attempt, outcome) => backoff.settle(attempt, outcome),
  };
  if (!config.RATE_LIMITER_LOGIN_ENABLED) return { attempt: async () => {}, forgive: async () => {}, ...turns };
  const limiter = makeLimiter(config.RATE_LIMITER_LOGIN_POINTS, config.RATE_LIMITER_LOGIN_DURATION);
  return {
    attempt: (address) => consume(limiter, networkOf(address), 'RATE_LIMITER_LOGIN_POINTS'),
    forgive: async (address) => void (await limiter.reward(networkOf(address))),
    ...turns,
  };
}

/** Whatever comes of it: who asks learns nothing by asking often. */
function createRegistrationLimit(config: Config): Limit {
  if (!config.RATE_LIMITER_REGISTRATION_ENABLED) return async () => {};
  const limiter = makeLimiter(config.RATE_LIMITER_REGISTRATION_POINTS, config.RATE_LIMITER_REGISTRATION_DURATION);
  return (address) => consume(limiter, networkOf(address), 'RATE_LIMITER_REGISTRATION_POINTS');
}

function makeLimiter(points: number, seconds: number): RateLimiterMemory {
  return new RateLimiterMemory({ points, duration: seconds });
}

async function consume(limiter: RateLimiterMemory, key: string, option: string): Promise<void> {
  try {
    await limiter.consume(key);
  } catch (refused) {
    if (!(refused instanceof RateLimiterRes)) throw refused;
    throw requestsExceeded({ option, limit: limiter.points }, refused.msBeforeNext);
  }
}
