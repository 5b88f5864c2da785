/**
 * Two revisions in one run: the working copy and another one, built in a work tree of its own. They take turns, round by
 * round, on the same database; both are divided by the same ceiling, so that a statement that became slower counts too.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packagePath, packageRoot } from '../src/files.js';
import { type Case, isWrite } from './cases.js';
import { ceiling } from './ceiling.js';
import { type Report, startService } from './environment.js';
import {
  addressOf,
  type Contender,
  connectionsOf,
  hasCeiling,
  type Measuring,
  makeContender,
  warm,
} from './measure.js';
import { UsageError } from './options.js';
import { readStatement, type Statement } from './statement.js';
import { addSubjects, removeAdded } from './subjects.js';
import { judgeChange } from './verdict.js';

export interface Comparison {
  readonly id: string;
  readonly title: string;
  readonly connections: number;
  /** Requests per second, the best of all rounds. */
  readonly now: number | null;
  readonly before: number | null;
  /** The higher one, when the two revisions run different statements. */
  readonly ceiling: number | null;
  readonly rounds: number;
  readonly change: number | null;
  readonly hasFallen: boolean;
  readonly failure: string | null;
}

export type AgainstOptions = Omit<Measuring, 'url'> & { readonly settings: Readonly<Record<string, string>> };

const run = promisify(execFile);

/** A revision, built; `remove` takes it away. */
export interface Checkout {
  readonly root: string;
  readonly commit: string;
  remove(): Promise<void>;
}

export async function checkOut(revision: string, signal: AbortSignal, report: Report): Promise<Checkout> {
  const commit = await resolveCommit(revision);
  const folder = await mkdtemp(join(tmpdir(), 'bench-against-'));
  const root = join(folder, 'tree');
  const remove = async (): Promise<void> => {
    await rm(folder, { recursive: true, force: true });
    await run('git', ['worktree', 'prune'], { cwd: packageRoot });
  };
  try {
    report(`${revision}: building`);
    await run('git', ['worktree', 'add', '--detach', root, commit], { cwd: packageRoot, signal });
    if (await isSameFile('package-lock.json', root))
      await symlink(packagePath('node_modules'), join(root, 'node_modules'));
    else await run('npm', ['ci', '--no-audit', '--no-fund'], { cwd: root, signal });
    const compiler = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
    await run(process.execPath, [compiler, '--noCheck'], { cwd: root, signal });
    return { root, commit: commit.slice(0, 12), remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

export async function measureAgainst(
  cases: readonly Case[],
  root: string,
  options: AgainstOptions,
  report: Report,
): Promise<readonly Comparison[]> {
  const { databaseUrl, signal } = options;
  const now = await startService(options);
  try {
    const before = await startService({ ...options, root });
    try {
      const comparisons: Comparison[] = [];
      const writes = cases.filter(isWrite);
      for (const each of cases.filter((one) => !isWrite(one)).concat(writes)) {
        if (each === writes[0]) await addSubjects(databaseUrl);
        signal.throwIfAborted();
        const comparison = await compareCase(each, now.url, before.url, options, report);
        report(describe(comparison));
        comparisons.push(comparison);
      }
      return comparisons;
    } finally {
      await before.stop();
    }
  } finally {
    await now.stop();
    if (cases.some(isWrite)) await removeAdded(databaseUrl, report);
  }
}

const MOST_REPEATS = 3;

/** What seems to have fallen is measured for as many rounds again before it counts: a moment of noise is not a revision. */
async function compareCase(
  each: Case,
  nowUrl: string,
  beforeUrl: string,
  options: AgainstOptions,
  report: Report,
): Promise<Comparison> {
  const { databaseUrl, seconds, warmUp, signal } = options;
  const connections = connectionsOf(each, options);
  const result = { id: each.id, title: each.title, connections, ceiling: null, change: null, failure: null };
  const compared = { ...result, now: null, before: null, rounds: 0, hasFallen: false };
  let contenders: Record<Side, Contender>;
  let statements: readonly Statement[];
  try {
    const make = (url: string): Promise<Contender> => makeContender(each, addressOf(each, url), connections, signal);
    const now = await make(nowUrl);
    const before = await make(beforeUrl).catch((error: unknown) => complaintOf(error, signal));
    if (typeof before === 'string') return { ...compared, failure: `not in the other revision: ${before}` };
    contenders = { now, before };
    statements = hasCeiling(each) ? await readStatements(each, nowUrl, beforeUrl, databaseUrl, signal) : [];
  } catch (error) {
    return { ...compared, hasFallen: true, failure: complaintOf(error, signal) };
  }
  for (const side of SIDES) await warm(contenders[side], warmUp, signal);
  const best = { now: 0, before: 0 };
  // A revision full of quick errors would look fast.
  let highest = 0;
  let errors = 0;
  let rounds = 0;
  const measureRounds = async (): Promise<void> => {
    for (let round = 0; round < options.rounds; round++) {
      rounds += 1;
      report(`${each.title}: round ${rounds}`);
      for (const side of rounds % 2 === 1 ? SIDES : SIDES.toReversed()) {
        const load = await contenders[side](seconds);
        best[side] = Math.max(best[side], load.requestsPerSecond);
        errors += load.errors;
      }
      for (const statement of statements) {
        const reached = await ceiling({ databaseUrl, ...statement, connections, seconds, signal });
        highest = Math.max(highest, reached.statementsPerSecond);
      }
    }
  };
  try {
    await measureRounds();
    for (let again = 0; again < MOST_REPEATS && judgeChange(best.now, best.before).hasFallen; again++) {
      await measureRounds();
    }
  } catch (error) {
    return { ...compared, hasFallen: true, failure: complaintOf(error, signal) };
  }
  const { change, hasFallen } = judgeChange(best.now, best.before);
  const failure = errors > 0 ? `${errors} errors under load` : null;
  const reached = highest === 0 ? null : highest;
  return { ...result, ...best, ceiling: reached, rounds, change, hasFallen: hasFallen || failure !== null, failure };
}

type Side = 'now' | 'before';

const SIDES: readonly Side[] = ['now', 'before'];

/** Both, when they differ. */
async function readStatements(
  each: Case,
  nowUrl: string,
  beforeUrl: string,
  databaseUrl: string,
  signal: AbortSignal,
): Promise<readonly Statement[]> {
  const now = await readStatement(each, addressOf(each, nowUrl), databaseUrl, signal);
  if (isWrite(each)) return [now];
  const before = await readStatement(each, addressOf(each, beforeUrl), databaseUrl, signal);
  return now.text === before.text ? [now] : [now, before];
}

function describe({ title, now, before, change, hasFallen, failure }: Comparison): string {
  if (now === null || before === null || change === null) return `${title}: ${failure}`;
  const percent = ((change - 1) * 100).toFixed(1);
  return `${title}: ${now.toFixed(1)} requests/s, before ${before.toFixed(1)} (${percent} %)${hasFallen ? ' FALLEN' : ''}`;
}

async function resolveCommit(revision: string): Promise<string> {
  try {
    const { stdout } = await run('git', ['rev-parse', '--verify', '--end-of-options', `${revision}^{commit}`], {
      cwd: packageRoot,
    });
    return stdout.trim();
  } catch {
    throw new UsageError(`--against: there is no revision "${revision}"`);
  }
}

async function isSameFile(name: string, root: string): Promise<boolean> {
  const other = join(root, name);
  return existsSync(other) && (await readFile(other, 'utf8')) === (await readFile(packagePath(name), 'utf8'));
}

function complaintOf(error: unknown, signal: AbortSignal): string {
  signal.throwIfAborted();
  return error instanceof Error ? error.message : String(error);
}
