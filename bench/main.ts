/**
 * `npm run bench`: starts everything it needs, puts the service under load case by case and sets beside each figure its
 * ceiling: what PostgreSQL itself does with the statement that the service compiled, measured in the same minute.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { arch, availableParallelism, cpus, platform, totalmem } from 'node:os';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { optionRows } from '../src/config.js';
import { packagePath } from '../src/files.js';
import { CASES, type Case, isWrite } from './cases.js';
import { ADMINISTRATOR, prepareData, type Report, startDatabase, startService } from './environment.js';
import { measureHits } from './hit.js';
import { type CaseResult, type Measuring, measureCase } from './measure.js';
import { measureMirror } from './mirror.js';
import { makeReader, READER } from './reader.js';
import { addSubjects, removeAdded } from './subjects.js';

const USAGE = `Usage: npm run bench -- [command] [--option value ...]

Commands:
  (none)   the cases, as requests per second beside the ceiling of PostgreSQL
  mirror   how long it takes to read a database of 1,000 tables with 20,000 columns
  hit      Node's time per request of a known shape, up to the driver

Options:
  --only ID,ID       these cases alone: ${CASES.map((each) => each.id).join(', ')}
  --seconds N        length of each measurement [5]
  --warm-up N        seconds of load before the first one [2]
  --rounds N         measurements of each figure, of which the best counts [2]
  --connections N    connections to the service [32]
  --pool N           connections from the service to PostgreSQL [${initialOf('DATABASE_POOL_SIZE')}]
  --data DIR         folder of the database, kept between runs [bench/results/data]
  --profile DIR      folder for a CPU profile of the service
`;

async function main(words: readonly string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args: [...words],
    allowPositionals: true,
    options: {
      only: { type: 'string' },
      seconds: { type: 'string', default: '5' },
      'warm-up': { type: 'string', default: '2' },
      rounds: { type: 'string', default: '2' },
      connections: { type: 'string', default: '32' },
      pool: { type: 'string', default: initialOf('DATABASE_POOL_SIZE') },
      data: { type: 'string', default: packagePath('bench', 'results', 'data') },
      profile: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return console.log(USAGE);
  const [command = 'cases'] = positionals;
  if (!['cases', 'mirror', 'hit'].includes(command) || positionals.length > 1) {
    throw new UsageError(`unknown command "${positionals.join(' ')}": see --help`);
  }
  const stopping = stopOnSignal();
  const cases = chooseCases(values.only);
  const measuring = {
    seconds: wholeNumber('--seconds', values.seconds),
    warmUp: wholeNumber('--warm-up', values['warm-up'], 0),
    rounds: wholeNumber('--rounds', values.rounds),
    connections: wholeNumber('--connections', values.connections),
    poolSize: wholeNumber('--pool', values.pool),
    token: ADMINISTRATOR.token,
    readerToken: READER,
    signal: stopping,
  };
  const database = await startDatabase(resolve(values.data), report);
  try {
    if (command === 'mirror') return await measureMirror(database.url, report, stopping);
    const version = await prepareData(database.url, report);
    await makeReader(database.url);
    stopping.throwIfAborted();
    if (command === 'hit') return await measureHits(database.url);
    const profile = values.profile === undefined ? undefined : resolve(values.profile);
    const results = await measureCases(cases, { ...measuring, databaseUrl: database.url }, profile);
    console.log(`\n${table(results)}\n`);
    await save(results, measuring, version);
    if (results.some((result) => result.failure !== null)) process.exitCode = 1;
  } finally {
    await database.stop();
  }
}

async function measureCases(
  cases: readonly Case[],
  measuring: Omit<Measuring, 'url'>,
  profile: string | undefined,
): Promise<readonly CaseResult[]> {
  const service = await startService({ ...measuring, profile });
  try {
    const results: CaseResult[] = [];
    const writes = cases.filter(isWrite);
    for (const each of cases.filter((one) => !isWrite(one)).concat(writes)) {
      if (each === writes[0]) await addSubjects(measuring.databaseUrl);
      measuring.signal.throwIfAborted();
      results.push(await measureCase(each, { ...measuring, url: service.url }, report));
    }
    measuring.signal.throwIfAborted();
    return results;
  } finally {
    await service.stop();
    if (cases.some(isWrite)) await removeAdded(measuring.databaseUrl, report);
  }
}

function table(results: readonly CaseResult[]): string {
  const rows = [['case', 'requests/s', 'ceiling/s', 'ratio', 'p50 ms', 'p99 ms', 'MB/s', 'errors', 'tools']];
  for (const { title, service, ceiling, ratio, failure } of results) {
    if (service === null) {
      rows.push([title, `failed: ${failure}`]);
      continue;
    }
    const tools = ceiling === null ? service.tool : `${service.tool}, ${ceiling.tool} × ${ceiling.connections}`;
    rows.push([
      title,
      figure(service.requestsPerSecond),
      ceiling === null ? '' : figure(ceiling.statementsPerSecond),
      ratio === null ? '' : `${(ratio * 100).toFixed(0)} %`,
      service.p50.toFixed(2),
      service.p99.toFixed(2),
      (service.bytesPerSecond / 1e6).toFixed(1),
      String(service.errors),
      failure === null ? tools : `FAILED: ${failure}`,
    ]);
  }
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.filter((row) => row.length > 2).map((row) => (row[column] ?? '').length)),
  );
  const isText = (column: number): boolean => column === 0 || column === widths.length - 1;
  return rows
    .map((row) =>
      row
        .map((cell, column) => (isText(column) ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

function figure(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(value >= 10 ? 1 : 2);
}

async function save(results: readonly CaseResult[], measuring: MeasuringNumbers, version: string): Promise<void> {
  const { seconds, warmUp, rounds, connections, poolSize } = measuring;
  const document = {
    machine: {
      platform: platform(),
      architecture: arch(),
      processor: cpus()[0]?.model ?? 'unknown',
      cores: availableParallelism(),
      memory: totalmem(),
      node: process.version,
      postgresql: version,
    },
    settings: { seconds, warmUp, rounds, connections, poolSize },
    cases: results,
  };
  const folder = packagePath('bench', 'results');
  await mkdir(folder, { recursive: true });
  await writeFile(packagePath('bench', 'results', 'latest.json'), `${JSON.stringify(document, null, 2)}\n`);
  report('written: bench/results/latest.json');
}

type MeasuringNumbers = Pick<Measuring, 'seconds' | 'warmUp' | 'rounds' | 'connections' | 'poolSize'>;

function chooseCases(only: string | undefined): readonly Case[] {
  if (only === undefined) return CASES;
  return only.split(',').map((id) => {
    const found = CASES.find((each) => each.id === id);
    if (!found) throw new UsageError(`--only: there is no case "${id}": see --help`);
    return found;
  });
}

function wholeNumber(name: string, text: string, least = 1): number {
  const number = Number(text);
  if (!/^\d+$/.test(text) || number < least) throw new UsageError(`${name} must be a whole number from ${least}`);
  return number;
}

function initialOf(option: string): string {
  return optionRows().find((row) => row.name === option)?.initial ?? '';
}

/** The first signal lets everything that was started be stopped; a second one ends at once. */
function stopOnSignal(): AbortSignal {
  const controller = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (controller.signal.aborted) process.exit(130);
      report(`${signal}: stopping`);
      controller.abort(new Stopped());
    });
  }
  return controller.signal;
}

const report: Report = (message) => console.log(message);

class UsageError extends Error {}
class Stopped extends Error {}

try {
  await main(process.argv.slice(2));
} catch (error) {
  const isStopped = error instanceof Stopped || (error instanceof Error && error.name === 'AbortError');
  const isUsage = error instanceof UsageError || (error instanceof TypeError && 'code' in error);
  if (!isStopped) console.error('bench:', isUsage ? (error as Error).message : error);
  process.exitCode = isStopped ? 130 : 1;
}
