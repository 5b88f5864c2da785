/** Writes that are too large or take too long: a 400 that names the option, in time, with nothing changed. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { now } from '../../../src/base/host.js';
import { buildModel } from '../../../src/compiler/model/introspect.js';
import { collectionOf } from '../../../src/compiler/model/model.js';
import { planCreate } from '../../../src/compiler/plan/write/payload.js';
import { catalogSourceOf } from '../../../src/server/postgres/catalog/catalog.js';
import { locateSystemTables } from '../../../src/server/postgres/catalog/migrate.js';
import { Database } from '../../../src/server/postgres/pools/database.js';
import { createLibrary, request, startDatabase, startTestService, withSql } from '../../support/service.js';
import { startSmallHeap } from '../../support/small-heap.js';

t.setTimeout(180_000);
const ROWS = 160_000;
/** One item per 4 kB of a heap of 512 MB. */
const MOST_ROWS = 143_360;
const JSON_HEADERS = { 'content-type': 'application/json' };
const TIMEOUT_MS = 4_000;
/** Each of the three statements takes less than the timeout, and all of them more than the 5 s that it is exceeded by at most. */
const NAP_S = 3.6;

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'write_limits');
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table counted (id integer primary key, amount integer not null);
      insert into counted select n, 1 from generate_series(1, ${ROWS}) n;
      create table slow (id serial primary key, name text);
      create function nap() returns trigger language plpgsql as 'begin perform pg_sleep(${NAP_S}); return null; end';
      create trigger at_once after insert on slow for each row execute function nap();
      create constraint trigger at_commit after insert on slow deferrable initially deferred for each row execute function nap();
      create function nap(slow) returns text language sql stable as $$ select pg_sleep(${NAP_S})::text $$;
      insert into service_fields (collection, field, special) values ('slow', 'nap', 'computed');`)
    .simple(),
);

async function sumOfAmounts(): Promise<unknown> {
  return withSql(databaseUrl, async (sql) => {
    const [row] = await sql`select count(*)::int as count, sum(amount)::int as sum from counted`;
    return row;
  });
}

t.test('a process with a small heap refuses more items than it can hold', async (t) => {
  const { url, child } = await startSmallHeap({ databaseUrl, MAX_PAYLOAD_SIZE: '50mb' });
  const query = { filter: { id: { _gt: 0 } } };
  const items = Array.from({ length: ROWS }, (_, n) => ({ id: ROWS + n + 1, amount: 1 }));
  const writes: readonly (readonly [method: string, body: unknown])[] = [
    ['PATCH', { query, data: { amount: 7 } }],
    ['PATCH', { query: { ...query, limit: -1 }, data: { amount: 7 } }],
    ['PATCH', { query: { ...query, limit: ROWS }, data: { amount: 7 } }],
    ['DELETE', { query }],
    ['POST', items],
  ];
  for (const [method, given] of writes) {
    const body = JSON.stringify(given);
    // Node sends a DELETE without its length otherwise.
    const headers = { ...JSON_HEADERS, 'content-length': `${Buffer.byteLength(body)}` };
    const { status, text } = await request({ url }, method, '/items/counted', { headers, body });
    t.match(
      { status, ...JSON.parse(text).errors[0] },
      { status: 400, extensions: { option: 'MAX_BATCH_MUTATION', limit: MOST_ROWS } },
      `${method} ${body.slice(0, 60)}`,
    );
  }
  t.strictSame(await sumOfAmounts(), { count: ROWS, sum: ROWS });
  const some = { query: { filter: { id: { _lte: 20_000 } } } };
  const body = JSON.stringify({ ...some, data: { amount: 2 } });
  const changed = await request({ url }, 'PATCH', '/items/counted?fields=id', { headers: JSON_HEADERS, body });
  t.equal(changed.status, 200);
  t.strictSame(await sumOfAmounts(), { count: ROWS, sum: ROWS + 20_000 });
  t.equal(child.exitCode, null, 'the service runs');
});

t.test('statements that are sent together have the time of one', async (t) => {
  const service = await startTestService({ databaseUrl, DATABASE_STATEMENT_TIMEOUT: `${TIMEOUT_MS}ms` });
  const begun = performance.now();
  const { status, text } = await request(service, 'POST', '/items/slow?fields=id,nap', {
    headers: JSON_HEADERS,
    body: JSON.stringify({ name: 'x' }),
  });
  const took = performance.now() - begun;
  t.match(
    { status, ...JSON.parse(text).errors[0] },
    { status: 400, extensions: { reason: 'The query took too long', option: 'DATABASE_STATEMENT_TIMEOUT' } },
  );
  t.ok(took >= TIMEOUT_MS && took < 2 * NAP_S * 1_000, `after ${Math.round(took)} ms`);
  const [row] = await withSql(databaseUrl, (sql) => sql`select count(*)::int as count from slow`);
  t.equal(row?.['count'], 0, 'nothing is written');
  const after = await request(service, 'GET', '/items/slow');
  t.equal(after.status, 200, 'the connection serves others');
});

t.test('a plan that is not made in time is refused', async (t) => {
  const database = await Database.open({
    url: databaseUrl,
    schema: 'public',
    otherSchemas: [],
    connections: 1,
    sessions: 1,
    streams: 1,
    imports: 1,
    waitTimeout: 10_000,
    statementTimeout: 10_000,
    connectTimeout: 10_000,
  });
  t.teardown(() => database.close());
  await locateSystemTables(database, null);
  const model = buildModel((await catalogSourceOf(database).load()).document, 1, database);
  const plan = (until: number): Promise<unknown> => {
    const items = Array.from({ length: 300 }, (_, id) => ({ id, amount: 1 }));
    const variables = { user: null, role: null, roles: [], policies: [], now: new Date().toISOString() };
    const author = { user: null, ip: null, user_agent: null, origin: null };
    const context = { model, maxRows: null, variables, newUuid: randomUUID, author, access: null, until };
    return planCreate(collectionOf(model, 'counted'), items, context);
  };
  await plan(now() + 60_000);
  await t.rejects(plan(now() - 1), { message: 'Invalid query. The query took too long.' });
});
