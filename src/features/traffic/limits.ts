/** Rates and limits, as the command line writes them: `500/s`, `2x`, `p99=50ms,errors=0.1%`. */
import { UsageError } from '../../base/errors.js';
import { messageOf } from '../../base/narrow.js';
import { duration } from '../../server/config/option-kinds.js';
import type { Percentiles } from './percentiles.js';

/** As a multiple of the recorded rate, or in requests per second. */
export type Rate =
  | { readonly kind: 'factor'; readonly factor: number }
  | { readonly kind: 'constant'; readonly perSecond: number };

export function parseRate(option: string, text: string): Rate {
  const rate = readRate(text);
  if (rate === null)
    throw new UsageError(`${option} must be a factor such as 2x, or a rate such as 500/s, not "${text}"`);
  return rate;
}

/** In requests per second. */
export function parseConstantRate(option: string, text: string): number {
  const rate = readRate(text);
  if (rate?.kind !== 'constant') throw new UsageError(`${option} must be a rate such as 50/s, not "${text}"`);
  return rate.perSecond;
}

function readRate(text: string): Rate | null {
  const [, number = '', unit = ''] = /^(\d{1,7}(?:\.\d{1,4})?)(x|\/s)$/.exec(text) ?? [];
  const value = Number(number);
  if (value <= 0) return null;
  return unit === 'x' ? { kind: 'factor', factor: value } : { kind: 'constant', perSecond: value };
}

/** E.g. `1 request`, `2 requests`. */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${count} ${count === 1 ? noun : plural}`;
}

const { parse: parseMilliseconds } = duration('', '');

/** In milliseconds. */
export function parseDuration(option: string, text: string): number {
  try {
    const milliseconds = parseMilliseconds(text);
    if (milliseconds > 0) return milliseconds;
  } catch (error) {
    throw new UsageError(`${option} ${messageOf(error)}`);
  }
  throw new UsageError(`${option} must be longer than 0, not "${text}"`);
}

export function parseCount(option: string, text: string, [least, most]: readonly [number, number]): number {
  const count = /^\d{1,9}$/.test(text) ? Number(text) : -1;
  if (count < least || count > most)
    throw new UsageError(`${option} must be a whole number from ${least} to ${most}, not "${text}"`);
  return count;
}

const TIMES = ['p50', 'p90', 'p99', 'p99.9'] as const;
const SHARES = ['errors', 'status'] as const;

/** Figures that limits are compared with. */
export interface Measured {
  readonly requests: number;
  readonly latency: Percentiles;
  /** Requests without a response, and responses with status 429 or from 500 on. */
  readonly errors: number;
  /** Responses with another status than the recording has. */
  readonly different: number;
}

export interface ServiceLimit {
  /** As it was written. */
  readonly text: string;
  readonly name: (typeof TIMES)[number] | (typeof SHARES)[number];
  /** Milliseconds, or a share of all requests. */
  readonly most: number;
}

export interface LimitResult {
  readonly limit: ServiceLimit;
  readonly value: number;
  readonly isKept: boolean;
}

/** E.g. `p99=50ms,errors=0.1%`. `status` is the share of responses whose status differs from the recording. */
export function parseServiceLimits(text: string): readonly ServiceLimit[] {
  return text.split(',').map((each) => parseServiceLimit(each.trim()));
}

function parseServiceLimit(text: string): ServiceLimit {
  const [, name = '', value = ''] = /^([\w.]+)=(.+)$/.exec(text) ?? [];
  const time = TIMES.find((known) => known === name);
  if (time) return { text, name: time, most: parseDuration(`--slo ${time}`, value) };
  const share = SHARES.find((known) => known === name);
  const [, percent] = /^(\d{1,3}(?:\.\d{1,6})?)%$/.exec(value) ?? [];
  if (share && percent !== undefined && Number(percent) <= 100)
    return { text, name: share, most: Number(percent) / 100 };
  if (share) throw new UsageError(`--slo ${share} must be a percentage such as 0.1%, not "${value}"`);
  throw new UsageError(
    `--slo has limits such as p99=50ms,errors=0.1% (${[...TIMES, ...SHARES].join(', ')}), not "${text}"`,
  );
}

export function checkLimits(limits: readonly ServiceLimit[], measured: Measured): readonly LimitResult[] {
  return limits.map((limit) => {
    const value = figureOf(limit.name, measured);
    return { limit, value, isKept: value <= limit.most };
  });
}

function figureOf(name: ServiceLimit['name'], { requests, latency, errors, different }: Measured): number {
  if (name === 'errors') return requests === 0 ? 1 : errors / requests;
  if (name === 'status') return requests === 0 ? 1 : different / requests;
  return latency[name];
}
