/** A service in a process of its own with 512 MB of heap, its memory, and how long `ping` takes meanwhile. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { packagePath } from '../../src/base/package-files.js';
import { ADMIN_TOKEN, request, waitFor } from './service.js';

export const SMALL_HEAP = '--max-old-space-size=512';
const KIBIBYTES = 1_024;
/** MiB. */
const MOST_MEMORY = 700;
/** Milliseconds. */
const MOST_WAIT = 1_000;
const START_WITHIN = 60_000;
const PAUSE = 20;

export interface SmallHeap {
  readonly url: string;
  readonly child: ChildProcess;
  /** Begins to measure the process, by default the service. */
  readonly watch: (process?: ChildProcess) => Watched;
}

export interface Watched {
  /** Ends the measurement, and tests that memory and waits stayed below their limits. */
  readonly end: (t: Test, what: string) => Promise<void>;
}

export async function startSmallHeap(options: Readonly<Record<string, string>>): Promise<SmallHeap> {
  const { databaseUrl = '', ...others } = options;
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: {
      PATH: process.env['PATH'] ?? '',
      NODE_OPTIONS: SMALL_HEAP,
      PORT: '0',
      LOG_LEVEL: 'error',
      ADMIN_TOKEN,
      DATABASE_URL: databaseUrl,
      ...others,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  child.stdout.on('data', (piece: Buffer) => {
    output += piece.toString();
  });
  const ready = (): string | undefined => /ready at (\S+)/.exec(output)?.[1];
  await waitFor(async () => ready() !== undefined, START_WITHIN);
  const url = ready() as string;
  return { url, child, watch: (process = child) => watch({ url, child }, process) };
}

function watch({ url, child }: Pick<SmallHeap, 'url' | 'child'>, process: ChildProcess): Watched {
  let largest = 0;
  let slowest = 0;
  let running = true;
  const measure = async (): Promise<void> => {
    while (running && process.exitCode === null) {
      largest = Math.max(largest, await residentMebibytes(process));
      if (process === child) {
        const start = performance.now();
        await request({ url }, 'GET', '/server/ping');
        slowest = Math.max(slowest, performance.now() - start);
      }
      await sleep(PAUSE);
    }
  };
  // The service may have ended: then no request is answered.
  const measured = measure().catch(() => {});
  return {
    end: async (t, what) => {
      running = false;
      await measured;
      t.comment(`${what}: ${Math.round(largest)} MiB, ping ${Math.round(slowest)} ms`);
      t.ok(largest < MOST_MEMORY, `${Math.round(largest)} MiB of memory`);
      t.ok(slowest < MOST_WAIT, `ping within ${Math.round(slowest)} ms`);
      t.equal(child.exitCode, null, 'the service runs');
    },
  };
}

async function residentMebibytes({ pid }: ChildProcess): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) / KIBIBYTES;
}
