/** Cold start: from the start of the process to its first response. */
import { findCase } from './cases.js';
import { type Report, type ServiceOptions, startService } from './environment.js';
import { addressOf, type Measuring } from './measure.js';
import { readMemory } from './memory.js';
import { readAnswer } from './statement.js';
import { median } from './statistics.js';

export interface Start {
  readonly times: number;
  /** Milliseconds, the median: until it reports that it is ready, and until its first response, by key. */
  readonly ready: number;
  readonly firstAnswer: number;
  /** MiB after that response. */
  readonly memory: number;
}

const LEAST_TIMES = 3;

export async function measureStart(options: ServiceOptions & Measuring, report: Report): Promise<Start> {
  const key = findCase('key');
  if (key === undefined) throw new Error('there is no case "key"');
  const starts: { readonly ready: number; readonly firstAnswer: number; readonly memory: number }[] = [];
  while (starts.length < Math.max(LEAST_TIMES, options.rounds)) {
    options.signal.throwIfAborted();
    const service = await startService(options);
    try {
      const begun = performance.now();
      await readAnswer(key, addressOf(key, service.url), options.signal);
      const firstAnswer = service.startTime + performance.now() - begun;
      starts.push({ ready: service.startTime, firstAnswer, memory: await readMemory(service.pid) });
    } finally {
      await service.stop();
    }
  }
  const of = (name: 'ready' | 'firstAnswer' | 'memory'): number => median(starts.map((each) => each[name]));
  const found = { times: starts.length, ready: of('ready'), firstAnswer: of('firstAnswer'), memory: of('memory') };
  report(`cold start: ready after ${found.ready.toFixed(0)} ms, first answer after ${found.firstAnswer.toFixed(0)} ms`);
  return found;
}
