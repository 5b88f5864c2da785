/** Live queries over server-sent events: first the answer, then a new one whenever it changes, whoever has changed it. */
import t from 'tap';
import { addPermission, inForce, type MadeCaller, makeCaller } from '../../support/callers.js';
import { EventStream, type EventStreamOptions } from '../../support/event-stream.js';
import {
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const server = await startDatabase({ own: true });
const url = await createLibrary(server, 'live');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql`create table notes (text text)`;
await sql`create view drafts as select id, title from articles where status = 'draft'`;
await sql`insert into service_collections (collection, primary_key) values ('drafts', 'id')`;
const service = await startTestService({ databaseUrl: url, WORKERS: '1' });

function open(path: string, options?: EventStreamOptions): EventStream {
  const stream = new EventStream(service, path, options);
  t.teardown(() => stream.close());
  return stream;
}

async function openWith(caller: MadeCaller, path: string): Promise<EventStream> {
  await inForce(service, caller, path);
  const stream = open(path, { token: caller.token });
  await stream.count(1);
  return stream;
}

const slots = async (): Promise<number> => {
  const [row] = await sql`select count(*)::int as slots from pg_replication_slots`;
  return Number(row?.['slots']);
};

t.test('nothing is read from the log before somebody subscribes', async (t) => {
  await get(service, '/items/articles');
  t.equal(await slots(), 0);
  t.strictSame([...(await sql`select from pg_publication`)], []);
});

t.test('an item: its answer, then a new one after each change, by the API and by SQL', async (t) => {
  const stream = open('/items/articles/1?fields=id,title');
  await stream.count(1);
  t.equal(stream.status, 200);
  t.match(stream.response?.headers, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
  });
  t.strictSame(stream.last, { data: { id: 1, title: 'Hello World' } });
  await waitFor(async () => (await slots()) === 1, 5_000);
  const body = JSON.stringify({ title: 'By the API' });
  await request(service, 'PATCH', '/items/articles/1', { body, headers: { 'content-type': 'application/json' } });
  await stream.count(2);
  t.strictSame(stream.last, { data: { id: 1, title: 'By the API' } });
  await sql`update articles set title = 'By SQL' where id = 1`;
  await stream.count(3);
  t.strictSame(stream.last, { data: { id: 1, title: 'By SQL' } });
  await sql`update articles set title = 'Another' where id = 2`;
  await sql`update articles set body = 'not selected' where id = 1`;
  await sql`begin; update articles set title = 'undone' where id = 1; rollback`.simple();
  await passTime(200, 'nothing arrives');
  t.equal(stream.events.length, 3, 'other rows, other fields and what is undone send nothing');
  stream.close();
});

t.test('lists, nested items, counts, aggregates and views follow every table they read', async (t) => {
  const paths = [
    '/items/articles?fields=id,title,comments.body&filter[id][_eq]=2',
    '/items/articles?aggregate[count]=*',
    '/items/articles?limit=1&meta=total_count&fields=id',
    '/items/drafts?limit=-1&sort=id',
    '/items/comments?fields=id&filter[article][title][_eq]=Renamed',
  ];
  const streams = paths.map((path) => open(path));
  for (const stream of streams) await stream.count(1);
  const isRight = async (): Promise<boolean> => {
    for (const [index, path] of paths.entries())
      if (streams[index]?.events.at(-1)?.data !== (await get(service, path)).text) return false;
    return true;
  };
  const changes = [
    `insert into comments (body, article) values ('new', 2)`,
    `insert into articles (title, status) values ('new', 'draft')`,
    `update articles set title = 'Renamed' where id = 2`,
    `delete from articles where id = (select max(id) from articles)`,
    `insert into articles (id, title, status) values (6000, 'moving', 'draft')`,
    'update articles set id = 7000 where id = 6000',
    'truncate articles_tags',
    `copy articles (title) from program 'echo copied'`,
    'truncate comments',
  ];
  for (const change of changes) {
    await sql.unsafe(change);
    await t.resolves(waitFor(isRight, 3_000), change);
  }
  for (const stream of streams) stream.close();
});

t.test('SEARCH is live as well', async (t) => {
  const body = JSON.stringify({ query: { filter: { name: { _eq: 'live' } }, fields: ['name'] } });
  const stream = open('/items/tags', { method: 'SEARCH', body, headers: { 'content-type': 'application/json' } });
  await stream.count(1);
  t.strictSame(stream.last, { data: [] });
  await sql`insert into tags (name) values ('live')`;
  await stream.count(2);
  t.strictSame(stream.last, { data: [{ name: 'live' }] });
  stream.close();
});

t.test('a query of GraphQL is live with all its root fields', async (t) => {
  const query = `query ($id: ID!) { authors_by_id(id: $id) { name } articles(filter: { author: { id: { _eq: 2 } } }) { title } }`;
  const body = JSON.stringify({ query, variables: { id: 2 } });
  const headers = { 'content-type': 'application/json' };
  const stream = open('/graphql', { method: 'POST', body, headers });
  await stream.count(1);
  const fresh = async (): Promise<string> => (await request(service, 'POST', '/graphql', { body, headers })).text;
  t.match(stream.events[0], { name: 'next', data: await fresh() });
  await sql`update authors set name = 'Alan' where id = 2`;
  await stream.count(2);
  t.match(stream.last, { data: { authors_by_id: { name: 'Alan' } } });
  await sql`insert into articles (title, author) values ('of Alan', 2)`;
  await stream.count(3);
  t.match(stream.events.at(-1)?.data, /of Alan/);
  t.equal(stream.events.at(-1)?.data, await fresh());
  stream.close();
  for (const [wrong, message] of [
    ['{ nothing { id } }', /nothing/],
    ['mutation { delete_tags_item(id: 1) { id } }', /Only a query/],
    ['{', /Syntax/],
  ] as const) {
    const refused = open('/graphql', { method: 'POST', body: JSON.stringify({ query: wrong }), headers });
    await refused.ended();
    t.equal(refused.status, 200);
    t.match(refused.events[0], { name: 'next', data: message });
    t.match(refused.text, /event: complete\ndata:\n\n$/);
  }
});

t.test('a request may wait for another answer than the one it has', async (t) => {
  const path = '/items/authors/3?fields=name';
  const first = await get(service, path);
  const tag = String(first.headers['etag']);
  const wait = (seconds: number, has = tag): ReturnType<typeof get> =>
    get(service, path, { headers: { 'if-none-match': has, prefer: `wait=${seconds}` } });
  const other = await wait(10, '"another"');
  t.match(other, { status: 200, text: first.text });
  t.equal(other.headers['preference-applied'], 'wait=10');
  const unchanged = await wait(1);
  t.match(unchanged, { status: 304, headers: { etag: tag } });
  const changed = wait(10);
  await passTime(200, 'nothing arrives');
  await sql`update authors set name = 'Grace' where id = 3`;
  t.match(await changed, { status: 200, text: '{"data":{"name":"Grace"}}' });
  t.equal((await get(service, path, { headers: { prefer: 'wait=10' } })).status, 200, 'without a tag it does not wait');
  t.equal((await get(service, path, { token: null, headers: { 'if-none-match': tag, prefer: 'wait=9' } })).status, 403);
});

t.test('a client that returns with the id of the last event gets it again only if it has changed', async (t) => {
  const path = '/items/authors/1?fields=name';
  const first = open(path);
  await first.count(1);
  const id = first.events[0]?.id ?? '';
  t.match(id, /^[0-9A-F]+\/[0-9A-F]+\..+/);
  first.close();
  const again = open(path, { headers: { 'last-event-id': id } });
  await waitFor(async () => again.text.includes(': unchanged'), 3_000);
  t.equal(again.events.length, 0);
  await sql`update authors set name = 'Ada' where id = 1`;
  await again.count(1);
  t.strictSame(again.last, { data: { name: 'Ada' } });
  again.close();
  const later = open(path, { headers: { 'last-event-id': id } });
  await later.count(1);
  t.strictSame(later.last, { data: { name: 'Ada' } });
  later.close();
});

t.test('errors are ordinary responses', async (t) => {
  for (const [path, status, options] of [
    ['/items/nothing', 403],
    ['/items/articles/99999', 403],
    ['/items/articles?filter[nothing][_eq]=1', 403],
    ['/items/articles?limit=x', 400],
    ['/items/articles?export=csv', 400],
    ['/items/articles', 403, { token: null }],
    ['/items/articles', 401, { token: 'no-such-token' }],
  ] as const) {
    const stream = open(path, options);
    await stream.ended();
    t.equal(stream.status, status, path);
    t.match(JSON.parse(stream.text), { errors: [{ extensions: { code: /./ } }] });
  }
});

t.test('a table without a key can still be written, and what is added to it is seen', async (t) => {
  const stream = open('/items/notes');
  await stream.count(1);
  await waitFor(async () => (await slots()) === 1, 3_000);
  await sql`insert into notes values ('one')`;
  await stream.count(2);
  t.strictSame(stream.last, { data: [{ text: 'one' }] });
  await sql`update notes set text = 'two'`;
  await sql`delete from notes`;
  stream.close();
});

t.test('a key that is dropped, and a table that is new', async (t) => {
  await sql`create table fresh (id int primary key, name text)`;
  await waitFor(async () => (await get(service, '/items/fresh')).status === 200, 5_000);
  const stream = open('/items/fresh?fields=name');
  await stream.count(1);
  await sql`insert into fresh values (1, 'a')`;
  await stream.count(2, 5_000);
  t.strictSame(stream.last, { data: [{ name: 'a' }] });
  await sql`alter table fresh drop constraint fresh_pkey`;
  const updated = async (): Promise<boolean> => {
    try {
      await sql`update fresh set name = 'b'`;
      return true;
    } catch {
      return false;
    }
  };
  t.ok((await waitFor(updated, 5_000)) < 5_000, 'it leaves the publication that would make updates fail');
  await sql`alter table fresh add column more text`;
  await sql`insert into fresh values (2, 'c')`;
  await waitFor(async () => stream.events.at(-1)?.data.includes('"c"') === true, 5_000);
  stream.close();
});

t.test('tables can be written whatever their replica identity is', async (t) => {
  const definitions = {
    deferred: '(id int primary key deferrable, name text)',
    calculated: '(a int default 1, id int generated always as (a) stored primary key, name text)',
    searched: '(id int primary key, name text, length int generated always as (1) stored)',
    shown: '(id int primary key, name text, length int generated always as (1) virtual)',
    indexed: '(id int not null default 1, name text, number serial primary key)',
    parted: '(id int, name text) partition by list (id)',
  };
  const tables = Object.keys(definitions);
  for (const [table, columns] of Object.entries(definitions)) await sql.unsafe(`create table ${table} ${columns}`);
  await sql
    .unsafe(`create table part partition of parted default; create unique index by_id on indexed (id);
    alter table indexed replica identity using index by_id;
    alter table searched replica identity full; alter table shown replica identity full; alter table parted replica identity full`)
    .simple();
  const insert = (table: string): string =>
    `insert into ${table} (${table === 'calculated' ? 'name' : 'id, name'}) values (${table === 'calculated' ? '' : '1, '}'old')`;
  for (const table of tables) await waitFor(async () => (await get(service, `/items/${table}`)).status === 200, 5_000);
  const streams = new Map(tables.map((table) => [table, open(`/items/${table}?fields=name`)]));
  await Promise.all([...streams.values()].map((stream) => stream.count(1)));
  await waitFor(async () => (await slots()) === 1, 3_000);
  const sees = async (table: string, name: string): Promise<number> =>
    waitFor(async () => streams.get(table)?.events.at(-1)?.data.includes(`"${name}"`) === true, 5_000);
  for (const table of tables) {
    await sql.unsafe(insert(table));
    await sees(table, 'old');
    await t.resolves(sql.unsafe(`update ${table} set name = 'new'`), table);
  }
  for (const table of ['calculated', 'searched', 'indexed']) await sees(table, 'new');
  await sql`drop index by_id`;
  const isWritable = (): Promise<boolean> =>
    sql`update indexed set name = 'newer'`.then(
      () => true,
      () => false,
    );
  await waitFor(isWritable, 8_000);
  await sql`alter table indexed replica identity full`;
  const isReported = async (): Promise<boolean> => {
    await sql`update indexed set name = name || '!'`;
    return streams.get('indexed')?.events.at(-1)?.data.includes('!!') === true;
  };
  await waitFor(isReported, 8_000);
  for (const stream of streams.values()) stream.close();
});

t.test('a table that leaves the publication is published again, and what was missed is made up for', async (t) => {
  const stream = open('/items/tags/1?fields=name');
  await stream.count(1);
  await waitFor(async () => (await slots()) === 1, 3_000);
  await sql`update tags set name = 'published' where id = 1`;
  await stream.count(2);
  await sql`alter publication lateral_live drop table tags`;
  await sql`update tags set name = 'unpublished' where id = 1`;
  await waitFor(async () => stream.events.at(-1)?.data.includes('"unpublished"') === true, 6_000);
  const isPublished = async (): Promise<boolean> =>
    (await sql`select from pg_publication_tables where pubname = 'lateral_live' and tablename = 'tags'`).length > 0;
  await waitFor(isPublished, 6_000);
  await sql`update tags set name = 'published again' where id = 1`;
  await waitFor(async () => stream.events.at(-1)?.data.includes('"published again"') === true, 2_000);
  t.match(
    JSON.stringify((await get(service, '/server/health')).json),
    /"output":"logical: changes are read from the log"/,
  );
  stream.close();
});

t.test('rules of rows and fields hold for every answer, and those of the moment', async (t) => {
  const read = { collection: 'articles', action: 'read' } as const;
  const caller = await makeCaller(sql, 'reader', [
    { permissions: [{ ...read, permissions: { status: { _eq: 'published' } }, fields: ['id', 'title', 'status'] }] },
  ]);
  const path = '/items/articles?sort=id&limit=-1';
  const stream = await openWith(caller, path);
  const isRight = async (): Promise<boolean> =>
    stream.events.at(-1)?.data === (await get(service, path, { token: caller.token })).text;
  t.ok(await isRight());
  await sql`update articles set status = 'secret', title = 'hidden' where id = 2`;
  await waitFor(isRight, 3_000);
  t.notMatch(stream.events.map(({ data }) => data).join(), /hidden|secret/);
  await sql`update service_permissions set fields = 'id' where policy = ${caller.policies[0] ?? ''}`;
  await waitFor(async () => stream.events.at(-1)?.data.includes('title') === false, 1_000);
  t.ok(await isRight());
  await addPermission(sql, caller.policies[0] ?? '', { ...read, fields: ['id', 'views'] });
  await waitFor(async () => stream.events.at(-1)?.data.includes('views') === true, 1_000);
  await sql`delete from service_permissions where policy = ${caller.policies[0] ?? ''}`;
  await stream.ended(1_000);
  t.match(stream.events.at(-1), { name: 'failed', data: /FORBIDDEN/ });
});

t.test('a token that is withdrawn ends its streams; a deleted item too', async (t) => {
  const read = { collection: 'authors', action: 'read' } as const;
  const caller = await makeCaller(sql, 'leaving', [{ permissions: [read] }]);
  const stream = await openWith(caller, '/items/authors');
  await sql`update service_users set token = null where id = ${caller.user}`;
  await stream.ended(1_500);
  t.match(stream.events.at(-1), { name: 'failed', data: /INVALID_CREDENTIALS/ });
  await sql`insert into authors (id, name) values (900, 'short-lived')`;
  const item = open('/items/authors/900');
  await item.count(1);
  await sql`delete from authors where id = 900`;
  await item.ended(3_000);
  t.match(item.events.at(-1), { name: 'failed', data: /FORBIDDEN/ });
});

t.test('equal reads are one, and a change that touches no subscription costs no read', async (t) => {
  const reads = async (): Promise<number> => {
    const { text } = await get(service, '/server/metrics');
    return Number(/^lateral_live_reads_total (\d+)$/m.exec(text)?.[1]);
  };
  const same = Array.from({ length: 20 }, () => open('/items/authors/2?fields=id,score'));
  const others = Array.from({ length: 20 }, (_, id) => open(`/items/tags?fields=name&filter[id][_eq]=${1000 + id}`));
  for (const stream of [...same, ...others]) await stream.count(1);
  const before = await reads();
  await sql`update authors set score = 1 where id = 2`;
  for (const stream of same) await stream.count(2);
  t.equal(await reads(), before + 1);
  await sql`update authors set score = 2 where id = 3`;
  await sql`insert into tags (id, name) values (1003, 'x')`;
  await others[3]?.count(2);
  await passTime(150, 'nothing else is read');
  t.equal(await reads(), before + 2);
  for (const stream of [...same, ...others]) stream.close();
});

t.test('a token that expires ends its streams within a second; nobody has to say so', async (t) => {
  const brief = await startTestService({ databaseUrl: url, WORKERS: '1', ACCESS_TOKEN_TTL: '2s' });
  const headers = { 'content-type': 'application/json' };
  const account = JSON.stringify({ email: 'eve@example.com', password: 'a long password' });
  t.equal((await request(service, 'POST', '/users', { body: account, headers })).status, 200);
  await sql`insert into service_access ("user", policy)
    select u.id, p.id from service_users u, service_policies p where u.email = 'eve@example.com' and p.admin_access limit 1`;
  const { json } = await request(brief, 'POST', '/auth/login', { body: account, headers });
  const token = String(Object(json).data.access_token);
  const stream = new EventStream(brief, '/items/tags', { token });
  t.teardown(() => stream.close());
  await stream.count(1);
  await stream.ended();
  const [, claims = ''] = token.split('.');
  const late = Date.now() - JSON.parse(Buffer.from(claims, 'base64url').toString()).exp * 1_000;
  t.ok(late >= 0 && late < 3_000, `it ended ${Math.round(late)} ms after that`);
  t.equal(stream.events.at(-1)?.name, 'failed');
  t.match(stream.last, { errors: [{ extensions: { code: 'TOKEN_EXPIRED' } }] });
});

t.test('a session that ends while it is looked up ends its stream', async (t) => {
  const headers = { 'content-type': 'application/json' };
  await sql`insert into tags (id, name) values (930, 'shared')`;
  const post = (path: string, body: object): ReturnType<typeof request> =>
    request(service, 'POST', path, { body: JSON.stringify(body), headers });
  const [administrator] = await sql`select role from service_users where role is not null limit 1`;
  const made = await post('/shares', { collection: 'tags', item: '930', role: administrator?.['role'] });
  // Of a share the session is looked up first, and then who has made it.
  const entered = await post('/shares/auth', { share: Object(made.json).data.id, mode: 'session' });
  const cookie = String(entered.headers['set-cookie']).split(';', 1)[0] ?? '';
  const other = open('/items/tags?limit=1');
  await other.count(1);
  const blocking = connectSql(url);
  t.teardown(() => blocking.end());
  const stream = await blocking.begin(async (transaction) => {
    await transaction`lock table service_policies in access exclusive mode`;
    const begun = open('/items/tags/930', { token: null, headers: { cookie } });
    await passTime(500, 'the identity is looked up');
    t.equal((await sql`delete from service_sessions where share is not null`).count, 1);
    await passTime(500, 'the identity is looked up');
    return begun;
  });
  t.ok((await waitFor(async () => stream.isEnded, 5_000)) < 3_000, 'soon');
  other.close();
});
