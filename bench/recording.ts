/**
 * The cost of recording the traffic (`lateral record`): the same load with and without a recording, in turns. Processor time of the service
 * per request is compared, because it hardly changes if other programs use the machine.
 */
import { requestsOf } from './case.js';
import { findCase } from './cases.js';
import { ADMINISTRATOR, type Report, type RunningService, startService } from './environment.js';
import { measure } from './load.js';
import { runOpenLoop } from './open-loop.js';
import type { Options } from './options.js';
import { spentBy } from './processor.js';
import { median } from './statistics.js';

type RecordingOptions = Pick<Options, 'seconds' | 'rounds' | 'connections' | 'poolSize' | 'settings'> & {
  readonly databaseUrl: string;
  readonly signal: AbortSignal;
};

export interface RecordingCost {
  readonly loads: readonly LoadCost[];
  readonly isMet: boolean;
}

interface LoadCost {
  readonly title: string;
  /** Microseconds of processor time per request, without and with a recording. */
  readonly without: number;
  readonly recorded: number;
  /** The median of the turns: how much more a request takes. */
  readonly cost: number;
  /** How much of a processor the recording takes. */
  readonly share: number;
  /** The share of the requests that was recorded. */
  readonly kept: number;
}

const HEADERS = { Authorization: `Bearer ${ADMINISTRATOR.token}` };
/** A rate at which the service has reserves. */
const RATE = 2_000;
const TARGET = 0.02;
const LEAST_TURNS = 7;

interface Turn {
  readonly requests: number;
  readonly seconds: number;
  readonly microseconds: number;
  readonly recorded: number;
}

type Load = (service: RunningService) => Promise<Pick<Turn, 'requests' | 'seconds'>>;

export async function measureRecording(options: RecordingOptions, report: Report): Promise<RecordingCost> {
  const { databaseUrl, poolSize, settings } = options;
  const service = await startService({ databaseUrl, poolSize, settings: { WORKERS: '1', ...settings } });
  try {
    const loads: LoadCost[] = [];
    for (const id of ['key', 'nested'])
      for (const [name, load] of loadsOf(id, options)) {
        await load(service);
        const found = { title: `${id}, ${name}`, ...(await compare(service, load, options)) };
        report(describe(found));
        loads.push(found);
      }
    const isMet = loads.every(({ share }) => share < TARGET);
    report(`${isMet ? 'met' : 'FAILED'}: below ${TARGET * 100} % of the service's processor`);
    return { loads, isMet };
  } finally {
    await service.stop();
  }
}

function loadsOf(id: string, { seconds, connections, signal }: RecordingOptions): readonly (readonly [string, Load])[] {
  const each = findCase(id);
  if (each === undefined) throw new Error(`there is no case "${id}"`);
  const requests = requestsOf(each);
  const full: Load = async ({ url }) => {
    const paths = requests.map(({ path }) => path);
    const found = await measure({ url, paths, headers: HEADERS, connections, seconds, signal });
    return { requests: found.requestsPerSecond * found.seconds, seconds: found.seconds };
  };
  const constant: Load = async ({ url }) => {
    const found = await runOpenLoop(
      { url, method: 'GET', headers: HEADERS, requests, connections, seconds, rate: RATE },
      signal,
    );
    return { requests: found.requests, seconds };
  };
  const isCheap = id === 'key';
  return [['full load', full], ...(isCheap ? [[`${RATE}/s`, constant] as const] : [])];
}

async function compare(
  service: RunningService,
  load: Load,
  { rounds, signal }: RecordingOptions,
): Promise<Omit<LoadCost, 'title'>> {
  const pairs: (readonly [Turn, Turn])[] = [];
  while (pairs.length < Math.max(LEAST_TURNS, rounds)) {
    signal.throwIfAborted();
    const isFirst = pairs.length % 2 === 0;
    const first = await turn(service, load, isFirst);
    const second = await turn(service, load, !isFirst);
    pairs.push(isFirst ? [second, first] : [first, second]);
  }
  const perRequest = ({ microseconds, requests }: Turn): number => microseconds / requests;
  const cost = median(pairs.map(([off, on]) => perRequest(on) / perRequest(off) - 1));
  const without = median(pairs.map(([off]) => perRequest(off)));
  const rate = median(pairs.map(([, on]) => on.requests / on.seconds));
  const kept = median(pairs.map(([, on]) => on.recorded / on.requests));
  return { without, recorded: without * (1 + cost), cost, share: (cost * without * rate) / 1e6, kept };
}

async function turn(service: RunningService, load: Load, isRecorded: boolean): Promise<Turn> {
  const recording = isRecorded ? await record(service) : null;
  const before = spentBy(service.pid);
  const done = await load(service);
  const after = spentBy(service.pid);
  const recorded = (await recording?.end()) ?? 0;
  if (before === null || after === null) throw new Error('the processor time of the service is not known here');
  return { ...done, microseconds: (after - before) * 1_000, recorded };
}

/** Reads a recording, as `lateral record` does, until it is ended. `end` returns the number of its lines. */
async function record({ url }: RunningService): Promise<{ end(): Promise<number> }> {
  const stopped = new AbortController();
  const response = await fetch(`${url}/server/traffic?for=10m&sample=1`, { headers: HEADERS, signal: stopped.signal });
  if (response.status !== 200 || !response.body) throw new Error(`no recording: status ${response.status}`);
  const reader = response.body.getReader();
  await reader.read();
  let lines = 0;
  const drained = (async () => {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) lines += linesIn(piece.value);
  })().catch(() => undefined);
  return {
    end: async () => {
      stopped.abort();
      await drained;
      return lines;
    },
  };
}

function linesIn(piece: Uint8Array): number {
  let lines = 0;
  for (let at = piece.indexOf(NEWLINE); at >= 0; at = piece.indexOf(NEWLINE, at + 1)) lines++;
  return lines;
}

const NEWLINE = 10;

function describe({ title, without, recorded, cost, share, kept }: LoadCost): string {
  const percent = (value: number): string => `${(value * 100).toFixed(2)} %`;
  return `${title}: ${without.toFixed(1)} µs per request, ${recorded.toFixed(1)} µs recorded: ${percent(cost)}, ${percent(share)} of a processor; ${Math.round(kept * 100)} % recorded`;
}
