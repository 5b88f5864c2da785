/**
 * Runs the test files, several at a time and the longest first, with plain Node: the command of tap would load a compiler, a mocker
 * and a tracer into every process, which costs more than most files do. Short files share a process (test/group.ts). A file still
 * writes TAP by itself, and its traces name lines of dist.
 *
 *   node dist/test/run.js                      types, style and all test files except those of test/suites.ts (`npm test`)
 *   node dist/test/run.js reads writes         these test files
 *   node dist/test/run.js --together reads writes   these test files, in one process
 *   node dist/test/run.js --suite live [...]   a suite of test/suites.ts; its programs get the words that follow
 *   node dist/test/run.js --suites             the suites and the packages of Debian they use, as JSON
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { chmod, mkdtemp, readdir, readFile, realpath, rm, statfs } from 'node:fs/promises';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { packagePath } from '../src/base/package-files.js';
import { LEFT_OUT, type Step, SUITES } from './suites.js';
import { type SharedServer, startSharedServer } from './support/shared-server.js';

interface Job {
  /** Of a group: the names of its files, joined. */
  readonly name: string;
  /** The test files of a process that runs several. */
  readonly group?: readonly string[];
  readonly command: string;
  readonly words: readonly string[];
  readonly kind: 'test' | 'check' | 'program';
  readonly environment?: Readonly<Record<string, string>> | undefined;
  /** Seconds. */
  readonly limit: number;
}

interface Result {
  readonly ok: boolean;
  readonly output: string;
  readonly seconds: number;
  /** Seconds of the processors that the process took with those it waited for. Unknown of a file that shares its process. */
  readonly processor: number | null;
}

const [first, suiteName = '', ...rest] = process.argv.slice(2);

if (existsSync(packagePath('.env'))) {
  console.error('The programs under test would read .env: move it to another folder');
  process.exit(2);
}

/** Seconds. A file ends itself at its limit, unless it sets another, and says what it did. One that hangs is ended later. */
const FILE_LIMIT = 300;
const TERM_DELAY = 220;
const KILL_DELAY = 240;
/**
 * Files that failed are run once more, alone: next to others on two processors they can miss a limit of time. Both runs are
 * printed, and files that passed only the second time are listed as flaky.
 */
const MAX_REPEATED = 6;
/** More flaky files than these fail the run. */
const MAX_FLAKY = 2;
const NO_RESULT: Result = { ok: false, output: '', seconds: 0, processor: null };
/** For what a file has started and left behind to let go of its output. */
const LAST_WORDS = 5;

/** Files of more than ten seconds, with their waits, the longest first: one that begins last would leave processors idle. */
const LONGEST = [
  'readme',
  'traffic',
  'deletable',
  'start',
  'workers',
  'schema-changes',
  'several-schemas',
  'caller-leaks',
  'database-caller',
  'import',
  'snapshot-command',
  'plan-checks',
  'recording-files',
  'system-schema',
  'websocket',
  'compression',
  'adopt',
  'snapshot',
  'doctor',
  'admin',
  'shards',
  'cache-oracle',
  'live-triggers',
  'snapshot-refused',
  'relations',
  'extensions',
  'replica-failover',
  'explorer',
  'three-instances',
  'transfers',
  'node-server',
  'embedded',
  'webhooks',
  'storage',
  'lock-waits',
  'database-caller-property',
  'instances',
  'limits',
  'sign-in',
  'attacks',
  'auth',
  'traces',
  'shapes',
  'deploy',
  'qualified-names',
  'suggest',
  'outage',
  'concurrency',
  'transformations',
  'hostile',
  'read-batcher',
  'property',
  'writes-property',
  'access-property',
];

/** Short files that need a process to themselves: they end it, or measure its memory. */
const ALONE = ['pooler', 'graphql-schema', 'files'];
/** The other files share processes: of those that are left, an equal part each, so that the last processes are short. */
const GROUP_PARTS = 8;
const LEAST_GROUP = 3;

/** `npm test` runs these jobs at a time, and more while the processors are idle, because many tests wait. */
const LEAST_JOBS = Number(process.env['JOBS']) || availableParallelism() + 2;
const MOST_JOBS = first === undefined && !process.env['JOBS'] ? 2 * LEAST_JOBS : LEAST_JOBS;
const IDLE_SHARE = 0.2;
const LOOK_MS = 1_000;

/**
 * PostgreSQL's grammar is WebAssembly. To optimize it takes longer than most files use it. JavaScript is optimized twenty times later than
 * usual, for the same reason: newer versions of Node have no such option.
 */
const FLAGS: readonly string[] = [
  '--liftoff-only',
  ...(process.versions.node.startsWith('20.') ? ['--interrupt-budget=1500000'] : []),
];

/** In place of "random". */
const SEED = String(Math.floor(Math.random() * 1_000_000));

const MEMORY = '/dev/shm';
/** Bytes: of three or four clusters, and what their tests write. */
const MEMORY_NEEDED = 6 * 2 ** 30;

/** Of the clock of /proc, per second. */
const TICKS = 100;
/** Seconds of processors that belong to jobs that have ended. */
let counted = 0;
const running = new Set<() => void>();
if (first === '--suites') {
  console.log(JSON.stringify(Object.entries(SUITES).map(([name, { packages = [] }]) => ({ name, packages }))));
  process.exit();
}
const tests = await findTests();
// Child processes and this one read it from there.
process.env['TMPDIR'] ??= await findMemory();
const template = await makeTemplate();
let shared: SharedServer | null = null;
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stopAll(signal));
try {
  if (template.ready) shared = await startSharedServer(template.ready);
  let good = true;
  for (const jobs of chooseJobs()) good = (await runAll(jobs, shared)) && good;
  process.exitCode = good ? 0 : 1;
} finally {
  await cleanUp();
}

/** Groups of jobs, one group after the other. */
function chooseJobs(): Job[][] {
  if (first === undefined) return [[...checks(), ...dailyJobs()]];
  if (first === '--together') return [[groupJob(process.argv.slice(3))]];
  if (first !== '--suite') return [process.argv.slice(2).map((name) => testJob(name))];
  const suite = SUITES[suiteName];
  if (!suite) throw new Error(`there is no suite "${suiteName}": they are ${Object.keys(SUITES).join(', ')}`);
  return suite.steps.map((step) =>
    step.program ? [programJob(step.program, step)] : (step.files ?? []).map((name) => testJob(name, step)),
  );
}

function dailyJobs(): Job[] {
  const names = [...tests.keys()].filter((name) => !LEFT_OUT.has(name));
  const isShort = (name: string): boolean => !LONGEST.includes(name) && !ALONE.includes(name);
  const short = names.filter(isShort);
  const groups: Job[] = [];
  while (short.length > 0)
    groups.push(groupJob(short.splice(0, Math.max(LEAST_GROUP, Math.ceil(short.length / GROUP_PARTS)))));
  return [...names.filter((name) => !isShort(name)).map((name) => testJob(name)), ...groups];
}

async function runAll(jobs: readonly Job[], server: SharedServer | null): Promise<boolean> {
  const start = performance.now();
  const queue = [...jobs];
  const count = jobs.reduce((sum, { group }) => sum + (group?.length ?? 1), 0);
  const failed: Job[] = [];
  const flaky: string[] = [];
  const totals = { files: 0, total: 0, pass: 0 };
  let good = true;
  console.log(`TAP version 14\n1..${count}`);
  const report = ({ name, kind }: Job, result: Result): void => {
    good &&= result.ok;
    totals.files += 1;
    const asserted = result.output.match(/^ *(not )?ok \d+(?!.*# time=).*$/gm) ?? [];
    totals.total += asserted.length;
    totals.pass += asserted.filter((line) => !line.trimStart().startsWith('not')).length;
    const processor = result.processor === null ? '' : ` cpu=${result.processor.toFixed(1)}s`;
    const outcome = `${result.ok ? 'ok' : 'not ok'} ${totals.files} - ${name}`;
    console.log(`${outcome} # time=${result.seconds.toFixed(1)}s${processor}`);
    if (!result.ok && kind !== 'program') console.log(prefix('    ', failures(result.output)));
  };
  await runQueue(queue, async (job) => {
    for (const [each, result] of await runJob(job, server)) {
      if (result.ok || count === 1 || failed.length >= MAX_REPEATED) report(each, result);
      else {
        failed.push(each);
        const complaints = prefix('#   ', failures(result.output));
        console.log(`# ${each.name} failed and is repeated alone at the end\n${complaints}`);
      }
    }
  });
  for (const job of failed) {
    await server?.dropDatabases(job.name);
    const [[, result] = [job, NO_RESULT]] = await runJob(job, server);
    if (result.ok) flaky.push(job.name);
    report(job, result);
  }
  console.log(`# { total: ${totals.total}, pass: ${totals.pass} }\n# time=${seconds(start).toFixed(1)}s`);
  if (flaky.length > 0) console.log(`# FLAKY, passed only when repeated alone: ${flaky.join(', ')}`);
  if (flaky.length > MAX_FLAKY) console.log(`# ${flaky.length} flaky files fail the run`);
  return good && flaky.length <= MAX_FLAKY;
}

async function runQueue(queue: Job[], work: (job: Job) => Promise<void>): Promise<void> {
  const active = new Set<Promise<void>>();
  const begin = (): void => {
    const job = queue.shift();
    if (!job) return;
    const done = work(job).finally(() => {
      active.delete(done);
      if (active.size < LEAST_JOBS) begin();
    });
    active.add(done);
  };
  for (let count = 0; count < LEAST_JOBS; count++) begin();
  const idleShare = watchProcessors();
  const timer = setInterval(() => {
    if (idleShare() > IDLE_SHARE && active.size < MOST_JOBS) begin();
  }, LOOK_MS);
  while (active.size > 0) await Promise.race(active);
  clearInterval(timer);
}

/** Answers the share of the processors' time that was idle since the question before. */
function watchProcessors(): () => number {
  let [idle, all] = [0, 0];
  return () => {
    const [idleBefore, allBefore] = [idle, all];
    const times = cpus().map((processor) => processor.times);
    idle = times.reduce((sum, each) => sum + each.idle, 0);
    all = times.reduce((sum, each) => sum + each.idle + each.user + each.nice + each.sys + each.irq, 0);
    return (idle - idleBefore) / (all - allBefore);
  };
}

/** The results of a job, or of each file of a group with the job that repeats it alone. */
async function runJob(job: Job, server: SharedServer | null): Promise<readonly (readonly [Job, Result])[]> {
  const result = await run(job, server);
  for (const name of job.group ?? [job.name]) void server?.dropDatabases(name);
  return job.group ? splitResult(job.group, result) : [[job, result]];
}

/** A file that the process did not finish has failed, with what it had written. So has the last one if the process ended badly after it. */
function splitResult(group: readonly string[], { ok, output }: Result): (readonly [Job, Result])[] {
  let rest = output;
  let good = true;
  return group.map((name, index) => {
    const line = new RegExp(`^(not )?ok \\d+ - ${name} # time=([\\d.]+)ms$`, 'm').exec(rest);
    const end = line ? line.index : rest.length;
    const own = rest.slice(0, end);
    rest = rest.slice(end + (line?.[0].length ?? 0));
    good &&= line !== null && line[1] === undefined;
    const passed = line !== null && line[1] === undefined && (ok || !good || index < group.length - 1);
    return [testJob(name), { ok: passed, output: own, seconds: Number(line?.[2] ?? 0) / 1_000, processor: null }];
  });
}

/** The folders of the tests that are there now, by name: the compiled file of one that was removed may still lie in dist. */
async function findTests(): Promise<ReadonlyMap<string, string>> {
  const folders = new Map<string, string>();
  const entries = await readdir(packagePath('test'), { recursive: true, withFileTypes: true });
  for (const { name, parentPath } of entries) {
    if (name.endsWith('.test.ts'))
      folders.set(name.slice(0, -'.test.ts'.length), relative(packagePath('test'), parentPath));
  }
  const names = [...folders.keys()].sort();
  const first = LONGEST.filter((name) => folders.has(name));
  const order = [...first, ...names.filter((name) => !first.includes(name))];
  return new Map(order.map((name) => [name, folders.get(name) ?? '']));
}

/** A file that is repeated gets the same seed again: with another one it would pass by chance. */
function withSeed(environment: Step['environment']): Step['environment'] {
  const seeded = ([name, value]: [string, string]): [string, string] => [name, value === 'random' ? SEED : value];
  return environment && Object.fromEntries(Object.entries(environment).map(seeded));
}

function testJob(name: string, { environment, minutes }: Step = {}): Job {
  const folder = tests.get(name);
  if (folder === undefined)
    throw new Error(`there is no test "${name}": they are named as their files, without .test.ts`);
  const words = [...FLAGS, packagePath('dist', 'test', folder, `${name}.test.js`)];
  const limit = minutes === undefined ? FILE_LIMIT : minutes * 60;
  return { name, command: process.execPath, words, kind: 'test', environment: withSeed(environment), limit };
}

function groupJob(names: readonly string[]): Job {
  const paths = names.map((name) => testJob(name).words.at(-1) ?? '');
  const words = [...FLAGS, packagePath('dist', 'test', 'group.js'), ...paths];
  const limit = FILE_LIMIT * names.length;
  return { name: names.join('+'), group: names, command: process.execPath, words, kind: 'test', limit };
}

function programJob(name: string, { environment, minutes = 10 }: Step): Job {
  const words = [packagePath('dist', 'test', `${name}.js`), ...rest];
  return { name, command: process.execPath, words, kind: 'program', environment, limit: minutes * 60 };
}

/** They run next to the tests, because none of the three uses all processors. The compiler must not write here: the tests are reading what it wrote. */
function checks(): Job[] {
  const words = ['run', '--silent'];
  return ['types', 'lint'].map((name) => ({
    name,
    command: 'npm',
    words: [...words, name],
    kind: 'check',
    limit: FILE_LIMIT,
  }));
}

/** Tests that `npm test` leaves out kill servers or measure them: each gets its own. */
function environmentOf({ name, kind, environment, limit }: Job, server: SharedServer | null): Record<string, string> {
  if (kind !== 'test') return { ...environment };
  const sharing = server && !LEFT_OUT.has(name) ? { TEST_SHARED_SERVER: server.url } : {};
  return { TAP: '1', TAP_TIMEOUT: String(limit), TEST_TEMPLATE: template.ready, ...sharing, ...environment };
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
  const job: Job = { name: 'template', command: process.execPath, words, kind: 'check', limit: FILE_LIMIT };
  const { ok } = await run(job, null);
  return { folder, ready: ok ? folder : '' };
}

async function run(job: Job, server: SharedServer | null): Promise<Result> {
  const start = performance.now();
  const child = spawn(job.command, job.words, {
    cwd: packagePath(),
    env: { ...process.env, ...environmentOf(job, server) },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const pieces: Buffer[] = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (piece: Buffer) => pieces.push(piece));
    if (job.kind === 'program') stream.pipe(process.stdout, { end: false });
  }
  const stop = (): void => void child.kill('SIGTERM');
  const limits = [
    setTimeout(stop, (job.limit + TERM_DELAY) * 1_000),
    setTimeout(() => child.kill('SIGKILL'), (job.limit + KILL_DELAY) * 1_000),
  ];
  running.add(stop);
  const closed = once(child, 'close');
  let processor = 0;
  child.once('exit', () => {
    const before = counted;
    counted = processorSeconds();
    processor = counted - before;
  });
  const [code] = (await once(child, 'exit')) as [number | null];
  await Promise.race([closed, sleep(LAST_WORDS * 1_000, undefined, { ref: false })]);
  child.stdout.destroy();
  child.stderr.destroy();
  running.delete(stop);
  for (const limit of limits) clearTimeout(limit);
  const output = Buffer.concat(pieces).toString();
  return { ok: code === 0 && (job.kind !== 'test' || isWhole(output)), output, seconds: seconds(start), processor };
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

/** Of all children that have ended, and of those that they waited for. Zero where there is no /proc. */
function processorSeconds(): number {
  try {
    const fields = readFileSync('/proc/self/stat', 'utf8').split(') ')[1]?.split(' ') ?? [];
    return (Number(fields[13]) + Number(fields[14])) / TICKS;
  } catch {
    return 0;
  }
}

function seconds(start: number): number {
  return (performance.now() - start) / 1000;
}

function stopAll(signal: NodeJS.Signals): void {
  for (const stop of running) stop();
  cleanUp().finally(() => process.kill(process.pid, signal));
}

async function cleanUp(): Promise<void> {
  await shared?.stop();
  console.log(`# cpu=${processorSeconds().toFixed(1)}s, with the shared server`);
  await rm(template.folder, { recursive: true, force: true, maxRetries: 3 });
}
