/**
 * The commands with a twin. `lateral statistics` and `lateral plans check`: the plans of recorded requests, compared with accepted ones.
 * `lateral advise`: indexes that make recorded requests faster, each tried on a twin before it is proposed.
 */

import { readFile } from 'node:fs/promises';
import { ServiceError, StartError, UsageError } from '../../base/errors.js';
import { asError, groupBy } from '../../base/narrow.js';
import { runSteps } from '../../base/time-slices.js';
import type { CommandLine, Config } from '../../server/config/config.js';
import type { Program } from '../../server/feature/command.js';
import type { Core } from '../../server/feature/core.js';
import { prepareThread } from '../../server/node/prepare-thread.js';
import { parseDocumentText } from '../snapshots/parse-document.js';
import { readSnapshot } from '../snapshots/parse-snapshot.js';
import { applySnapshot } from '../snapshots/snapshots.js';
import { counted } from '../traffic/limits.js';
import { checkWritable } from '../traffic/own-options.js';
import { rootFieldOf } from '../traffic/replay.js';
import {
  type AcceptedFile,
  acceptedFile,
  neverAnalyzed,
  readAccepted,
  requestOf,
  writeAccepted,
} from './accepted-plans.js';
import { type AdviceReport, advise as findAdvice, type IndexAdvice, type IndexComplaint } from './advise.js';
import { readScripts } from './build-structure.js';
import { type CheckedPlans, type ComparedPlan, checkPlans, describeAge, differencesOf } from './check-plans.js';
import type { PlannedClass, UnplannedRequest } from './plan-requests.js';
import { planLines } from './plan-tree.js';
import { type RecordedRequest, readRequests } from './requests.js';
import { readStatistics, type StatisticsFile, servedFacts, writeStatistics } from './statistics-file.js';
import { takeStatistics } from './take-statistics.js';
import { type Twin, type TwinPlan, withTwin } from './twin.js';

const TWIN_SWITCHES = ['connected', 'json'] as const;
const TWIN_VALUES = ['statistics', 'traffic', 'plans', 'migrations', 'apply', 'snapshot'] as const;

const TWIN_HELP = `  --statistics FILE  statistics of "lateral statistics"; without it they are read from the database of DATABASE_URL
  --traffic FILE     requests to plan: a recording of "lateral record", or lines such as "GET /items/articles?limit=10"
  --connected        builds the schema of the database of DATABASE_URL, with the statistics of the file
  --migrations DIR   builds the schema from the .sql files of a folder, in the order of their names
  --snapshot FILE    builds the schema from a snapshot of "lateral schema snapshot"
  --apply PATH       runs a .sql file, or those of a folder, after that: a migration that is not deployed yet`;

const STATISTICS_HELP = `Usage: lateral statistics -o FILE [--redact COLUMNS] [--option value ...]

Writes what the planner of a database knows to a file: its structure, sizes, statistics of columns, settings and the permissions of
roles. The file has no rows. The most common values and the histograms of columns are data: --redact leaves them out. Values of
concealed fields and of the service's own tables are always left out.

  -o FILE            the file; it is compressed if its name ends in .gz
  --redact COLUMNS   columns whose values are left out, such as "customers.email,customers.phone,notes.*"

"lateral plans check" and "lateral advise" build an empty PostgreSQL from the file that plans as the database does. PostgreSQL 15 or newer is needed. The role should be allowed to read all served tables: PostgreSQL hides the statistics of others.

Exits with 2 if an option is wrong. All options of lateral --help are accepted; DATABASE_URL selects the database.`;

const PLANS_HELP = `Usage: lateral plans check [--statistics FILE] [--traffic FILE] [--accept] [--plans FILE] [--factor N] [--json] [--option value ...]

Plans recorded requests on a twin, an empty PostgreSQL with the statistics of production, and compares the plans with accepted ones.
Each request is compiled as the service compiles it, with the permissions of its caller.

  --accept           writes the plans of today to the file of accepted plans
  --plans FILE       the file of accepted plans [plans.yaml]; its requests are planned too
  --factor N         a plan is worse if its cost grew N times [2]
${TWIN_HELP}
  --json             prints the result as JSON

Exits with 0 if no plan is worse, with 1 if a plan's cost grew by the factor or it lost an index, and with 2 if nothing could be checked.

All options of lateral --help are accepted.`;

async function statistics(
  words: readonly string[],
  { createObserver, readConfig, readWords, withDatabase }: Program,
): Promise<void> {
  const long = words.map((word) => (word === '-o' ? '--output' : word));
  const { operands, values, environment } = readWords(long, [], ['output', 'redact']);
  const { output, redact = '' } = values;
  if (operands.length > 0 || output === undefined)
    throw new UsageError('statistics needs a file: lateral statistics -o production.stats.gz');
  await checkWritable('--output', output);
  const config = readConfig({ ...process.env, ...environment });
  const names = redact
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
  const file = await withDatabase(config, createObserver('error'), console.error, (database) =>
    takeStatistics(database, { system: config.SYSTEM_SCHEMA, redact: names }),
  );
  for (const name of names) {
    const [column = '', table = '', schema] = name.split('.').reverse();
    const facts = file.tables.find((each) => each.table === table && (schema ?? each.schema) === each.schema);
    if (!facts || (column !== '*' && !Object.hasOwn(facts.columns, column)))
      throw new UsageError(`--redact: there is no column "${name}", and nothing was written`);
  }
  const bytes = await writeStatistics(output, file);
  const size = `${Math.ceil(bytes / 1_024).toLocaleString('en')} kB`;
  const { tables, indexes, columns } = servedFacts(file);
  console.error(
    `${counted(tables.length, 'table')}, ${counted(indexes.length, 'index', 'indexes')}, statistics of ${counted(columns.length, 'column')} written to ${output} (${size})`,
  );
  for (const sentence of neverAnalyzed(file)) console.error(sentence);
}

/** Not 1: a pipeline must distinguish a worse plan from a check that did not take place. */
const NOT_CHECKED = 2;

async function plans(words: readonly string[], program: Program): Promise<void> {
  try {
    const [command, ...rest] = words;
    if (command !== 'check') throw new UsageError('plans expects check: see lateral plans --help');
    await check(program.readWords(rest, [...TWIN_SWITCHES, 'accept'], [...TWIN_VALUES, 'factor']), program);
  } catch (error) {
    const isExpected = error instanceof StartError || error instanceof ServiceError;
    console.error(`lateral: ${isExpected ? error.message : asError(error).stack}`);
    process.exitCode = NOT_CHECKED;
  }
}

async function check(commandLine: CommandLine, program: Program): Promise<void> {
  const { operands, switches, environment, values } = commandLine;
  if (operands.length > 0) throw new UsageError(`unexpected argument "${operands[0]}": see lateral plans --help`);
  const factor = Number(values['factor'] ?? 2);
  if (!(factor > 1)) throw new StartError('--factor must be a number above 1');
  const path = values['plans'] ?? 'plans.yaml';
  const isAccepting = switches.has('accept');
  if (isAccepting) await checkWritable('--plans', path);
  const accepted = await readAccepted(path);
  const requests = values['traffic'] === undefined ? [] : await readRequests(values['traffic']);
  if (!accepted && !isAccepting)
    throw new StartError(`"${path}" does not exist: --accept writes it, with the plans of the requests of --traffic`);
  if (requests.length + (accepted?.plans.length ?? 0) === 0)
    throw new StartError('there are no requests to plan: name a file of them with --traffic');
  const config = program.readConfig({ ...process.env, ...environment });
  await withTwinOf(program, commandLine, config, async (twin) => {
    const checked = await checkPlans(twin, accepted, requests, { factor, onProgress: showProgress });
    if (checked.compared.length + checked.added.length === 0)
      throw new StartError(`no request could be planned: ${checked.unplanned[0]?.reason ?? 'there are none'}`);
    const differences = differencesOf(twin);
    if (switches.has('json')) console.log(JSON.stringify(asJson(checked, differences), null, 2));
    else {
      const { statistics: source, buildMs } = twin;
      console.log(
        `Statistics ${describeAge(source)}; ${counted(servedFacts(source).tables.length, 'table')}; twin built in ${(buildMs / 1_000).toFixed(1)} s`,
      );
      console.log(report(checked, differences));
    }
    if (isAccepting) await accept(path, checked);
    else if (checked.compared.some(({ verdict }) => verdict === 'worse')) process.exitCode = 1;
  });
}

/** Entries whose request can no longer be planned leave the file. */
async function accept(path: string, { compared, added, state }: CheckedPlans): Promise<void> {
  const current = compared.flatMap(({ now }) => now ?? []);
  const unique = new Map([...current, ...added].map((each) => [`${each.id} ${each.kind}`, each]));
  const file: AcceptedFile = acceptedFile([...unique.values()], state);
  await writeAccepted(path, file);
  console.error(`${counted(file.plans.length, 'plan')} accepted in ${path}`);
}

function report({ compared, added, unplanned }: CheckedPlans, differences: readonly string[]): string {
  const worse = compared.filter(({ verdict }) => verdict === 'worse');
  const changed = compared.filter(({ verdict }) => verdict === 'changed');
  const count = (number: number, one: string, many: string): string => `${number} ${number === 1 ? one : many}`;
  return [
    ...worse.map(describeWorse),
    ...changed.map(
      (each) =>
        `changed  ${titleOf(each)}\n  the plan differs and costs ${each.now?.cost} instead of ${each.before.cost}`,
    ),
    ...added.map((each) => `new      ${titleOf({ before: null, now: each })}\n  cost ${each.cost}, ${each.kind} plan`),
    ...describeUnplanned(unplanned),
    ...(differences.length === 0
      ? []
      : [`The twin differs from the database:\n${differences.map((each) => `  - ${each}`).join('\n')}`]),
    `${count(compared.length, 'accepted plan', 'accepted plans')}: ${worse.length} worse, ${changed.length} changed, ${compared.length - worse.length - changed.length} equal; ${added.length} new.`,
  ].join('\n\n');
}

function describeWorse(compared: ComparedPlan): string {
  const { before, now, complaints, reasons } = compared;
  const tree = (title: string, lines: readonly string[]): string[] => [
    `  ${title}`,
    ...lines.map((line) => `    ${line}`),
  ];
  return [
    `WORSE    ${titleOf(compared)}`,
    ...complaints.map((each) => `  ${each}`),
    ...reasons.map((each) => `  reason: ${each}`),
    ...tree(`accepted plan (${before.kind}, cost ${before.cost})`, before.plan),
    ...(now ? tree(`plan now (${now.kind}, cost ${now.cost})`, planLines(now.plan)) : []),
  ].join('\n');
}

function titleOf({
  before,
  now,
}: {
  readonly before: ComparedPlan['before'] | null;
  readonly now: PlannedClass | null;
}): string {
  const request = before?.request ?? (now ? `${now.request.method} ${now.request.path}` : '');
  const body = before?.body ?? now?.request.body ?? '';
  const document = body === '' ? '' : ` ${body.replace(/\s+/g, ' ').slice(0, 120)}`;
  return `${request}${document} (${before?.role ?? now?.role}, shape ${before?.shape ?? now?.id})`;
}

function asJson({ compared, added, unplanned }: CheckedPlans, differences: readonly string[]) {
  const shown = (plan: PlannedClass | null) => plan && { kind: plan.kind, cost: plan.cost, plan: planLines(plan.plan) };
  return {
    ok: compared.every(({ verdict }) => verdict !== 'worse'),
    compared: compared.map(({ before, now, verdict, complaints, reasons }) => ({
      shape: before.shape,
      request: before.request,
      role: before.role,
      verdict,
      complaints,
      reasons,
      accepted: { kind: before.kind, cost: before.cost, plan: before.plan },
      now: shown(now),
    })),
    added: added.map((each) => ({
      shape: each.id,
      request: `${each.request.method} ${each.request.path}`,
      role: each.role,
      ...shown(each),
    })),
    unplanned: unplanned.map(({ request, reason, calls }) => ({
      request: `${request.method} ${request.path}`,
      reason,
      calls,
    })),
    differences,
  };
}

const ADVISE_HELP = `Usage: lateral advise [--traffic FILE] [--statistics FILE] [--json] [--option value ...]

Proposes indexes for recorded requests. Each candidate is created on a twin, an empty PostgreSQL with the statistics of the database, alone
and together with others. It is proposed only if a plan uses it and the cost of that plan falls to a third or less. Indexes that
are redundant or unused are listed too. The command changes nothing in the database.

${TWIN_HELP}
  --plans FILE       without --traffic: the requests of this file of accepted plans [plans.yaml]
  --json             prints the result as JSON

Exits with 2 if an option or the file of requests is wrong. All options of lateral --help are accepted.`;

async function advise(words: readonly string[], program: Program): Promise<void> {
  const commandLine = program.readWords(words, [...TWIN_SWITCHES], [...TWIN_VALUES]);
  const { operands, switches, environment, values } = commandLine;
  if (operands.length > 0) throw new UsageError(`unexpected argument "${operands[0]}": see lateral advise --help`);
  const requests = await requestsOf(values);
  const config = program.readConfig({ ...process.env, ...environment });
  await withTwinOf(program, commandLine, config, async (twin) => {
    const found = await findAdvice(twin, requests, showProgress);
    const differences = differencesOf(twin);
    if (switches.has('json')) console.log(JSON.stringify(adviceAsJson(found, differences), null, 2));
    else console.log(reportAdvice(found, differences));
  });
}

async function requestsOf(values: Readonly<Record<string, string>>): Promise<readonly RecordedRequest[]> {
  const { traffic, plans = 'plans.yaml' } = values;
  if (traffic !== undefined) return readRequests(traffic);
  const accepted = await readAccepted(plans);
  if (!accepted) throw new UsageError('there are no requests to advise on: name a file of them with --traffic');
  return accepted.plans.map(requestOf);
}

function reportAdvice(
  { advice, complaints, planned, unplanned }: AdviceReport,
  differences: readonly string[],
): string {
  const skipped = unplanned.reduce((sum, { calls }) => sum + calls, 0);
  return [
    ...advice.map(describeAdvice),
    ...complaints.map(describeComplaint),
    ...describeUnplanned(unplanned),
    ...(differences.length === 0
      ? []
      : [`The twin differs from the database:\n${differences.map((each) => `  - ${each}`).join('\n')}`]),
    `${advice.length === 0 ? 'No index is missing' : `${advice.length} ${advice.length === 1 ? 'index' : 'indexes'} proposed`} for ${counted(planned.length, 'shape')}; ${counted(skipped, 'request')} ${skipped === 1 ? 'was' : 'were'} not planned.`,
  ].join('\n\n');
}

/** The shapes that gain most, in a report for people. */
const SHOWN_SHAPES = 5;

function describeAdvice({ candidate, statement, bytes, written, shapes }: IndexAdvice): string {
  const extension = candidate.extension === null ? [] : [`create extension if not exists ${candidate.extension};`];
  const gaining = shapes.toSorted((one, other) => other.share - one.share);
  const writes =
    written === 0
      ? ''
      : `; ${written.toLocaleString('en')} rows of the table were written, each would update the index`;
  return [
    ...extension,
    statement,
    `  ${candidate.kind}, about ${size(bytes)}${writes}`,
    ...gaining
      .slice(0, SHOWN_SHAPES)
      .map(
        ({ planned: { request, role }, share, before, after }) =>
          `  ${factor(before, after)} times cheaper (${before} to ${after}), ${(100 * share).toFixed(1)} % of the time: ${nameOf(request)} (${role})`,
      ),
    ...(gaining.length > SHOWN_SHAPES ? [`  and ${gaining.length - SHOWN_SHAPES} more shapes`] : []),
  ].join('\n');
}

function describeComplaint({ kind, index, reason, bytes, statement }: IndexComplaint): string {
  return `${statement}\n  ${kind}, ${size(bytes)}: "${index}": ${reason}`;
}

function factor(before: number, after: number): string {
  const times = before / Math.max(after, 0.01);
  return times < 10 ? times.toFixed(1) : Math.round(times).toLocaleString('en');
}

function size(bytes: number): string {
  return bytes < 1_048_576
    ? `${Math.ceil(bytes / 1_024)} kB`
    : `${Math.round(bytes / 1_048_576).toLocaleString('en')} MB`;
}

function adviceAsJson({ advice, complaints, planned, unplanned }: AdviceReport, differences: readonly string[]) {
  return {
    advice: advice.map(({ candidate, statement, bytes, written, shapes }) => ({
      kind: candidate.kind,
      table: `${candidate.schema}.${candidate.table}`,
      statement,
      extension: candidate.extension,
      bytes,
      written,
      shapes: shapes.map(({ planned: { id, request, role }, share, before, after }) => ({
        shape: id,
        request: nameOf(request),
        role,
        share,
        before,
        after,
      })),
    })),
    complaints,
    shapes: planned.length,
    unplanned: unplanned.map(({ request, reason, calls }) => ({
      request: nameOf(request),
      reason,
      calls,
    })),
    differences,
  };
}

/** Statistics of a file, or of the connected database. */
async function statisticsOf(
  { createObserver, withDatabase }: Program,
  { values, switches }: CommandLine,
  config: Config,
): Promise<StatisticsFile> {
  const path = values['statistics'];
  const file = path === undefined ? null : await readStatistics(path);
  if (file && !switches.has('connected')) return file;
  const connected = await withDatabase(config, createObserver('error'), console.error, (database) =>
    takeStatistics(database, { system: config.SYSTEM_SCHEMA, redact: [] }),
  );
  if (!file) return connected;
  const hasMetadata = connected.system !== null;
  return { ...file, structure: connected.structure, metadata: hasMetadata ? connected.metadata : file.metadata };
}

/** Builds the twin that the options describe, and removes it after the work. */
async function withTwinOf<Result>(
  program: Program,
  commandLine: CommandLine,
  config: Config,
  work: (twin: Twin) => Promise<Result>,
): Promise<Result> {
  const plan = await twinPlan(commandLine);
  const statistics = await statisticsOf(program, commandLine, config);
  await prepareThread();
  return withTwin({ program, config, statistics, plan }, work);
}

async function twinPlan({ values: { migrations, apply, snapshot }, switches }: CommandLine): Promise<TwinPlan> {
  const sources = [migrations !== undefined, snapshot !== undefined, switches.has('connected')];
  if (sources.filter(Boolean).length > 1)
    throw new UsageError('--migrations, --snapshot and --connected exclude each other: each is the whole schema');
  const pending = apply === undefined ? [] : await readScripts(apply);
  if (snapshot !== undefined) return { migrations: [], pending, change: await snapshotChange(snapshot) };
  return { migrations: migrations === undefined ? null : await readScripts(migrations), pending };
}

async function snapshotChange(path: string): Promise<(core: Core) => Promise<void>> {
  const text = await readFile(path, 'utf8').catch(() => {
    throw new StartError(`"${path}" cannot be read`);
  });
  await prepareThread();
  const snapshot = runSteps(readSnapshot(parseDocumentText(text), false));
  return async ({ schemaChanges }) => {
    await applySnapshot(schemaChanges, snapshot, { merge: true }, { confirm: () => {}, progress: () => {} });
  };
}

/** Shown at a terminal only. */
function showProgress(done: number, all: number): void {
  if (process.stderr.isTTY)
    process.stderr.write(`\r\x1b[K${done === all ? '' : `planning ${done} of ${all} requests`}`);
}

/** A GraphQL request is named with its first field. */
function nameOf({ method, path, body }: RecordedRequest): string {
  const field = path.startsWith('/graphql') ? rootFieldOf(body ?? '') : '';
  return `${method} ${path}${field === '' ? '' : ` ${field}`}`;
}

/** One line for each reason, with an example. */
function describeUnplanned(unplanned: readonly UnplannedRequest[]): string[] {
  return [...groupBy(unplanned, ({ reason }) => reason)].map(([reason, [first, ...rest]]) => {
    const more = rest.length === 0 ? '' : ` and ${rest.length} more`;
    return `not planned  ${first ? nameOf(first.request) : ''}${more}\n  ${reason}`;
  });
}

export const COMMANDS = {
  statistics: { help: STATISTICS_HELP, run: statistics },
  plans: { help: PLANS_HELP, run: plans },
  advise: { help: ADVISE_HELP, run: advise },
};
