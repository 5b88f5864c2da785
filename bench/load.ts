/**
 * Puts a server under a closed-loop load and reports the result. It uses `wrk` if installed, because `wrk` takes the least of the machine
 * that it shares with the server. Otherwise it uses its own sockets in a worker thread, with just enough HTTP/1.1 to find the end of each
 * response.
 */
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { packagePath } from '../src/base/package-files.js';
import { ResponseReader, writeRequest } from '../src/features/traffic/open-loop.js';

/**
 * Latencies in milliseconds. wrk corrects its own for coordinated omission, so compare only those of one tool. Errors are broken
 * connections and responses outside 2xx (wrk: 400 and above). Requests include errors.
 */
export interface LoadResult {
  requestsPerSecond: number;
  p50: number;
  p99: number;
  errors: number;
  bytesPerSecond: number;
  /** The actual duration, which can differ from the requested one. */
  seconds: number;
  tool: 'wrk' | 'node';
}

export interface LoadOptions {
  /** Scheme, host and port; only plain http. */
  url: string;
  /** Requested in turn, each with its percent-encoded query string. */
  paths: readonly string[];
  headers: Record<string, string>;
  /** The Authorization headers of several callers, one per path, in turn. */
  callers?: readonly string[];
  connections: number;
  seconds: number;
  method?: string;
  /** One per path, for methods that send a body; each in one line. */
  bodies?: readonly string[];
  /** Ends the load early. */
  signal?: AbortSignal;
}

export async function measure(options: LoadOptions): Promise<LoadResult> {
  if (options.paths.length === 0) throw new Error('No path to request');
  if (new URL(options.url).protocol !== 'http:') throw new Error(`Only http can be measured: ${options.url}`);
  // For a HEAD response, wrk would wait for the body that the content length announces.
  const measured = options.method === 'HEAD' ? null : await measureWithWrk(options);
  return measured ?? (await measureInWorker(options));
}

/** Returns null if wrk is not installed. */
async function measureWithWrk(options: LoadOptions): Promise<LoadResult | null> {
  const folder = await mkdtemp(join(tmpdir(), 'bench-load-'));
  try {
    const pathsFile = join(folder, 'paths');
    const scriptFile = join(folder, 'load.lua');
    await writeFile(pathsFile, `${options.paths.join('\n')}\n`);
    const bodiesFile = join(folder, 'bodies');
    await writeFile(bodiesFile, (options.bodies ?? []).map((body) => `${body}\n`).join(''));
    const callersFile = join(folder, 'callers');
    await writeFile(callersFile, options.paths.map((_, index) => `${callerOf(options, index) ?? ''}\n`).join(''));
    const threads = Math.max(1, Math.min(options.connections, availableParallelism() >> 1));
    await writeFile(scriptFile, writeLua(options, threads, { pathsFile, bodiesFile, callersFile }));
    const seconds = Math.max(1, Math.round(options.seconds));
    const args = ['-t', threads, '-c', options.connections, '-d', `${seconds}s`, '--timeout', '30s'].map(String);
    const ran = await runWrk([...args, '-s', scriptFile, new URL(options.url).origin], options.signal);
    if (ran === null) return null;
    const line = ran.output.split('\n').find((candidate) => candidate.startsWith('{'));
    if (ran.code !== 0 || line === undefined) {
      throw new Error(`wrk failed (exit code ${ran.code}): ${ran.errors.trim() || ran.output.trim()}`);
    }
    const counted = JSON.parse(line) as Record<
      'requests' | 'microseconds' | 'bytes' | 'errors' | 'p50' | 'p99',
      number
    >;
    if (counted.requests === 0) throw new Error(`no answer within ${options.seconds} s`);
    return {
      requestsPerSecond: (counted.requests * 1e6) / counted.microseconds,
      p50: counted.p50 / 1000,
      p99: counted.p99 / 1000,
      errors: counted.errors,
      bytesPerSecond: (counted.bytes * 1e6) / counted.microseconds,
      seconds: counted.microseconds / 1e6,
      tool: 'wrk',
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Requests are built once, before the clock starts. Each thread begins with another part of them. The script has no response(): with it, wrk would pass every header and body to Lua
 * and measure that.
 */
function writeLua(
  options: LoadOptions,
  threads: number,
  { pathsFile, bodiesFile, callersFile }: { pathsFile: string; bodiesFile: string; callersFile: string },
): string {
  const headers = Object.entries(options.headers).map(([name, value]) => `[${quoteLua(name)}] = ${quoteLua(value)}`);
  return `
local starts = 0
function setup(thread)
  thread:set("start", starts)
  starts = starts + 1
end

local requests = {}
local turn = 0
function init()
  local headers = {${headers.join(', ')}}
  local nextBody = io.lines(${quoteLua(bodiesFile)})
  local nextCaller = io.lines(${quoteLua(callersFile)})
  for path in io.lines(${quoteLua(pathsFile)}) do
    ${options.callers === undefined ? '' : 'headers["authorization"] = nextCaller()'}
    requests[#requests + 1] = wrk.format(${quoteLua(options.method ?? 'GET')}, path, headers, ${options.bodies === undefined ? 'nil' : 'nextBody()'})
  end
  turn = math.floor(#requests * start / ${threads})
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format('{"requests":%.0f,"microseconds":%.0f,"bytes":%.0f,"errors":%.0f,"p50":%.0f,"p99":%.0f}',
    summary.requests, summary.duration, summary.bytes,
    errors.connect + errors.read + errors.write + errors.timeout + errors.status,
    latency:percentile(50), latency:percentile(99)))
end
`;
}

function callerOf({ callers = [] }: LoadOptions, index: number): string | undefined {
  return callers[index % callers.length];
}

function headersOf(options: LoadOptions, index: number): Record<string, string> {
  const authorization = callerOf(options, index);
  return authorization === undefined ? options.headers : { ...options.headers, authorization };
}

/** Escapes every byte that is not plainly harmless as a decimal number, so that no value can end the literal. */
function quoteLua(text: string): string {
  const escaped = Array.from(Buffer.from(text), (byte) => {
    const character = String.fromCharCode(byte);
    return /[\w ./:-]/.test(character) ? character : `\\${String(byte).padStart(3, '0')}`;
  });
  return `"${escaped.join('')}"`;
}

interface ToolResult {
  readonly code: number | null;
  readonly output: string;
  readonly errors: string;
}

/** Returns null if wrk is not on the PATH. */
function runWrk(args: readonly string[], signal: AbortSignal | undefined): Promise<ToolResult | null> {
  return new Promise((resolve, reject) => {
    const child = spawn('wrk', args, { stdio: ['ignore', 'pipe', 'pipe'], signal });
    let output = '';
    let errors = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
    });
    child.once('error', (error: NodeJS.ErrnoException) => (error.code === 'ENOENT' ? resolve(null) : reject(error)));
    child.once('close', (code) => resolve({ code, output, errors }));
  });
}

/** Marks the worker started here among all the workers that may import this file. */
const WORKER = 'bench load worker';

function measureInWorker(options: LoadOptions): Promise<LoadResult> {
  const { signal, ...rest } = options;
  return new Promise((resolve, reject) => {
    const worker = new Worker(packagePath('dist', 'bench', 'load.js'), { workerData: { kind: WORKER, options: rest } });
    const stop = (): void => void worker.terminate();
    signal?.addEventListener('abort', stop);
    worker.once('message', resolve);
    worker.once('error', reject);
    worker.once('exit', (code) => {
      signal?.removeEventListener('abort', stop);
      reject(new Error(`The load worker stopped with code ${code}`));
    });
  });
}

async function generateLoad(options: LoadOptions): Promise<LoadResult> {
  const target = new URL(options.url);
  const requests = options.paths.map((path, index) =>
    writeRequest({ ...options, headers: headersOf(options, index), path, body: options.bodies?.[index] }, target.host),
  );
  const tally: Tally = { latencies: [], errors: 0, bytes: 0 };
  let turn = 0;
  const begun = performance.now();
  const end = begun + options.seconds * 1000;
  const plan: Plan = {
    host: target.hostname.replace(/^\[|\]$/g, ''),
    port: Number(target.port || 80),
    bodiless: options.method === 'HEAD',
    end,
    takeRequest: () => (performance.now() < end ? requests[turn++ % requests.length] : undefined),
  };
  const drive = async () => {
    while (performance.now() < end) await driveConnection(plan, tally);
  };
  await Promise.all(Array.from({ length: options.connections }, drive));
  const seconds = (performance.now() - begun) / 1000;
  if (tally.latencies.length === 0) throw new Error(`no answer within ${options.seconds} s`);
  const sorted = Float64Array.from(tally.latencies).sort();
  const percentile = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return {
    requestsPerSecond: sorted.length / seconds,
    p50: percentile(0.5),
    p99: percentile(0.99),
    errors: tally.errors,
    bytesPerSecond: tally.bytes / seconds,
    seconds,
    tool: 'node',
  };
}

interface Plan {
  readonly host: string;
  readonly port: number;
  /** The method is HEAD: no body follows a content length. */
  readonly bodiless: boolean;
  readonly end: number;
  /** Undefined when the time has ended. */
  readonly takeRequest: () => Buffer | undefined;
}

interface Tally {
  readonly latencies: number[];
  errors: number;
  bytes: number;
}

/** How long a response may arrive after the end before the client closes the connection. */
const GRACE = 30_000;

/** A refused connection is opened again, but not in a tight loop that takes the processor from the server. */
const PAUSE = 10;

/** One request at a time on one connection, until the time has ended or the server closes it. */
function driveConnection(plan: Plan, tally: Tally): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect({ host: plan.host, port: plan.port, noDelay: true });
    const reader = new ResponseReader(plan.bodiless);
    const guard = setTimeout(() => socket.destroy(), plan.end - performance.now() + GRACE);
    let sent = 0;
    let waiting = true;

    const send = (): void => {
      const request = plan.takeRequest();
      waiting = request !== undefined;
      if (request === undefined) {
        socket.destroy();
        return;
      }
      sent = performance.now();
      socket.write(request);
    };
    const finish = () => {
      waiting = false;
      tally.latencies.push(performance.now() - sent);
      if (!(reader.status >= 200 && reader.status < 300)) tally.errors += 1;
    };
    socket.on('connect', send);
    socket.on('data', (chunk: Buffer) => {
      tally.bytes += chunk.length;
      if (!reader.read(chunk)) return;
      finish();
      if (reader.keepsConnection) send();
      else socket.destroy();
    });
    socket.on('end', () => {
      if (waiting && reader.endsWithConnection) finish();
    });
    // 'close' follows each error and counts it.
    socket.on('error', () => undefined);
    socket.on('close', () => {
      clearTimeout(guard);
      if (!waiting) return resolve();
      tally.errors += 1;
      setTimeout(resolve, PAUSE);
    });
  });
}

// Last, because the worker needs every constant above.
if (!isMainThread && workerData?.kind === WORKER) {
  parentPort?.postMessage(await generateLoad(workerData.options as LoadOptions));
}
