/**
 * NpgsqlRest's board of functions (NpgsqlRest/pg_function_load_tests): six functions that read no table, so that the servers are compared
 * and not the database. The script of the database and the Fastify application are those of a checkout, as published. The checks are those of
 * the board's k6 scripts. wrk sends the requests, with a constant number of connections instead of a rising one.
 */
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { propertiesOf } from '../../src/base/narrow.js';
import { stopProcess } from '../environment.js';
import { measure } from '../load.js';
import { UsageError } from '../options.js';
import { findFreePort, startProgram } from '../peers/peer.js';
import {
  askOnce,
  type BoardOptions,
  type BoardRow,
  type Contestant,
  makeBoardDatabase,
  measureInTurns,
  type RunBoard,
  startOurs,
} from './board.js';

const SCRIPT = join('src', '_postgres', 'init.sql');

interface Scenario {
  readonly title: string;
  /** Without the prefix `perf_`. */
  readonly name: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly lists?: Readonly<Record<string, readonly (string | number)[]>>;
  readonly body?: unknown;
  isRight(rows: readonly unknown[]): boolean;
}

const TYPED = {
  _text: 'ABCDEFGHIJKLMNOPRSTUVWXYZ',
  _int: '1234567890',
  _bigint: '9223372036854770000',
  _numeric: '12345.6789',
  _real: '123.45',
  _double: '123456.789012',
  _bool: 'true',
  _date: '2024-01-15',
  _timestamp: '2024-01-15T10:30:00',
  _timestamptz: '2024-01-15T10:30:00Z',
  _uuid: 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
  _json: '{"key":"value"}',
  _jsonb: '{"key":"value"}',
};
const FIELDS = ['row_num', 'text_val', 'varchar_val', 'int_val', 'bigint_val', 'bool_val', 'date_val', 'uuid_val'];

function typed(records: number): Scenario {
  return {
    title: `perf_test, ${records} rows of 23 types`,
    name: 'test',
    query: { _records: String(records), ...TYPED },
    lists: { _int_array: [1, 2, 3], _text_array: ['a', 'b', 'c'] },
    isRight: (rows) => rows.length === records && FIELDS.every((field) => firstOf(rows)[field] !== undefined),
  };
}

/** Text, number, boolean, number, text, four times. */
const MANY: Readonly<Record<string, string>> = Object.fromEntries(
  Array.from({ length: 20 }, (_, index) => {
    const value = [`text_value_${index + 1}`, String(100 + index), String(index % 2 === 0), `${index}.5`][index % 5];
    return [`_p${index + 1}`, value ?? `text_value_${index + 1}`];
  }),
);

const SCENARIOS: readonly Scenario[] = [
  typed(10),
  typed(100),
  {
    title: 'perf_minimal, one row',
    name: 'minimal',
    isRight: (rows) => firstOf(rows)['status'] === 'ok',
  },
  {
    title: 'perf_post, a JSON body and 10 rows',
    name: 'post',
    body: { _records: 10, _payload: { key: 'value', nested: { a: 1, b: 2 }, array: [1, 2, 3, 4, 5] } },
    isRight: (rows) => rows.length === 10 && propertiesOf(firstOf(rows)['echo'])['key'] === 'value',
  },
  {
    title: 'perf_nested, 100 rows of three levels',
    name: 'nested',
    query: { _records: '100', _depth: '3' },
    isRight: (rows) => rows.length === 100 && propertiesOf(firstOf(rows)['nested'])['a'] !== undefined,
  },
  {
    title: 'perf_large_payload, 100 kB',
    name: 'large_payload',
    query: { _size_kb: '100' },
    isRight: (rows) => String(firstOf(rows)['data']).length >= 100 * 1_024 * 0.9,
  },
  {
    title: 'perf_many_params, 20 parameters',
    name: 'many_params',
    query: MANY,
    isRight: (rows) => firstOf(rows)['param_count'] === 20 && String(firstOf(rows)['checksum']).length === 32,
  },
];

function firstOf(rows: readonly unknown[]): Readonly<Record<string, unknown>> {
  return propertiesOf(rows[0]);
}

/** How a server names a function, and writes a list in the URL. */
interface Language {
  pathOf(name: string): string;
  list(values: readonly (string | number)[]): string;
}

const OURS: Language = {
  pathOf: (name) => `/rpc/perf_${name}?envelope=false`,
  list: (values) => JSON.stringify(values),
};
const FASTIFY: Language = {
  pathOf: (name) => `/api/perf-${name.replaceAll('_', '-')}?`,
  list: (values) => `{${values.join(',')}}`,
};

function pathOf({ name, query = {}, lists = {} }: Scenario, { pathOf: base, list }: Language): string {
  const entries = [
    ...Object.entries(query),
    ...Object.entries(lists).map(([each, values]): [string, string] => [each, list(values)]),
  ];
  const parameters = entries.map(([each, value]) => `${each}=${encodeURIComponent(value)}`);
  return [base(name), ...parameters].join('&').replace('?&', '?');
}

export const runFunctions: RunBoard = async (options, report) => {
  const { functions: folder } = options.boards;
  if (folder === undefined) return null;
  const script = join(folder, SCRIPT);
  if (!existsSync(script)) throw new UsageError(`--functions: there is no ${SCRIPT} in ${folder}`);
  const names = [...new Set(SCENARIOS.map(({ name }) => `('perf_${name}')`))];
  const metadata = `insert into service_functions (name) values ${names.join(', ')}`;
  const databaseUrl = await makeBoardDatabase(options.serverUrl, 'board_functions', script, metadata);
  const started: (readonly [Contestant, Language])[] = [[await startOurs(databaseUrl, options), OURS]];
  try {
    const fastify = await startFastify(folder, databaseUrl, options);
    if (fastify) started.push([fastify, FASTIFY]);
    else report('Fastify: not installed in the folder of --tools, its column stays empty');
    const rows: BoardRow[] = [];
    for (const scenario of SCENARIOS) {
      rows.push(await runScenario(scenario, new Map(started), options));
      report(`${scenario.title}: measured`);
    }
    return { board: 'functions', source: 'NpgsqlRest/pg_function_load_tests', tool: 'wrk', rows };
  } finally {
    for (const [contestant] of started) await contestant.stop();
  }
};

async function runScenario(
  scenario: Scenario,
  languages: ReadonlyMap<Contestant, Language>,
  options: BoardOptions,
): Promise<BoardRow> {
  const body = scenario.body === undefined ? undefined : JSON.stringify(scenario.body);
  const { connections, seconds, warmUp, signal } = options;
  const load = (contestant: Contestant, time: number): ReturnType<typeof measure> => {
    const language = languages.get(contestant);
    if (!language) throw new Error(`${contestant.name} has no language`);
    return measure({
      url: contestant.url,
      paths: [pathOf(scenario, language)],
      headers: { ...contestant.headers, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
      ...(body === undefined ? {} : { method: 'POST', bodies: [body] }),
      connections,
      seconds: time,
      signal,
    });
  };
  for (const [contestant, language] of languages) {
    const answer = await askOnce(contestant, pathOf(scenario, language), body, signal);
    if (!Array.isArray(answer) || !scenario.isRight(answer))
      throw new Error(`${contestant.name} answers ${scenario.title} with ${JSON.stringify(answer).slice(0, 300)}`);
    if (warmUp > 0) await load(contestant, warmUp);
  }
  const scores = await measureInTurns([...languages.keys()], options, (contestant) => load(contestant, seconds));
  return { title: scenario.title, scores };
}

/** The published application, with the ports of this machine; null if npm has not installed Fastify. */
async function startFastify(
  folder: string,
  databaseUrl: string,
  { boards: { tools }, signal }: BoardOptions,
): Promise<Contestant | null> {
  if (tools === undefined || !existsSync(join(tools, 'node_modules', 'fastify'))) return null;
  const { username, password, hostname, port: databasePort, pathname } = new URL(databaseUrl);
  const port = await findFreePort();
  const temporary = await mkdtemp(join(tmpdir(), 'bench-fastify-'));
  const source = await readFile(join(folder, 'src', 'fastify-app-v5.7.1', 'app.js'), 'utf8');
  const program = join(temporary, 'app.mjs');
  await writeFile(
    program,
    source
      .replace(/port: 5432\b/, `port: ${databasePort}`)
      .replace(/port: 3101, host: '0\.0\.0\.0'/, `port: ${port}, host: '127.0.0.1'`),
  );
  await symlink(join(tools, 'node_modules'), join(temporary, 'node_modules'));
  const env = {
    NODE_ENV: 'production',
    DB_USER: decodeURIComponent(username),
    DB_PASSWORD: decodeURIComponent(password),
    DB_HOST: hostname,
    DB_NAME: pathname.slice(1),
  };
  const url = `http://127.0.0.1:${port}`;
  const isReady = async (): Promise<boolean> => (await fetch(`${url}/api/perf-minimal`)).ok;
  const child = await startProgram(process.execPath, [program], env, { isReady, signal });
  const stop = async (): Promise<void> => {
    await stopProcess(child);
    await rm(temporary, { recursive: true, force: true });
  };
  return { name: 'Fastify', url, headers: {}, stop };
}
