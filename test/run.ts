/**
 * Runs the test files, several at a time and the longest first, each with plain Node: the command of tap would load a
 * compiler, a mocker and a tracer into every one of them, which costs more than most files do. A file still writes TAP by
 * itself and ends with a code that says whether it passed; its traces name lines of dist. Without names of files the types
 * and the style are checked beside the tests, because none of the three uses all processors.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, realpath, rm, statfs } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packagePath } from '../src/base/package-files.js';

interface Job {
  readonly name: string;
  readonly command: string;
  readonly words: readonly string[];
  /** Whether its output is TAP, and has to be whole. */
  readonly tap: boolean;
}

interface Result {
  readonly ok: boolean;
  readonly output: string;
  readonly seconds: number;
}

/** Seconds. A file ends itself at its limit, unless it sets another, and says what it did; the others are for one that hangs. */
const FILE_LIMIT = 300;
const TERM_LIMIT = 520;
const KILL_LIMIT = 540;
/**
 * Files that failed and are run once more, alone. Beside others on two processors a limit of time can be missed because of what the others do;
 * both runs are printed. More failures than this are no coincidence.
 */
const MAX_REPEATED = 6;
/** For what a file has started and left behind to let go of its output. */
const LAST_WORDS = 5;

/** The files that take longest: whoever begins last should not leave the other processors waiting. */
const LONGEST = [
  'property',
  'adopt',
  'import',
  'start',
  'writes-property',
  'access-property',
  'failover',
  'snapshot-command',
  'snapshot',
  'suggest',
  'readme',
  'embedded',
  'graphql-parity',
  'read-batcher',
  'concurrency',
  'attacks',
  'explorer',
  'websocket',
  'live-triggers',
  'sdk-commands',
];

/**
 * Left to `npm run test:explorer`, `npm run test:faults`, `npm run test:live`, `npm run test:load` and `npm run test:replicas`: the whole would take longer than a quarter of an hour on two processors.
 */
const LEFT_OUT: ReadonlySet<string> = new Set([
  'schema-faults',
  'schema-hostile',
  'schema-live',
  'killed-backends',
  'backoff',
  'half-open',
  'faults',
  'replicas',
  'foreign-servers',
  'fairness',
  'head-of-line',
  'starvation',
  'slow-readers',
  'bounded',
  'uneven-plans',
  'busy-machine',
  'many-tables',
  'big-reads',
  'embedded-hung',
  'stream',
  'connection',
  'websocket-limits',
  'live-faults',
  'live-standby',
  'live-wal',
  'live-triggers-shared',
  'live-burdens',
  'live-oracle-faults',
  'graphql-ide',
  'explorer-data',
  'explorer-pages',
  'explorer-model',
  'explorer-docs',
  'explorer-hostile',
  'explorer-view-as',
  'explorer-types',
  'explorer-keyboard',
]);

const MEMORY = '/dev/shm';
/** Bytes: of three or four clusters, and what their tests write. */
const MEMORY_NEEDED = 6 * 2 ** 30;

const running = new Set<() => void>();
const chosen = process.argv.slice(2);
const tests = await findTests();
const jobs =
  chosen.length > 0
    ? chosen.map(testJob)
    : [...checks(), ...[...tests.keys()].filter((name) => !LEFT_OUT.has(name)).map(testJob)];
// Child processes and this one read it from there.
process.env['TMPDIR'] ??= await findMemory();
const template = await makeTemplate();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopAll(signal));
try {
  process.exitCode = (await runAll()) ? 0 : 1;
} finally {
  await rm(template.folder, { recursive: true, force: true, maxRetries: 3 });
}

async function runAll(): Promise<boolean> {
  const start = performance.now();
  const queue = [...jobs.entries()];
  const failed: [number, Job][] = [];
  const environment = { TAP: '1', TAP_TIMEOUT: String(FILE_LIMIT), TEST_TEMPLATE: template.ready };
  const totals = { total: 0, pass: 0 };
  let good = true;
  console.log(`TAP version 14\n1..${queue.length}`);
  const report = (index: number, job: Job, result: Result): void => {
    good &&= result.ok;
    const asserted = result.output.match(/^ *(not )?ok \d+(?!.*# time=).*$/gm) ?? [];
    totals.total += asserted.length;
    totals.pass += asserted.filter((line) => !line.trimStart().startsWith('not')).length;
    console.log(`${result.ok ? 'ok' : 'not ok'} ${index + 1} - ${job.name} # time=${result.seconds.toFixed(1)}s`);
    if (!result.ok) console.log(prefix('    ', failures(result.output)));
  };
  const work = async (): Promise<void> => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      const [index, job] = next;
      const result = await run(job, environment);
      if (result.ok || jobs.length === 1 || failed.length >= MAX_REPEATED) report(index, job, result);
      else {
        failed.push(next);
        console.log(
          `# ${job.name} failed and is repeated alone at the end\n${prefix('#   ', failures(result.output))}`,
        );
      }
    }
  };
  await Promise.all(Array.from({ length: Number(process.env['JOBS']) || availableParallelism() + 1 }, work));
  for (const [index, job] of failed) report(index, job, await run(job, environment));
  console.log(`# { total: ${totals.total}, pass: ${totals.pass} }\n# time=${seconds(start).toFixed(1)}s`);
  return good;
}

/** The folders of the tests that are there now, by name: the compiled file of one that was removed may still lie in dist. */
async function findTests(): Promise<ReadonlyMap<string, string>> {
  const folders = new Map<string, string>();
  const entries = await readdir(packagePath('test'), { recursive: true, withFileTypes: true });
  for (const { name, parentPath } of entries) {
    if (name.endsWith('.test.ts')) folders.set(name.slice(0, -'.test.ts'.length), basename(parentPath));
  }
  const names = [...folders.keys()].sort();
  const first = LONGEST.filter((name) => folders.has(name));
  const order = [...first, ...names.filter((name) => !first.includes(name))];
  return new Map(order.map((name) => [name, folders.get(name) ?? '']));
}

function testJob(name: string): Job {
  const folder = tests.get(name);
  if (folder === undefined)
    throw new Error(`there is no test "${name}": they are named as their files, without .test.ts`);
  const words = [packagePath('dist', 'test', folder, `${name}.test.js`)];
  return { name, command: process.execPath, words, tap: true };
}

/** The compiler must not write here: the tests are reading what it wrote. */
function checks(): Job[] {
  return ['types', 'lint'].map((name) => ({ name, command: 'npm', words: ['run', '--silent', name], tap: false }));
}

/** Databases in memory take a tenth less time than on a disk. Where there is little of it, or programs may not be run from it, the usual folder. */
async function findMemory(): Promise<string> {
  const mounts = await readFile('/proc/mounts', 'utf8').catch(() => '');
  const [, options = 'noexec'] = /^\S+ \/dev\/shm tmpfs (\S+)/m.exec(mounts) ?? [];
  if (options.split(',').includes('noexec')) return tmpdir();
  const { bavail, bsize } = await statfs(MEMORY);
  return bavail * bsize > MEMORY_NEEDED ? MEMORY : tmpdir();
}

async function makeTemplate(): Promise<{ folder: string; ready: string }> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), 'lateral-template-')));
  await chmod(folder, 0o755);
  const words = [packagePath('dist', 'test', 'support', 'database-template.js'), folder];
  const { ok } = await run({ name: 'template', command: process.execPath, words, tap: false }, {});
  return { folder, ready: ok ? folder : '' };
}

async function run(job: Job, environment: Readonly<Record<string, string>>): Promise<Result> {
  const start = performance.now();
  const child = spawn(job.command, job.words, {
    cwd: packagePath(),
    env: { ...process.env, ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const pieces: Buffer[] = [];
  child.stdout.on('data', (piece: Buffer) => pieces.push(piece));
  child.stderr.on('data', (piece: Buffer) => pieces.push(piece));
  const stop = (): void => void child.kill('SIGTERM');
  const limits = [setTimeout(stop, TERM_LIMIT * 1_000), setTimeout(() => child.kill('SIGKILL'), KILL_LIMIT * 1_000)];
  running.add(stop);
  const closed = once(child, 'close');
  const [code] = (await once(child, 'exit')) as [number | null];
  await Promise.race([closed, sleep(LAST_WORDS * 1_000, undefined, { ref: false })]);
  child.stdout.destroy();
  child.stderr.destroy();
  running.delete(stop);
  for (const limit of limits) clearTimeout(limit);
  const output = Buffer.concat(pieces).toString();
  return { ok: code === 0 && (!job.tap || isWhole(output)), output, seconds: seconds(start) };
}

/** A plan, and as many results as it announces: a file that was left in its midst could end with a good code. */
function isWhole(output: string): boolean {
  const planned = Number(/^1\.\.(\d+)/m.exec(output)?.[1] ?? 0);
  return planned > 0 && output.match(/^(not )?ok \d+/gm)?.length === planned;
}

function failures(output: string): string {
  return output.replaceAll(/^ *(ok \d+|# Subtest:|1\.\.\d+).*\n/gm, '');
}

function prefix(mark: string, text: string): string {
  return text.replaceAll(/^/gm, mark);
}

function seconds(start: number): number {
  return (performance.now() - start) / 1000;
}

function stopAll(signal: NodeJS.Signals): void {
  for (const stop of running) stop();
  rm(template.folder, { recursive: true, force: true, maxRetries: 3 }).finally(() => process.kill(process.pid, signal));
}
