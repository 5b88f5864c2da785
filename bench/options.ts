/** The command line of the bench. */
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { options } from '../src/app/options.js';
import { packagePath } from '../src/base/package-files.js';
import type { Case } from './case.js';
import { CASES } from './cases.js';
import type { PeerOptions } from './peers/peer.js';

export const COMMANDS = [
  'cases',
  'soak',
  'long-query',
  'mirror',
  'hit',
  'cache',
  'callers',
  'servers',
  'live',
  'boards',
  'record',
  'report',
] as const;

export type Command = (typeof COMMANDS)[number];

/** Measurements in addition to the cases, each with its own page in the report. */
export const EXTRAS = ['noise', 'open', 'start', 'classes', 'import', 'import-flat', 'patch', 'patch-flat'] as const;

export type Extra = (typeof EXTRAS)[number];

const SOAK_CONNECTIONS = '256';
const LIVE_CONNECTIONS = '10000';
const BOARD_CONNECTIONS = '50';

const CONNECTIONS: Readonly<Partial<Record<Command, string>>> = {
  soak: SOAK_CONNECTIONS,
  live: LIVE_CONNECTIONS,
  boards: BOARD_CONNECTIONS,
};

export const USAGE = `Usage: npm run bench -- [command] [--option value ...]

Commands:
  (none)      the cases compared with PostgreSQL alone and the available peers, how cost grows, and the report
  soak        memory of the service under minutes of mixed load; exits with 1 if it is too large or grows
  long-query  small reads during a query of two seconds; exits with 1 if their p99 more than doubles
  mirror      time to read a schema of 1,000 tables with 20,000 columns
  hit         CPU time of Node per request of a known shape, up to the driver
  cache       reads from memory compared with uWebSockets alone, and reads that are not in memory
  callers     reads with DATABASE_CALLER compared with pgbench, which sends the same settings and statement in one pipeline
  servers     uWebSockets compared with node:http, and their section of the report
  live        time until subscribers have a change, and its cost
  boards      two public benchmarks (bench/boards.md), compared with peers from npm
  record      what it costs the service to record its traffic; exits with 1 if it is more than 2 %
  report      writes the report again from the last results

Options:
  --only ID,ID       only these, without a report. Cases: ${CASES.map((each) => each.id).join(', ')}.
                     Other measurements: noise (by key at the beginning and at the end), open (latency at constant rates), start (cold
                     start to first response), classes (common and rare values in one load), import (compared with COPY), patch (10,000
                     items by key, compared with one UPDATE), import-flat and patch-flat (both without activity and revisions)
  --against REV      compares with that revision; exits with 1 if a case became slower
  --seconds N        length of each measurement [5]
  --warm-up N        seconds of load before the first measurement [2]
  --rounds N         measurements of each figure; the best counts [3]
  --connections N    connections to the service [32; soak: ${SOAK_CONNECTIONS}; live: ${LIVE_CONNECTIONS}; boards: ${BOARD_CONNECTIONS}]
  --pool N           connections from the service to PostgreSQL [${initialOf('DATABASE_POOL_SIZE')}]
  --set NAME=VALUE   an option of the service; can be repeated
  --rows N           rows of the import [100000]
  --growth           how cost grows, and small reads during a long query [on; off with --only]; --no-growth leaves it out
  --minutes N        length of soak [5]
  --data DIR         folder of the database, kept between runs [bench/results/data]
  --report DIR       folder for report.html and report.md [bench]
  --profile DIR      folder for a CPU profile of the service

Boards:
  --functions DIR          a checkout of NpgsqlRest/pg_function_load_tests
  --graphql-bench DIR      a checkout of hasura/graphql-bench
  --tools DIR              a folder where npm installed autocannon and the peers

Optional peers:
  --postgraphile DIR       folder where npm installed postgraphile 5 (and node@22, which it requires) [this project's]
  --postgrest PATH         the program; or --postgrest-url URL of a running one on this database
  --directus-url URL       a running one on this database, with --directus-token TOKEN; it has two minutes to answer
`;

export interface Options {
  readonly command: Command;
  readonly help: boolean;
  readonly cases: readonly Case[];
  readonly extras: ReadonlySet<Extra>;
  readonly rows: number;
  readonly against: string | undefined;
  readonly seconds: number;
  readonly warmUp: number;
  readonly rounds: number;
  readonly connections: number;
  readonly poolSize: number;
  readonly minutes: number;
  readonly growth: boolean;
  readonly settings: Readonly<Record<string, string>>;
  readonly data: string;
  /** Undefined if only some cases are measured: these are not a report. */
  readonly report: string | undefined;
  readonly profile: string | undefined;
  /** Folders of the public boards, and of the packages that they need. */
  readonly boards: {
    readonly functions: string | undefined;
    readonly graphqlBench: string | undefined;
    readonly tools: string | undefined;
  };
  readonly peers: Omit<PeerOptions, 'databaseUrl' | 'poolSize' | 'signal'>;
}

export class UsageError extends Error {}

export function readOptions(words: readonly string[]): Options {
  const { values, positionals } = parseWords(words);
  const [command = 'cases'] = positionals;
  if (!isCommand(command) || positionals.length > 1) {
    throw new UsageError(`unknown command "${positionals.join(' ')}": see --help`);
  }
  const isSome = values.only !== undefined;
  const reportFolder = values.report ?? (isSome ? undefined : packagePath('bench'));
  return {
    command,
    help: values.help,
    ...choose(values.only),
    rows: wholeNumber('--rows', values.rows),
    against: values.against,
    seconds: wholeNumber('--seconds', values.seconds),
    warmUp: wholeNumber('--warm-up', values['warm-up'], 0),
    rounds: wholeNumber('--rounds', values.rounds),
    connections: wholeNumber('--connections', values.connections ?? CONNECTIONS[command] ?? '32'),
    poolSize: wholeNumber('--pool', values.pool),
    minutes: wholeNumber('--minutes', values.minutes),
    growth: values.growth ?? !isSome,
    settings: readSettings(values.set),
    data: resolve(values.data),
    report: reportFolder === undefined ? undefined : resolve(reportFolder),
    profile: values.profile === undefined ? undefined : resolve(values.profile),
    boards: {
      functions: folderOf(values.functions),
      graphqlBench: folderOf(values['graphql-bench']),
      tools: folderOf(values.tools),
    },
    peers: {
      postgraphile: values.postgraphile,
      postgrest: values.postgrest,
      postgrestUrl: values['postgrest-url'],
      directusUrl: values['directus-url'],
      directusToken: values['directus-token'],
    },
  };
}

function parseWords(words: readonly string[]) {
  try {
    return parseArgs({
      args: [...words],
      allowPositionals: true,
      allowNegative: true,
      options: {
        only: { type: 'string' },
        against: { type: 'string' },
        seconds: { type: 'string', default: '5' },
        'warm-up': { type: 'string', default: '2' },
        rounds: { type: 'string', default: '3' },
        connections: { type: 'string' },
        pool: { type: 'string', default: initialOf('DATABASE_POOL_SIZE') },
        minutes: { type: 'string', default: '5' },
        rows: { type: 'string', default: '100000' },
        growth: { type: 'boolean' },
        set: { type: 'string', multiple: true, default: [] },
        data: { type: 'string', default: packagePath('bench', 'results', 'data') },
        report: { type: 'string' },
        profile: { type: 'string' },
        functions: { type: 'string' },
        'graphql-bench': { type: 'string' },
        tools: { type: 'string' },
        postgraphile: { type: 'string' },
        postgrest: { type: 'string' },
        'postgrest-url': { type: 'string' },
        'directus-url': { type: 'string' },
        'directus-token': { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    });
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

function folderOf(path: string | undefined): string | undefined {
  return path === undefined ? undefined : resolve(path);
}

function isCommand(word: string): word is Command {
  return (COMMANDS as readonly string[]).includes(word);
}

function choose(only: string | undefined): Pick<Options, 'cases' | 'extras'> {
  if (only === undefined) return { cases: CASES, extras: new Set(EXTRAS) };
  const words = only.split(',');
  const extras = new Set(EXTRAS.filter((each) => words.includes(each)));
  const cases = words.flatMap((id) => {
    const found = CASES.find((each) => each.id === id);
    if (!found && !EXTRAS.some((each) => each === id)) {
      throw new UsageError(`--only: there is no case "${id}": see --help`);
    }
    return found ? [found] : [];
  });
  return { cases, extras };
}

function wholeNumber(name: string, text: string, least = 1): number {
  const number = Number(text);
  if (!/^\d+$/.test(text) || number < least) throw new UsageError(`${name} must be a whole number from ${least}`);
  return number;
}

function readSettings(pairs: readonly string[]): Readonly<Record<string, string>> {
  const names = new Set<string>(options.rows().map((row) => row.name));
  return Object.fromEntries(
    pairs.map((pair) => {
      const [, name = '', value = ''] = /^(\w+)=(.*)$/s.exec(pair) ?? [];
      if (!names.has(name)) throw new UsageError(`--set: "${pair}" is not NAME=VALUE of an option of the service`);
      return [name, value];
    }),
  );
}

function initialOf(option: string): string {
  return options.rows().find((row) => row.name === option)?.initial ?? '';
}
