/** What one caller may take of what all share: connections for slow reads, the event loop, and memory for what is kept. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { makeCaller, makePolicy } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

/** Seconds. */
const SLOW = 5;
const CROWD = 24;
/** Changes of the schema; the memory of more is a matter of time alone. */
const CHANGES = Number(process.env['SCHEMA_CHANGES'] ?? 40);
const JSON_HEADERS = { 'content-type': 'application/json' };

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'fairness');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const columns = Array.from({ length: CROWD }, (_, n) => `${n} as c${n}`).join(', ');
await sql.unsafe(`create view slow as select id, pg_sleep(${SLOW})::text as slept, ${columns} from tags`);
await sql`insert into service_collections (collection, primary_key) values ('slow', 'id')`;
const READS = ['articles', 'authors', 'comments', 'tags', 'slow'].map(
  (collection) => ({ collection, action: 'read' }) as const,
);
const busy = await makeCaller(sql, 'busy', [{ permissions: READS }]);
const other = await makeCaller(sql, 'other', [{ permissions: READS }]);

/** So many lists of comments, under names that were never used before. */
let made = 0;
function lists(count: number): unknown {
  const alias: Record<string, string> = {};
  const turn = ++made;
  for (let n = 0; n < count; n++) alias[`list${turn}_${n}`] = 'comments';
  return { query: { alias, fields: Object.keys(alias).map((name) => `${name}.body`), limit: 1 } };
}

function search(service: { readonly url: string }, body: unknown, token?: string): Promise<Answer> {
  const options = { headers: JSON_HEADERS, body: JSON.stringify(body) };
  return request(service, 'SEARCH', '/items/articles', token === undefined ? options : { ...options, token });
}

async function metric(service: { readonly url: string }, name: string): Promise<number> {
  const { text } = await get(service, '/server/metrics');
  const found = [...text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\d+)$`, 'gm'))];
  return found.reduce((sum, [, value]) => sum + Number(value), 0);
}

t.test('slow reads of one caller leave connections for the first reads of another', { timeout: 60_000 }, async (t) => {
  const service = await startTestService({ databaseUrl, WORKERS: '1' });
  // Who they are is known then.
  for (const { token } of [busy, other]) await get(service, '/items/tags/1?fields=id', { token });
  const slow = Array.from({ length: CROWD }, (_, n) =>
    get(service, `/items/slow/1?fields=slept,c${n}`, { token: busy.token }).catch(() => null),
  );
  const sleepers = async (): Promise<number> => {
    const [row] = await sql<{ count: number }[]>`
      select count(*)::int from pg_stat_activity where wait_event = 'PgSleep' and pid <> pg_backend_pid()`;
    return row?.count ?? 0;
  };
  await waitFor(async () => (await sleepers()) > 1, 10_000);
  for (const field of ['slug', 'title', 'status', 'views']) {
    const start = performance.now();
    t.match(await get(service, `/items/articles/1?fields=${field}`, { token: other.token }), { status: 200 });
    const took = performance.now() - start;
    t.ok(took < SLOW * 500, `${field}: ${Math.round(took)} ms`);
  }
  const held = await sleepers();
  t.ok(held > 1 && held < 6, `${held} of 8 connections are held by the slow ones`);
  let ended = false;
  const settled = Promise.all(slow).then(() => {
    ended = true;
  });
  await waitFor(async () => {
    await sql`select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'`;
    return ended;
  }, 30_000);
  await settled;
});

t.test('a relation among the fields counts as several of them', async (t) => {
  const service = await startTestService({ databaseUrl, CALLER_LOOP_SHARE: '0' });
  const large = await search(service, lists(330), busy.token);
  t.match(large, { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } });
  t.match(large.text, /MAX_QUERY_NODES/);
  t.match(await search(service, lists(60), busy.token), { status: 200 });
  const roots = Array.from({ length: 150 }, (_, n) => `a${n}: articles { comments { id } }`).join(' ');
  const body = JSON.stringify({ query: `{ ${roots} }` });
  const answer = await request(service, 'POST', '/graphql', { headers: JSON_HEADERS, body, token: busy.token });
  t.match(answer.text, /MAX_QUERY_NODES/, 'also in GraphQL');
  const repeated = JSON.stringify({ query: `{ articles { ${'comments { id } '.repeat(150)} } }` });
  const refused = await request(service, 'POST', '/graphql', { headers: JSON_HEADERS, body: repeated });
  t.match(refused.text, /repeats more than 100 fields/);
});

t.test('new shapes have to be paid for, known ones do not', async (t) => {
  const options = { CALLER_LOOP_SHARE: '1', CALLER_LOOP_BURST: '50ms' };
  const service = await startTestService({ databaseUrl, WORKERS: '1', ...options });
  const known = lists(3);
  t.match(await search(service, known, busy.token), { status: 200 });
  let refused: Answer | null = null;
  for (let turn = 0; turn < 200 && refused === null; turn++) {
    const answer = await search(service, lists(80), busy.token);
    if (answer.status !== 200) refused = answer;
  }
  t.match(refused, { status: 429, json: { errors: [{ extensions: { code: 'REQUESTS_EXCEEDED' } }] } });
  t.ok(Number(refused?.headers['retry-after']) >= 1, 'says when to come again');
  t.match(await search(service, known, busy.token), { status: 200 }, 'what is known is still served');
  const body = JSON.stringify({ query: '{ articles { id title slug status } }' });
  const asked = await request(service, 'POST', '/graphql', { headers: JSON_HEADERS, body, token: busy.token });
  t.match(asked.text, /REQUESTS_EXCEEDED/, 'new documents are refused too');
  t.match(await search(service, lists(2), other.token), { status: 200 }, 'others are not refused');
  t.match(await search(service, lists(80)), { status: 200 }, 'nor are administrators');
});

t.test('writers whom nobody knows pay each for the address they come from', async (t) => {
  const granted = ['create', 'read', 'update', 'delete'] as const;
  await makePolicy(sql, 'public', {
    permissions: granted.map((action) => ({ collection: 'articles', action })),
  });
  const options = { CALLER_LOOP_SHARE: '1', CALLER_LOOP_BURST: '50ms', IP_TRUST_PROXY: 'loopback' };
  const service = await startTestService({ databaseUrl, WORKERS: '1', ...options });
  const write = (address: string, method: string, payload: unknown): Promise<Answer> => {
    const body = JSON.stringify(payload);
    const headers = { ...JSON_HEADERS, 'content-length': `${body.length}`, 'x-forwarded-for': address };
    return request(service, method, '/items/articles', { headers, body, token: null });
  };
  // Each asks in another way which items it means; there are none of them.
  let turn = 0;
  const selection = (): { query: unknown; data: unknown } => {
    const name = `none${++turn}`;
    const _or = Array.from({ length: 60 }, (_, n) => ({
      title: { [(turn >> (n % 12)) & 1 ? '_eq' : '_contains']: name },
    }));
    return { query: { filter: { _or } }, data: { title: name } };
  };
  let refused: Answer | null = null;
  while (turn < 1_000 && refused === null) {
    const answer = await write('192.0.2.1', 'PATCH', selection());
    if (answer.status !== 200) refused = answer;
  }
  t.match(refused, { status: 429 }, 'one has used up their share');
  t.match(await write('192.0.2.2', 'PATCH', selection()), { status: 200 }, 'which is not that of another');
  t.match(await write('192.0.2.3', 'POST', { title: 'new' }), { status: 200 });
  t.match(await write('192.0.2.4', 'DELETE', { query: selection().query }), { status: 204 });
  // The others took a moment, in which a little of the share has come back.
  let deleted = await write('192.0.2.1', 'DELETE', { query: selection().query });
  while (turn < 1_100 && deleted.status === 204)
    deleted = await write('192.0.2.1', 'DELETE', { query: selection().query });
  t.match(deleted, { status: 429 });
});

t.test('compiled statements are kept as far as their memory allows', async (t) => {
  const service = await startTestService({ databaseUrl, WORKERS: '1', SHAPE_CACHE_MEMORY: '1mb' });
  for (let turn = 0; turn < 20; turn++) t.match(await search(service, lists(60)), { status: 200 });
  const cached = await metric(service, 'lateral_shapes_cached');
  t.ok(cached > 0 && cached < 15, `${cached} of 20 are kept`);
});

t.test('caches of GraphQL belong to the schema as it is', { timeout: 170_000 }, async (t) => {
  const service = await startTestService({ databaseUrl, WORKERS: '1' });
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const documents = ['articles { id title }', 'authors { id articles { title } }', 'tags(limit: 1) { name }'];
  const change = async (turn: number): Promise<void> => {
    const mirrored = await metric(service, 'lateral_mirror_reads_total');
    await sql.unsafe(`alter table tags ${turn % 2 === 0 ? 'add column fleeting integer' : 'drop column fleeting'}`);
    await waitFor(async () => (await metric(service, 'lateral_mirror_reads_total')) > mirrored, 10_000);
    for (const document of documents) {
      const body = JSON.stringify({ query: `{ ${document} __typename }` });
      const answer = await request(service, 'POST', '/graphql', { headers: JSON_HEADERS, body });
      if (answer.status !== 200) throw new Error(answer.text);
    }
  };
  const heap = (): number => {
    collect();
    collect();
    return process.memoryUsage().heapUsed / 1_048_576;
  };
  for (let turn = 0; turn < 10; turn++) await change(turn);
  const before = heap();
  for (let turn = 0; turn < CHANGES; turn++) await change(turn);
  const growth = heap() - before;
  t.ok(growth < 8, `${growth.toFixed(1)} MiB more after ${CHANGES} changes`);
});
