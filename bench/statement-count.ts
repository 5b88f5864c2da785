/**
 * Counts the statements that PostgreSQL runs for a request, in the server itself (pg_stat_statements). Counting is off during
 * measurements. Requests run for a second, and the count waits for all of them, so it contains only complete requests.
 */
import { setTimeout as wait } from 'node:timers/promises';
import postgres from 'postgres';
import { propertiesOf } from '../src/base/narrow.js';
import { runOpenLoop } from './open-loop.js';
import { type Address, prepareRows, type Question, readAnswer, sentTo } from './statement.js';

/** The settings with which PostgreSQL starts. */
export const COUNTING = { shared_preload_libraries: 'pg_stat_statements' };

export interface StatementCount {
  readonly requests: number;
  readonly statements: number;
  readonly perRequest: number;
  /** Objects of a response, at all levels. */
  readonly nodes: number;
  readonly perNode: number;
}

/** Connection checks, and statements of the service itself: they belong to no request. */
const UPKEEP = [
  'set idle_in_transaction_session_timeout%',
  '%pg_listening_channels()%',
  '%from pg_stats p%',
  'listen %',
];

const MOST_CONNECTIONS = 128;

interface Counting {
  readonly connections: number;
  readonly databaseUrl: string;
  readonly signal: AbortSignal;
}

/** Call it once before the first measurement. */
export async function prepareCounting(databaseUrl: string): Promise<void> {
  await withServer(databaseUrl, async (sql) => {
    await sql`create extension if not exists pg_stat_statements`;
    await track(sql, 'none');
  });
}

export async function countStatements(
  question: Question,
  address: Address,
  { connections, databaseUrl, signal }: Counting,
): Promise<StatementCount> {
  await prepareRows(question, databaseUrl);
  const { document } = await readAnswer(question, address, signal);
  const nodes = countNodes(propertiesOf(document)['data']);
  await prepareRows(question, databaseUrl);
  return withServer(databaseUrl, async (sql, database) => {
    await track(sql, 'top');
    try {
      await settle(sql, database);
      await sql`select pg_stat_statements_reset()`;
      const { requests, errors } = await runOpenLoop(
        { ...sentTo(question, address), connections: Math.min(connections, MOST_CONNECTIONS), seconds: 1, rate: null },
        signal,
      );
      if (errors > 0) throw new Error(`${errors} errors`);
      await settle(sql, database);
      const [row] = await sql<{ calls: string }[]>`
        select coalesce(sum(calls), 0) as calls from pg_stat_statements
        where dbid = (select oid from pg_database where datname = ${database}) and query not ilike all (${UPKEEP})`;
      const statements = Number(row?.calls);
      const perRequest = statements / requests;
      return { requests, statements, perRequest, nodes, perNode: perRequest / Math.max(1, nodes) };
    } finally {
      await track(sql, 'none');
    }
  });
}

/** A peer continues its work when its clients have left. The next measurement would share the machine with it. */
export function waitUntilIdle(databaseUrl: string): Promise<void> {
  return withServer(databaseUrl, settle);
}

/** The objects of a response, at all levels. */
export function countNodes(data: unknown): number {
  if (Array.isArray(data)) return data.reduce<number>((sum, each) => sum + countNodes(each), 0);
  if (typeof data !== 'object' || data === null) return 0;
  return Object.values(data).reduce<number>((sum, each) => sum + countNodes(each), 1);
}

/** For all sessions, from their next statement on. */
async function track(sql: postgres.Sql, what: 'none' | 'top'): Promise<void> {
  await sql.unsafe(`alter system set pg_stat_statements.track = '${what}'`);
  await sql`select pg_reload_conf()`;
  await wait(50);
}

const QUIET_LOOKS = 3;

/** A response can leave before its statement has ended. */
async function settle(sql: postgres.Sql, database: string): Promise<void> {
  let quiet = 0;
  for (let attempt = 0; attempt < 500; attempt++) {
    const [row] = await sql<{ active: number }[]>`
      select count(*)::int as active from pg_stat_activity
      where datname = ${database} and backend_type = 'client backend' and state = 'active'`;
    quiet = row?.active === 0 ? quiet + 1 : 0;
    if (quiet === QUIET_LOOKS) return;
    await wait(20);
  }
}

/** Connected to another database of the server, so that its own statements are not counted. */
async function withServer<T>(
  databaseUrl: string,
  work: (sql: postgres.Sql, database: string) => Promise<T>,
): Promise<T> {
  const url = new URL(databaseUrl);
  const database = decodeURIComponent(url.pathname.slice(1));
  url.pathname = '/postgres';
  const sql = postgres(url.href, { max: 1, onnotice: () => undefined });
  try {
    return await work(sql, database);
  } finally {
    await sql.end({ timeout: 5 });
  }
}
