/** Measures the same case at the beginning and at the end of a run. The difference shows how reliable the machine is. */
import { findCase } from './cases.js';
import { ceiling } from './ceiling.js';
import type { Report } from './environment.js';
import { addressOf, betterOf, type Measuring, makeContender, warm } from './measure.js';
import { readStatement } from './statement.js';

export interface Sample {
  /** By key. */
  readonly requestsPerSecond: number;
  readonly p99: number;
  /** The same statement, run by pgbench with 8 clients. */
  readonly statementsPerSecond: number;
}

export interface Noise {
  readonly begin: Sample;
  readonly end: Sample;
}

const CLIENTS = 8;

export async function takeSample(measuring: Measuring, when: string, report: Report): Promise<Sample> {
  const { url, databaseUrl, connections, seconds, rounds, warmUp, signal } = measuring;
  const key = findCase('key');
  if (key === undefined) throw new Error('there is no case "key"');
  const address = addressOf(key, url);
  const statement = await readStatement(key, address, databaseUrl, signal);
  const contender = await makeContender(key, address, { connections, databaseUrl, signal });
  await warm(contender, warmUp, signal);
  let best = await contender(seconds);
  let highest = 0;
  for (let round = 1; round <= rounds; round++) {
    const reached = await ceiling({ databaseUrl, ...statement, connections: CLIENTS, seconds, signal });
    highest = Math.max(highest, reached.statementsPerSecond);
    if (round < rounds) best = betterOf(best, await contender(seconds));
  }
  const { requestsPerSecond, p99 } = best;
  report(`by key at the ${when}: ${requestsPerSecond.toFixed(0)} requests/s, pgbench ${highest.toFixed(0)}`);
  return { requestsPerSecond, p99, statementsPerSecond: highest };
}

/** The larger of the two as a multiple of the smaller. */
export function spreadOf({ begin, end }: Noise, of: 'requestsPerSecond' | 'statementsPerSecond'): number {
  return Math.max(begin[of], end[of]) / Math.min(begin[of], end[of]);
}
