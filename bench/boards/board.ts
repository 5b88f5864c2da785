/** A public board: requests that its authors published, sent to the service and to other servers in turns. */
import { readFile } from 'node:fs/promises';
import postgres from 'postgres';
import { createAdministrator } from '../../src/server/accounts/accounts.js';
import { migrate } from '../../src/server/postgres/catalog/migrate.js';
import { ADMINISTRATOR, openDatabase, type Report, type RunningService, startService } from '../environment.js';
import type { Options } from '../options.js';

export type BoardOptions = Pick<Options, 'seconds' | 'warmUp' | 'rounds' | 'connections' | 'poolSize' | 'settings'> &
  Pick<Options, 'boards'> & { readonly serverUrl: string; readonly signal: AbortSignal };

/** A server that answers the requests of a board in its own language. */
export interface Contestant {
  readonly name: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}

export interface Score {
  readonly requestsPerSecond: number;
  /** Milliseconds. */
  readonly p50: number;
  readonly p99: number;
  readonly errors: number;
}

export interface BoardRow {
  readonly title: string;
  /** By the name of the server. */
  readonly scores: Readonly<Record<string, Score>>;
}

export interface BoardResult {
  readonly board: string;
  readonly source: string;
  readonly tool: string;
  readonly rows: readonly BoardRow[];
}

/** The published scripts expect the usual owner. */
const MAKE_OWNER = `do $$ begin
  if not exists (select from pg_roles where rolname = 'postgres') then create role postgres; end if;
end $$`;

/** A new database with the published script, and the tables of the service. */
export async function makeBoardDatabase(
  serverUrl: string,
  name: string,
  script: string,
  metadata: string,
): Promise<string> {
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  await run(serverUrl, `drop database if exists "${name}" with (force)`);
  await run(serverUrl, `create database "${name}"`);
  await run(url.href, MAKE_OWNER);
  await run(url.href, await readFile(script, 'utf8'));
  const database = await openDatabase(url.href);
  try {
    await migrate(database, { demo: false, system: null }, () => undefined);
    await createAdministrator(database, ADMINISTRATOR);
  } finally {
    await database.close();
  }
  await run(url.href, metadata);
  await run(url.href, 'vacuum analyze');
  return url.href;
}

async function run(url: string, text: string): Promise<void> {
  const sql = postgres(url, { max: 1, fetch_types: false, onnotice: () => undefined });
  await sql
    .unsafe(text)
    .simple()
    .finally(() => sql.end({ timeout: 5 }));
}

export async function startOurs(databaseUrl: string, { poolSize, settings }: BoardOptions): Promise<Contestant> {
  const service: RunningService = await startService({ databaseUrl, poolSize, settings });
  const headers = { Authorization: `Bearer ${ADMINISTRATOR.token}` };
  return { name: 'Lateral', url: service.url, headers, stop: service.stop };
}

/** Measures the contestants in turns. The best round of each counts, with the errors of all rounds. */
export async function measureInTurns(
  contestants: readonly Contestant[],
  { rounds, signal }: Pick<BoardOptions, 'rounds' | 'signal'>,
  measure: (contestant: Contestant) => Promise<Score>,
): Promise<BoardRow['scores']> {
  const scores: Record<string, Score> = {};
  for (let round = 0; round < rounds; round++)
    for (const contestant of round % 2 === 0 ? contestants : contestants.toReversed()) {
      signal.throwIfAborted();
      const score = await measure(contestant);
      const former = scores[contestant.name];
      const best = former && former.requestsPerSecond > score.requestsPerSecond ? former : score;
      scores[contestant.name] = { ...best, errors: score.errors + (former?.errors ?? 0) };
    }
  return scores;
}

/** The JSON of one answer. Throws unless the status is 200. */
export async function askOnce(
  { name, url, headers }: Contestant,
  path: string,
  body: string | undefined,
  signal: AbortSignal,
): Promise<unknown> {
  const response = await fetch(url + path, {
    ...(body === undefined ? {} : { method: 'POST', body }),
    headers: { ...headers, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
    signal,
  });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`${name} ${path}: status ${response.status}: ${text.slice(0, 300)}`);
  return JSON.parse(text);
}

/** As Markdown: requests per second, and p99 in milliseconds; the first column is compared with the others. */
export function boardTable({ rows }: BoardResult): string {
  const names = [...new Set(rows.flatMap(({ scores }) => Object.keys(scores)))];
  const cellOf = (score: Score | undefined): string =>
    score === undefined
      ? ''
      : `${Math.round(score.requestsPerSecond).toLocaleString('en')} (p99 ${score.p99.toFixed(1)} ms${score.errors > 0 ? `, ${score.errors} errors` : ''})`;
  const [first = '', ...others] = names;
  const ratioOf = (scores: BoardRow['scores'], name: string): string => {
    const [ours, theirs] = [scores[first], scores[name]];
    return ours && theirs ? `${(ours.requestsPerSecond / theirs.requestsPerSecond).toFixed(2)} ×` : '';
  };
  const lines = rows.map(({ title, scores }) =>
    [title, ...names.map((name) => cellOf(scores[name])), ...others.map((name) => ratioOf(scores, name))].join(' | '),
  );
  const head = ['request', ...names, ...others.map((name) => `${first} / ${name}`)];
  return [head.join(' | '), head.map((_, index) => (index === 0 ? '---' : '---:')).join(' | '), ...lines]
    .map((line) => `| ${line} |`)
    .join('\n');
}

export type RunBoard = (options: BoardOptions, report: Report) => Promise<BoardResult | null>;
