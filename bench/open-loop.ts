/**
 * Load at a constant rate, independent of the server's speed. A client that waits for a response before it sends the next request leaves
 * out the requests that would have waited longest (coordinated omission). Here a schedule says when each request is due, and its latency
 * begins then, even if all connections are busy. Each connection has one request at a time, in a worker thread.
 */
import { connect, type Socket } from 'node:net';
import { setImmediate as nextTurn, setTimeout as wait } from 'node:timers/promises';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { packagePath } from '../src/base/package-files.js';
import { writeRequest } from './load.js';
import { ResponseReader } from './response-reader.js';
import { type Percentiles, percentilesOf } from './statistics.js';

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

/** Milliseconds for late responses after the end. */
const GRACE = 10_000;

/** The shortest time of a Node timer, in milliseconds. */
const TIMER_STEP = 1;

/**
 * Milliseconds of sleep between two checks of the sockets while a request is nearly due: neither a request nor a response waits longer.
 */
const SLEEP = 0.1;
const NOTHING_TO_HEAR = new Int32Array(new SharedArrayBuffer(4));

/** The time at which the next request is due; all are due at once without a rate. */
export class Schedule {
  readonly #interval: number;
  readonly #begin: number;
  readonly #end: number;
  #next = 0;

  constructor(begin: number, seconds: number, rate: number | null) {
    this.#begin = begin;
    this.#end = begin + seconds * 1000;
    this.#interval = rate === null ? 0 : 1000 / rate;
  }

  /** The time at which the next request is due, or null if none is left. */
  peek(now: number): number | null {
    const due = this.#interval === 0 ? now : this.#begin + this.#next * this.#interval;
    return due < this.#end ? due : null;
  }

  take(): number {
    return this.#next++;
  }
}

class OpenLoop {
  readonly #requests: readonly Buffer[];
  readonly #host: string;
  readonly #port: number;
  readonly #idle: Line[] = [];
  #schedule = new Schedule(0, 0, null);
  readonly latencies: number[] = [];
  readonly lateness: number[] = [];
  errors = 0;
  open = 0;
  /** The time at which a connection became free after all were busy: before that no client could have sent anything. */
  #freeSince = 0;

  constructor({ url, method, headers, requests }: OpenLoopOptions) {
    const target = new URL(url);
    this.#host = target.hostname.replace(/^\[|\]$/g, '');
    this.#port = Number(target.port || 80);
    this.#requests = requests.map(({ path, body }) =>
      writeRequest({ method, headers: { ...headers } }, target.host, path, body),
    );
  }

  async connect(count: number): Promise<void> {
    await Promise.all(
      Array.from({ length: count }, async () => {
        this.#idle.push(await this.#openLine());
      }),
    );
  }

  start(schedule: Schedule): void {
    this.#schedule = schedule;
  }

  /** Sends due requests while connections are free. Returns the time at which the next one is due, or null if none is left. */
  pump(): number | null {
    for (;;) {
      const now = performance.now();
      const due = this.#schedule.peek(now);
      if (due === null || due > now) return due;
      const line = this.#idle.pop();
      if (line === undefined) return now;
      const request = this.#requests[this.#schedule.take() % this.#requests.length];
      if (request === undefined) return null;
      this.lateness.push(Math.max(0, now - Math.max(due, this.#freeSince)));
      this.open += 1;
      line.send(request, due);
    }
  }

  end(): void {
    for (const line of this.#idle) line.socket.destroy();
  }

  #openLine(): Promise<Line> {
    return new Promise((resolve, reject) => {
      const line: Line = new Line(
        (buffer, callback) =>
          connect({ host: this.#host, port: this.#port, noDelay: true, onread: { buffer, callback } }),
        (due, isGood) => this.#settle(line, due, isGood),
      );
      const { socket } = line;
      socket.once('connect', () => resolve(line));
      socket.once('error', reject);
    });
  }

  #settle(line: Line, due: number, isGood: boolean): void {
    const now = performance.now();
    this.open -= 1;
    this.latencies.push(now - due);
    if (!isGood) this.errors += 1;
    if (this.#idle.length === 0) this.#freeSince = now;
    if (line.isUsable) this.#idle.push(line);
    else void this.#replace();
    this.pump();
  }

  /** Servers close connections now and then. */
  async #replace(): Promise<void> {
    try {
      this.#idle.push(await this.#openLine());
      this.pump();
    } catch {
      await wait(10);
      await this.#replace();
    }
  }
}

const READ_SIZE = 65_536;

type Connect = (buffer: Buffer, heard: (length: number, buffer: Uint8Array) => boolean) => Socket;

/** One connection with at most one request in flight. */
class Line {
  readonly socket: Socket;
  readonly settled: (due: number, isGood: boolean) => void;
  readonly #reader = new ResponseReader(false);
  #due: number | null = null;
  isUsable = true;

  /** Reads into one reused buffer: a stream would allocate a new one for each response. */
  constructor(open: Connect, settled: (due: number, isGood: boolean) => void) {
    this.settled = settled;
    const memory = Buffer.allocUnsafe(READ_SIZE);
    this.socket = open(memory, (length) => {
      this.#hear(memory.subarray(0, length));
      return true;
    });
    const { socket } = this;
    // 'close' follows each error.
    socket.on('error', () => undefined);
    socket.on('close', () => {
      this.isUsable = false;
      this.#finish(false);
    });
  }

  send(request: Buffer, due: number): void {
    this.#due = due;
    this.socket.write(request);
  }

  #hear(chunk: Buffer): void {
    if (!this.#reader.read(chunk)) return;
    this.isUsable = this.#reader.keepsConnection;
    if (!this.isUsable) this.socket.destroy();
    this.#finish(this.#reader.status >= 200 && this.#reader.status < 300);
  }

  #finish(isGood: boolean): void {
    if (this.#due === null) return;
    const due = this.#due;
    this.#due = null;
    this.settled(due, isGood);
  }
}

async function generate(options: OpenLoopOptions): Promise<OpenLoopResult> {
  const loop = new OpenLoop(options);
  await loop.connect(options.connections);
  const begin = performance.now();
  loop.start(new Schedule(begin, options.seconds, options.rate));
  const until = begin + options.seconds * 1000 + GRACE;
  for (;;) {
    const due = loop.pump();
    const now = performance.now();
    if (now > until || (due === null && loop.open === 0)) break;
    const isNear = due !== null && due > now && due - now < TIMER_STEP * 2;
    if (isNear) {
      Atomics.wait(NOTHING_TO_HEAR, 0, 0, SLEEP);
      await nextTurn();
    } else await wait(TIMER_STEP);
  }
  const ended = performance.now();
  loop.end();
  const unanswered = loop.open;
  const seconds = (ended - begin) / 1000;
  return {
    requestsPerSecond: loop.latencies.length / seconds,
    requests: loop.latencies.length + unanswered,
    errors: loop.errors + unanswered,
    latency: percentilesOf([...loop.latencies, ...Array.from({ length: unanswered }, () => GRACE)]),
    lateness: percentilesOf(loop.lateness),
  };
}

// Last, because the worker needs every constant above.
if (!isMainThread && workerData?.kind === WORKER) {
  parentPort?.postMessage(await generate(workerData.options as OpenLoopOptions));
  process.exit(0);
}
