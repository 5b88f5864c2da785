/**
 * Mixed load for minutes, and the memory of the service during it. Only this measurement shows memory that the service keeps per
 * connection or request and never frees.
 */
import { setTimeout as wait } from 'node:timers/promises';
import type { Case } from './case.js';
import { findCase } from './cases.js';
import { type Report, startService } from './environment.js';
import type { LoadResult } from './load.js';
import { addressOf, type Measuring } from './measure.js';
import { readMemory } from './memory.js';
import { putUnderLoad, type Question } from './statement.js';
import { addSubjects, removeAdded, SUBJECTS, subjectKeys } from './subjects.js';
import { judgeMemory, MOST_GROWTH, MOST_MEMORY } from './verdict.js';

export interface Soak {
  readonly minutes: number;
  readonly connections: number;
  /** MiB: before any request, after the warm-up, and then every second. */
  readonly idle: number;
  readonly warm: number;
  readonly samples: readonly number[];
  readonly parts: readonly SoakPart[];
}

export interface SoakPart {
  readonly title: string;
  readonly connections: number;
  readonly requestsPerSecond: number;
  readonly p99: number;
  readonly errors: number;
}

export type SoakOptions = Pick<Measuring, 'databaseUrl' | 'warmUp' | 'connections' | 'poolSize' | 'signal'> & {
  readonly minutes: number;
  readonly settings: Readonly<Record<string, string>>;
};

/** Shares of 16 connections: most read, one writes. */
const SHARES = { key: 7, nested: 4, filter: 1, graphql: 3, update: 1 };

const UPDATE: Question & Pick<Case, 'title'> = {
  title: 'update',
  method: 'PATCH',
  requests: Array.from({ length: SUBJECTS }, (_, index) => ({
    path: `/items/articles/${subjectKeys(index).article}`,
    body: JSON.stringify({ title: `Changed by request ${index}`, views: index }),
  })),
};

export async function soak(options: SoakOptions, report: Report): Promise<Soak> {
  const { databaseUrl, warmUp, connections, minutes, signal } = options;
  await addSubjects(databaseUrl);
  const service = await startService(options);
  try {
    const idle = await readMemory(service.pid);
    report(`before any request: ${idle.toFixed(1)} MiB`);
    // A long response may not complete within so short a time.
    if (warmUp > 0) await Promise.allSettled(loadMixed(service.url, connections, warmUp, signal));
    signal.throwIfAborted();
    const warm = await readMemory(service.pid);
    report(`after the warm-up: ${warm.toFixed(1)} MiB`);
    const loading = Promise.all(loadMixed(service.url, connections, minutes * 60, signal));
    const sampling = sample(service.pid, minutes * 60, signal, report);
    const [parts, samples] = await Promise.all([loading, sampling]);
    for (const { title, connections: count, requestsPerSecond, p99, errors } of parts) {
      report(
        `${title} × ${count}: ${requestsPerSecond.toFixed(0)} requests/s, p99 ${p99.toFixed(1)} ms, ${errors} errors`,
      );
    }
    return { minutes, connections, idle, warm, samples, parts };
  } finally {
    await service.stop();
    await removeAdded(databaseUrl, report);
  }
}

/** Returns whether the target is met. */
export function reportSoak({ samples, parts }: Soak, report: Report): boolean {
  const { end, early, late, isSmall, isFlat } = judgeMemory(samples);
  const errors = parts.reduce((sum, part) => sum + part.errors, 0);
  report(`at the end: ${end.toFixed(1)} MiB, ${isSmall ? 'under' : 'NOT under'} ${MOST_MEMORY} MiB`);
  report(
    `mean of the last fifth ${late.toFixed(1)} MiB, of the second ${early.toFixed(1)} MiB: ` +
      `${isFlat ? 'flat' : 'NOT flat'} (at most ${MOST_GROWTH * 100} % more)`,
  );
  if (errors > 0) report(`FAILED: ${errors} errors under load`);
  return isSmall && isFlat && errors === 0;
}

function loadMixed(
  url: string,
  connections: number,
  seconds: number,
  signal: AbortSignal,
): readonly Promise<SoakPart>[] {
  const shares = Object.entries(SHARES);
  const whole = shares.reduce((sum, [, share]) => sum + share, 0);
  return shares.map(async ([id, share]): Promise<SoakPart> => {
    const question = findCase(id) ?? UPDATE;
    const count = Math.max(1, Math.round((connections * share) / whole));
    const load: LoadResult = await putUnderLoad(question, addressOf({}, url), { connections: count, seconds, signal });
    const { requestsPerSecond, p99, errors } = load;
    return { title: question.title, connections: count, requestsPerSecond, p99, errors };
  });
}

async function sample(pid: number, seconds: number, signal: AbortSignal, report: Report): Promise<readonly number[]> {
  const samples: number[] = [];
  const begun = performance.now();
  for (let second = 1; second <= seconds; second++) {
    await wait(Math.max(0, begun + second * 1000 - performance.now()), null, { signal });
    const memory = await readMemory(pid);
    samples.push(memory);
    if (second % 60 === 0) report(`after ${second / 60} min: ${memory.toFixed(1)} MiB`);
  }
  return samples;
}
