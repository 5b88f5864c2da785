/**
 * Writes of many rows in one request: an import compared with COPY of the same file into the same table, and a change of many items by
 * their keys compared with one UPDATE. Both alternate; the result is rows per second. Each runs with the activity log, which writes two
 * more rows for every row, and without it (`flat`), like the statements.
 */
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import postgres from 'postgres';
import { ADMINISTRATOR, type Report, type ServiceOptions, startService } from './environment.js';
import type { Measuring } from './measure.js';
import { readPeak } from './memory.js';

export interface BulkResult {
  readonly id: 'import' | 'import-flat' | 'patch' | 'patch-flat';
  readonly title: string;
  readonly rows: number;
  /** Rows per second, the best of the rounds. */
  readonly service: number;
  readonly statement: number;
  /** The statement that the service is compared with. */
  readonly as: string;
  readonly ratio: number;
  readonly target: number | null;
  /** The highest memory use of the service, in MiB. */
  readonly memory: number;
}

export type BulkOptions = ServiceOptions & Omit<Measuring, 'url'> & { readonly rows: number };

const PATCHED = 10_000;
const COLUMNS = 'title,status,views,rating,published_at';

export async function measureBulk(
  only: readonly BulkResult['id'][],
  options: BulkOptions,
  report: Report,
): Promise<readonly BulkResult[]> {
  const { databaseUrl, rows } = options;
  const sql = postgres(databaseUrl, { max: 1, fetch_types: false, connection: { jit: false } });
  const settings = { ...options.settings, IMPORT_MAX_FILE_SIZE: '4gb', MAX_PAYLOAD_SIZE: '16mb' };
  try {
    const results: BulkResult[] = [];
    for (const bulk of BULKS.filter(({ id }) => only.includes(id))) {
      const isPatch = bulk.byService === patch;
      await setRecord(sql, !bulk.id.endsWith('-flat'));
      if (isPatch) {
        await empty(sql);
        await copy(sql, PATCHED);
        await sql`vacuum (analyze) bench_imported`;
      }
      results.push(await compare(bulk, isPatch ? PATCHED : rows, { ...options, settings, report }, sql));
    }
    return results;
  } finally {
    await setRecord(sql, true);
    await empty(sql);
    await sql.end({ timeout: 5 });
  }
}

interface Bulk extends Pick<BulkResult, 'id' | 'title' | 'as' | 'target'> {
  prepare(sql: postgres.Sql): Promise<unknown>;
  byService(url: string, rows: number, round: number, signal: AbortSignal): Promise<void>;
  byStatement(sql: postgres.Sql, rows: number, round: number): Promise<unknown>;
}

const IMPORT: Omit<Bulk, 'id' | 'title' | 'target'> = {
  as: 'COPY',
  prepare: empty,
  byService: (url, rows, _round, signal) =>
    sendBody(`${url}/utils/import/bench_imported`, 'POST', csv(rows, true), signal),
  byStatement: copy,
};

const PATCH: Omit<Bulk, 'id' | 'title' | 'target'> = {
  as: 'one UPDATE',
  prepare: async () => undefined,
  byService: patch,
  byStatement: (sql, rows, round) =>
    sql.unsafe(
      'update bench_imported set views = $1, status = $2 where id = any($3::text::integer[]) returning id',
      [String(round), `state ${round}`, `{${keysOf(rows).join(',')}}`],
      { prepare: true },
    ),
};

const BULKS: readonly Bulk[] = [
  { ...IMPORT, id: 'import', title: 'import of CSV, with the activity log', target: null },
  { ...IMPORT, id: 'import-flat', title: 'import of CSV', target: 0.25 },
  { ...PATCH, id: 'patch', title: 'PATCH with keys, with the activity log', target: null },
  { ...PATCH, id: 'patch-flat', title: 'PATCH with keys', target: null },
];

/** The service returns only the keys, as the statement does. */
function patch(url: string, rows: number, round: number, signal: AbortSignal): Promise<void> {
  const body = JSON.stringify({ keys: keysOf(rows), data: { views: round, status: `state ${round}` } });
  const path = `${url}/items/bench_imported?fields=id&limit=-1`;
  return sendBody(path, 'PATCH', Readable.from([body]), signal);
}

/** Turns the activity log of the items on or off; it is on by default. */
async function setRecord(sql: postgres.Sql, isKept: boolean): Promise<void> {
  await sql`delete from service_collections where collection = 'bench_imported'`;
  if (!isKept) await sql`insert into service_collections (collection, accountability) values ('bench_imported', null)`;
}

async function compare(
  bulk: Bulk,
  rows: number,
  options: BulkOptions & { readonly report: Report },
  sql: postgres.Sql,
): Promise<BulkResult> {
  const service = await startService(options);
  try {
    let best = 0;
    let bestStatement = 0;
    for (let round = 0; round <= options.rounds; round++) {
      options.signal.throwIfAborted();
      await bulk.prepare(sql);
      const byService = await perSecond(rows, () => bulk.byService(service.url, rows, 2 * round, options.signal));
      await check(sql, rows);
      await bulk.prepare(sql);
      const byStatement = await perSecond(rows, () => bulk.byStatement(sql, rows, 2 * round + 1));
      // The first round fills caches and grows files, so it does not count.
      if (round === 0) continue;
      best = Math.max(best, byService);
      bestStatement = Math.max(bestStatement, byStatement);
    }
    const { id, title, as, target } = bulk;
    const ratio = best / bestStatement;
    options.report(
      `${title}: ${best.toFixed(0)} rows/s, ${as} ${bestStatement.toFixed(0)} (${(ratio * 100).toFixed(0)} %)`,
    );
    const memory = await readPeak(service.pid);
    return { id, title, rows, service: best, statement: bestStatement, as, ratio, target, memory };
  } finally {
    await service.stop();
  }
}

async function perSecond(rows: number, work: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  await work();
  return (rows * 1000) / (performance.now() - begun);
}

async function check(sql: postgres.Sql, rows: number): Promise<void> {
  const [row] = await sql`select count(*)::int as count from bench_imported`;
  if (row?.['count'] !== rows) throw new Error(`${row?.['count']} rows in place of ${rows}`);
}

async function empty(sql: postgres.Sql): Promise<void> {
  await sql.unsafe('truncate bench_imported restart identity');
}

async function copy(sql: postgres.Sql, rows: number): Promise<void> {
  const query = sql.unsafe(`copy bench_imported (${COLUMNS}) from stdin (format csv)`);
  await pipeline(csv(rows, false), await query.writable());
}

function keysOf(rows: number): readonly number[] {
  return Array.from({ length: rows }, (_, index) => index + 1);
}

const LINES_AT_ONCE = 1_000;

/** Generated while it is sent: a file of any size takes no memory here. */
function csv(rows: number, withHead: boolean): Readable {
  function* pieces(): Generator<string> {
    if (withHead) yield `${COLUMNS}\n`;
    for (let from = 1; from <= rows; from += LINES_AT_ONCE) {
      const lines: string[] = [];
      for (let n = from; n < Math.min(from + LINES_AT_ONCE, rows + 1); n++) {
        const day = String(1 + (n % 28)).padStart(2, '0');
        lines.push(
          `The article with the number ${n},published,${n % 9973},${(n % 500) / 100},2025-06-${day}T12:00:00Z\n`,
        );
      }
      yield lines.join('');
    }
  }
  return Readable.from(pieces());
}

async function sendBody(url: string, method: string, body: Readable, signal: AbortSignal): Promise<void> {
  const type = method === 'POST' ? 'text/csv' : 'application/json';
  const headers = { Authorization: `Bearer ${ADMINISTRATOR.token}`, 'Content-Type': type };
  const sent = request(url, { method, headers, signal });
  const answered = once(sent, 'response');
  await Promise.all([pipeline(body, sent), answered]);
  const [response] = (await answered) as [IncomingMessage];
  let text = '';
  for await (const chunk of response.setEncoding('utf8')) text += text.length < 300 ? chunk : '';
  if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}: ${text.slice(0, 300)}`);
}
