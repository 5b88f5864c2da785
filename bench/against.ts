/**
 * Compares two revisions in one run: the working copy, and another one that is built in a separate work tree. They alternate round by
 * round on the same database. Both are divided by the same ceiling, so that a slower statement counts too.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { packagePath, packageRoot } from '../src/base/package-files.js';
import { type Case, isWrite } from './case.js';
import { type Ceiling, ceiling } from './ceiling.js';
import { type Report, type RunningService, startService } from './environment.js';
import {
  addressOf,
  type CaseCeiling,
  type Contender,
  chooseCeiling,
  clientsOf,
  connectionsOf,
  higherOf,
  type Measuring,
  makeContender,
  warm,
} from './measure.js';
import { UsageError } from './options.js';
import { postmasterOf, spentBy, spentByServer } from './processor.js';
import { percent } from './report/format.js';
import { prepareRows, readStatement, type Statement } from './statement.js';
import { addSubjects, removeAdded } from './subjects.js';
import { type Change, judgeChange, type Round, type Side, type Turn } from './verdict.js';

export interface Comparison {
  readonly id: string;
  readonly title: string;
  readonly connections: number;
  /** The higher one if the two revisions run different statements. */
  readonly ceiling: CaseCeiling | null;
  /** The results of each round; empty if the case could not be compared. */
  readonly rounds: readonly Round[];
  readonly change: Change | null;
  readonly hasFallen: boolean;
  readonly failure: string | null;
}

export type AgainstOptions = Omit<Measuring, 'url'> & {
  readonly settings: Readonly<Record<string, string>>;
  /** Folder of the database. */
  readonly data: string;
};

const run = promisify(execFile);

/** A built revision; `remove` deletes its work tree. */
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
    await build(root, signal);
    return { root, commit: commit.slice(0, 12), remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Revisions without a bundler are compiled without type checks. */
async function build(root: string, signal: AbortSignal): Promise<void> {
  const compiler = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  if (existsSync(join(root, 'build.mjs'))) await run('npm', ['run', '--silent', 'build'], { cwd: root, signal });
  else await run(process.execPath, [compiler, '--noCheck'], { cwd: root, signal });
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
        const comparison = await compareCase(each, { now, before }, options, report);
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

type Services = Readonly<Record<Side, RunningService>>;

/** A case that seems slower is measured for as many rounds again before it counts, to rule out noise. */
async function compareCase(
  each: Case,
  services: Services,
  options: AgainstOptions,
  report: Report,
): Promise<Comparison> {
  const { databaseUrl, seconds, warmUp, signal } = options;
  const connections = connectionsOf(each, options);
  const compared = { id: each.id, title: each.title, connections, ceiling: null, rounds: [], change: null };
  const contenders = new Map<Side, Contender>();
  let statements: readonly Statement[];
  try {
    const make = (side: Side): Promise<Contender> =>
      makeContender(each, addressOf(each, services[side].url), { connections, databaseUrl, signal });
    contenders.set('now', await make('now'));
    const before = await make('before').catch((error: unknown) => complaintOf(error, signal));
    if (typeof before === 'string') {
      return { ...compared, hasFallen: false, failure: `not in the other revision: ${before}` };
    }
    contenders.set('before', before);
    statements = clientsOf(each).length > 0 ? await readStatements(each, services, databaseUrl, signal) : [];
  } catch (error) {
    return { ...compared, hasFallen: true, failure: complaintOf(error, signal) };
  }
  for (const contender of contenders.values()) await warm(contender, warmUp, signal);
  const rounds: Round[] = [];
  // A revision full of quick errors would look fast.
  let errors = 0;
  const measureTurn = async (side: Side, contender: Contender): Promise<Turn> => {
    const postmaster = postmasterOf(options.data);
    const spent = (): number | null => sumOf(spentBy(services[side].pid), postmaster && spentByServer(postmaster));
    const begun = spent();
    const load = await contender(seconds);
    const ended = spent();
    errors += load.errors;
    const { requestsPerSecond } = load;
    const processor = begun === null || ended === null ? null : (ended - begun) / (requestsPerSecond * load.seconds);
    return { requestsPerSecond, processor };
  };
  const measureRounds = async (): Promise<void> => {
    for (let count = 0; count < options.rounds; count++) {
      report(`${each.title}: round ${rounds.length + 1}`);
      const turns = new Map<Side, Turn>();
      const order = [...contenders];
      for (const [side, contender] of rounds.length % 2 === 0 ? order : order.toReversed()) {
        turns.set(side, await measureTurn(side, contender));
      }
      const [now, before] = [turns.get('now'), turns.get('before')];
      if (now !== undefined && before !== undefined) rounds.push({ now, before });
    }
  };
  try {
    const reached = new Map<number, Ceiling>();
    for (const statement of statements) {
      for (const count of clientsOf(each)) {
        await prepareRows(each, databaseUrl);
        const latest = await ceiling({ databaseUrl, ...statement, connections: count, seconds, signal });
        reached.set(count, higherOf(reached.get(count), latest));
      }
    }
    await measureRounds();
    for (let again = 0; again < MOST_REPEATS && judgeChange(rounds).isLower; again++) await measureRounds();
    const change = judgeChange(rounds);
    const failure = errors > 0 ? `${errors} errors under load` : null;
    const hasFallen = change.hasFallen || failure !== null;
    return { ...compared, ceiling: chooseCeiling(reached), rounds, change, hasFallen, failure };
  } catch (error) {
    return { ...compared, hasFallen: true, failure: complaintOf(error, signal) };
  }
}

function sumOf(one: number | null, other: number | null): number | null {
  return one === null || other === null ? null : one + other;
}

/** Both statements, if they differ. */
async function readStatements(
  each: Case,
  services: Services,
  databaseUrl: string,
  signal: AbortSignal,
): Promise<readonly Statement[]> {
  const now = await readStatement(each, addressOf(each, services.now.url), databaseUrl, signal);
  if (isWrite(each)) return [now];
  const before = await readStatement(each, addressOf(each, services.before.url), databaseUrl, signal);
  return now.text === before.text ? [now] : [now, before];
}

function describe({ title, change, hasFallen, failure }: Comparison): string {
  if (change === null) return `${title}: ${failure}`;
  const { now, before, note } = change;
  const words = [`${now.toFixed(1)} requests/s, before ${before.toFixed(1)}`, percent(change.rate), note];
  return `${title}: ${words.filter(Boolean).join(', ')}${hasFallen ? ': FALLEN' : ''}`;
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
