/** Load at a constant rate, independent of the server's speed (src/features/traffic/open-loop.ts), from a worker thread. */
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { elementAt } from '../src/base/narrow.js';
import { packagePath } from '../src/base/package-files.js';
import { type LoadSchedule, OpenLoop, type Sending, writeRequest } from '../src/features/traffic/open-loop.js';
import { type Percentiles, percentilesOf } from '../src/features/traffic/percentiles.js';

export interface OpenLoopOptions {
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Sent in turn. */
  readonly requests: readonly { readonly path: string; readonly body?: string }[];
  readonly connections: number;
  readonly seconds: number;
  /** Requests per second; null for as fast as all connections together can, which is the highest rate. */
  readonly rate: number | null;
}

export interface OpenLoopResult {
  /** Responses per second, until the last one. */
  readonly requestsPerSecond: number;
  readonly requests: number;
  /** Broken connections, statuses outside 2xx, and requests without a response within the grace period. */
  readonly errors: number;
  /** Milliseconds from the time at which a request was due. */
  readonly latency: Percentiles;
  /**
   * How late this client itself sent a request although a connection was free. The latency above includes this delay, but the server did
   * not cause it.
   */
  readonly lateness: Percentiles;
}

/** Marks the worker started here among all the workers that may import this file. */
const WORKER = 'bench open loop worker';

export function runOpenLoop(options: OpenLoopOptions, signal: AbortSignal): Promise<OpenLoopResult> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(packagePath('dist', 'bench', 'open-loop.js'), { workerData: { kind: WORKER, options } });
    const stop = (): void => void worker.terminate();
    signal.addEventListener('abort', stop);
    worker.once('message', resolve);
    worker.once('error', reject);
    worker.once('exit', (code) => {
      signal.removeEventListener('abort', stop);
      reject(new Error(`The open loop worker stopped with code ${code}`));
    });
  });
}

/** Milliseconds for late responses. */
const GRACE = 10_000;

/** Requests in turn at a constant rate; all are due at once without a rate. */
export class Schedule implements LoadSchedule<Sending> {
  readonly #interval: number;
  readonly #begin: number;
  readonly #end: number;
  #next = 0;

  constructor(
    begin: number,
    seconds: number,
    rate: number | null,
    private readonly requests: readonly Sending[] = [],
  ) {
    this.#begin = begin;
    this.#end = begin + seconds * 1000;
    this.#interval = rate === null ? 0 : 1000 / rate;
  }

  peek(now: number): number | null {
    const due = this.#interval === 0 ? now : this.#begin + this.#next * this.#interval;
    return due < this.#end ? due : null;
  }

  take(): Sending | null {
    const position = this.#next++;
    return this.requests.length === 0 ? null : elementAt(this.requests, position % this.requests.length);
  }
}

async function generate({ url, method, headers, requests, ...load }: OpenLoopOptions): Promise<OpenLoopResult> {
  const target = new URL(url);
  const sendings = requests.map((each) => ({
    bytes: writeRequest({ method, headers, ...each }, target.host),
    isHead: method === 'HEAD',
  }));
  const [latencies, lateness]: [number[], number[]] = [[], []];
  let errors = 0;
  const loop = new OpenLoop(
    target,
    {
      onSend: (_, late) => lateness.push(late),
      onAnswer: (_, latency, status) => {
        latencies.push(latency);
        if (status < 200 || status >= 300) errors += 1;
      },
    },
    GRACE,
  );
  await loop.connect(load.connections);
  const begin = performance.now();
  await loop.run(new Schedule(begin, load.seconds, load.rate, sendings), begin + load.seconds * 1000 + GRACE);
  const seconds = (performance.now() - begin) / 1000;
  loop.end();
  return {
    requestsPerSecond: latencies.length / seconds,
    requests: latencies.length,
    errors,
    latency: percentilesOf(latencies),
    lateness: percentilesOf(lateness),
  };
}

// Last, because the worker needs every constant above.
if (!isMainThread && workerData?.kind === WORKER) {
  parentPort?.postMessage(await generate(workerData.options as OpenLoopOptions));
  process.exit(0);
}
