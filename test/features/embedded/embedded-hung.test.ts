/** The embedded PostgreSQL hangs: the service ends in its time all the same, leaves nothing behind, and nothing is lost. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { cp, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { ADMIN_TOKEN, get, makeFolder, request, waitFor, ways } from '../../support/service.js';
import { passTime } from '../../support/time.js';

/** Seconds: the time that requests get, about three more, and what a busy machine adds. */
const SHUTDOWN_TIMEOUT = 1;
const WITHIN = SHUTDOWN_TIMEOUT + 3 + 6;

t.test('one signal', async (t) => {
  const run = await start(t);
  const family = hang(run.postmaster);
  const pending = get(run, '/users?limit=1').catch(() => null);
  await passTime(100, 'the service is at work');
  const asked = performance.now();
  run.child.kill('SIGTERM');
  t.equal(await run.ended, 0);
  const seconds = (performance.now() - asked) / 1_000;
  t.ok(seconds < WITHIN, `it ends after ${seconds.toFixed(1)} s`);
  await pending;
  await waitFor(async () => !family.some(isRunning), 2_000);
  t.pass('neither the server nor one of its sessions is left');
  const next = await start(t, run.directory);
  t.match(await get(next, '/users?filter[email][_eq]=kept@example.com&fields=email'), {
    json: { data: [{ email: 'kept@example.com' }] },
  });
  next.child.kill('SIGTERM');
  t.equal(await next.ended, 0);
});

t.test('two signals', async (t) => {
  const run = await start(t);
  const family = hang(run.postmaster);
  const asked = performance.now();
  run.child.kill('SIGTERM');
  await passTime(100, 'the service is at work');
  run.child.kill('SIGTERM');
  t.equal(await run.ended, 1);
  const seconds = (performance.now() - asked) / 1_000;
  t.ok(seconds < WITHIN, `it ends after ${seconds.toFixed(1)} s`);
  await waitFor(async () => !family.some(isRunning), 2_000);
  t.pass('neither the server nor one of its sessions is left');
});

interface Run {
  readonly url: string;
  readonly directory: string;
  readonly child: ChildProcess;
  readonly postmaster: number;
  readonly ended: Promise<number | string>;
}

/** The real program on a folder with one user more than the first. */
async function start(t: Test, former?: string): Promise<Run> {
  const directory = former ?? (await makeFolder());
  const template = process.env['TEST_TEMPLATE'];
  if (!former && template) await cp(template, directory, { recursive: true });
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], {
    env: {
      PATH: process.env['PATH'] ?? '',
      ...ways(),
      DATA_DIR: directory,
      PORT: '0',
      ADMIN_TOKEN,
      DEMO_DATA: 'false',
      SHUTDOWN_TIMEOUT: `${SHUTDOWN_TIMEOUT}s`,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'close').then(([code, signal]) => (code ?? signal) as number | string);
  let output = '';
  child.stdout.on('data', (piece) => {
    output += piece;
  });
  await waitFor(async () => /Try it:/.test(output), 60_000);
  const url = /is ready at (http:\S+)/.exec(output)?.[1] ?? '';
  const postmaster = Number.parseInt(await readFile(join(directory, 'postgres', 'postmaster.pid'), 'utf8'), 10);
  t.teardown(() => {
    for (const pid of [child.pid as number, postmaster]) if (isRunning(pid)) process.kill(pid, 'SIGKILL');
  });
  const body = JSON.stringify({ email: 'kept@example.com' });
  const headers = { 'content-type': 'application/json' };
  if (!former) t.equal((await request({ url }, 'POST', '/users', { headers, body })).status, 200);
  return { url, directory, child, postmaster, ended };
}

/** Stops the server and all of its sessions, and answers which they are. */
function hang(postmaster: number): readonly number[] {
  const family = [
    postmaster,
    ...readdirSync('/proc')
      .map(Number)
      .filter((pid) => statusOf(pid)[1] === `${postmaster}`),
  ];
  for (const pid of family) process.kill(pid, 'SIGSTOP');
  return family;
}

function isRunning(pid: number): boolean {
  return !['', 'Z', 'X'].includes(statusOf(pid)[0] ?? '');
}

/** State and parent come first behind the name. */
function statusOf(pid: number): readonly string[] {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return [''];
  }
}
