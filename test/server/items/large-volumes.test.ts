/**
 * Rows of ten megabytes and a million rows pass through imports, exports, updates, snapshots and `lateral adopt` in a process with
 * 512 MB of heap. Meanwhile the service answers `ping` within a second.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { findProgram } from '../../support/programs.js';
import {
  ADMIN_TOKEN,
  type Answer,
  createDatabase,
  makeFolder,
  request,
  startDatabase,
  withSql,
} from '../../support/service.js';
import { SMALL_HEAP, startSmallHeap } from '../../support/small-heap.js';

const LARGE_ROWS = 40;
const LARGE_BYTES = 10_000_000;
const SMALL_ROWS = 1_000_000;
/** One item per 4 kB of the heap. */
const MOST_WRITTEN = 143_360;
/** Each takes a connection for streams while it runs. */
const EXPORTS_AT_ONCE = 3;

t.setTimeout(1_100_000);
const curl = await findProgram('curl');
const server = await startDatabase({ own: true });
const databaseUrl = await createDatabase(server, 'volumes');
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table large (id integer primary key, body text not null);
      create table small (id integer primary key, label text not null, amount integer);`)
    .simple(),
);
const folder = await makeFolder();
const { url, watch } = await startSmallHeap({
  databaseUrl,
  IMPORT_MAX_FILE_SIZE: '600mb',
  DATABASE_STATEMENT_TIMEOUT: '10m',
  READ_CACHE_SIZE: '64mb',
});

t.test('imports of large rows and of a million rows', { skip: curl === null && 'needs curl' }, async (t) => {
  const largeFile = join(folder, 'large.ndjson');
  const smallFile = join(folder, 'small.csv');
  await pipeline(Readable.from(largeRows()), createWriteStream(largeFile));
  await pipeline(Readable.from(smallRows()), createWriteStream(smallFile));
  const send = (collection: string, file: string): Promise<Transfer> =>
    transfer([
      ...['-X', 'POST', '-H', `Content-Type: ${file.endsWith('csv') ? 'text/csv' : 'application/x-ndjson'}`],
      ...['-T', file, `${url}/utils/import/${collection}`],
    ]);
  const watched = watch();
  const transfers = await Promise.all([send('large', largeFile), send('small', smallFile)]);
  t.strictSame(
    transfers.map(({ status }) => status),
    [200, 200],
  );
  await watched.end(t, 'imports');
  await withSql(databaseUrl, async (sql) => {
    const [sums] = await sql`
      select (select count(*)::int from small) as small, (select count(*)::int from large) as large,
        (select sum(octet_length(body))::bigint::text from large) as bytes`;
    t.strictSame(sums, { small: SMALL_ROWS, large: LARGE_ROWS, bytes: String(LARGE_ROWS * LARGE_BYTES) });
  });
});

t.test('exports of large rows and of a million rows', { skip: curl === null && 'needs curl' }, async (t) => {
  const watched = watch();
  const paths = [
    '/items/large?limit=-1',
    '/items/large?limit=-1&export=csv',
    '/items/large?limit=-1&export=xml',
    '/items/large?limit=-1&export=yaml',
    '/items/small?limit=-1',
    '/items/small?limit=-1&export=csv',
  ];
  const transfers: Transfer[] = [];
  while (transfers.length < paths.length) {
    const next = paths.slice(transfers.length, transfers.length + EXPORTS_AT_ONCE);
    transfers.push(...(await Promise.all(next.map((path) => transfer(['-g', `${url}${path}`])))));
  }
  t.strictSame(
    transfers.map(({ status }) => status),
    paths.map(() => 200),
  );
  for (const [position, { bytes }] of transfers.entries()) {
    const least = paths[position]?.includes('large') ? LARGE_ROWS * LARGE_BYTES : SMALL_ROWS * 10;
    t.ok(bytes >= least, `${paths[position]}: ${bytes} bytes`);
  }
  await watched.end(t, 'exports');
});

t.test('updates and deletions by a query: of as many items as the heap allows, and of a million', async (t) => {
  const watched = watch();
  const send = (method: string, path: string, given: unknown): Promise<Answer> => {
    const body = JSON.stringify(given);
    const headers = { 'content-type': 'application/json', 'content-length': `${Buffer.byteLength(body)}` };
    return request({ url }, method, path, { headers, body });
  };
  const data = { amount: 7 };
  const all = { filter: { id: { _gt: 0 } }, limit: -1 };
  const most = { filter: { id: { _lte: MOST_WRITTEN } } };
  const refused = { errors: [{ extensions: { option: 'MAX_BATCH_MUTATION', limit: MOST_WRITTEN } }] };
  t.match((await send('PATCH', '/items/small?fields=id', { query: all, data })).json, refused);
  t.match((await send('DELETE', '/items/small', { query: all })).json, refused);
  t.equal((await send('PATCH', '/items/small?fields=id', { query: most, data })).status, 200);
  t.equal((await send('DELETE', '/items/small', { query: most })).status, 204);
  await watched.end(t, 'changes');
  await withSql(databaseUrl, async (sql) => {
    const [row] = await sql`select count(*)::int as count, count(amount)::int as changed from small`;
    t.strictSame(row, { count: SMALL_ROWS - MOST_WRITTEN, changed: 0 });
  });
});

t.test('a snapshot of fields with large metadata', async (t) => {
  await withSql(
    databaseUrl,
    (sql) => sql`insert into service_fields (collection, field, options)
      select 'large', 'body', json_build_object('text', repeat('x', ${LARGE_BYTES}))`,
  );
  const watched = watch();
  const answers = await Promise.all(
    Array.from({ length: 8 }, () => request({ url }, 'GET', '/schema/snapshot?policies=true')),
  );
  t.strictSame(
    answers.map(({ status }) => status),
    answers.map(() => 200),
  );
  await watched.end(t, 'snapshots');
});

t.test('an adoption of large revisions', async (t) => {
  const old = await createDatabase(server, 'old', ['directus.sql', 'directus-data.sql']);
  await withSql(old, (sql) =>
    sql
      .unsafe(`
        insert into directus_activity (action, collection, item)
          select 'update', 'articles', n::text from generate_series(1, 200000) n;
        insert into directus_revisions (activity, collection, item, data)
          select 1, 'articles', '1', json_build_object('title', repeat('y', ${LARGE_BYTES})) from generate_series(1, 30);`)
      .simple(),
  );
  const adoption = spawn(
    process.execPath,
    [packagePath('dist', 'src', 'main.js'), 'adopt', '--activity', '--database-url', old],
    { env: { PATH: process.env['PATH'] ?? '', NODE_OPTIONS: SMALL_HEAP }, stdio: 'inherit' },
  );
  const watched = watch(adoption);
  const [code] = (await once(adoption, 'close')) as [number | null];
  t.equal(code, 0);
  await watched.end(t, 'adoption');
});

function* largeRows(): Generator<string> {
  for (let id = 1; id <= LARGE_ROWS; id++) yield `{"id":${id},"body":"${'z'.repeat(LARGE_BYTES)}"}\n`;
}

function* smallRows(): Generator<string> {
  yield 'id,label\n';
  for (let first = 1; first <= SMALL_ROWS; first += 1_000)
    yield Array.from({ length: 1_000 }, (_, n) => `${first + n},item ${first + n}\n`).join('');
}

interface Transfer {
  readonly status: number;
  readonly bytes: number;
}

/** Sends one request from a process of its own, which drops the body of the response. */
async function transfer(words: readonly string[]): Promise<Transfer> {
  const target = join(folder, `body-${Math.random()}`);
  const output: Buffer[] = [];
  const sender = spawn(
    curl ?? '',
    ['-s', '-o', target, '-w', '%{http_code} %{size_download}', '-H', `Authorization: Bearer ${ADMIN_TOKEN}`, ...words],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  sender.stdout.on('data', (piece: Buffer) => output.push(piece));
  await once(sender, 'close');
  const [status = 0, bytes = 0] = Buffer.concat(output).toString().split(' ').map(Number);
  if (status !== 200) t.comment((await readFile(target, 'utf8')).slice(0, 400));
  t.equal((await stat(target)).size, bytes);
  return { status, bytes };
}
