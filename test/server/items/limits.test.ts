/** Every limit answers 400 and names itself; what stays within it is served. */
import t from 'tap';
import { createLateral, defineExtension } from '../../../src/index.js';
import { inForce, makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createDatabase,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'limited');
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create view lazy as select id, pg_sleep(3)::text as nap from tags;
      insert into service_collections (collection, primary_key) values ('lazy', 'id');`)
    .simple(),
);

t.test('MAX_RELATIONAL_DEPTH: fields, filter, sort, deep, alias, aggregate and groupBy', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_RELATIONAL_DEPTH: '3' });
  const served = [
    'fields=author.articles.title',
    'fields=*.*.*',
    'filter[author][articles][title][_eq]=Beta',
    'filter[_and][0][author][_or][0][articles][title][_eq]=Beta',
    'sort=author.articles.title',
    'deep[comments][author][articles][_limit]=1',
    'deep[comments][_sort]=author.name&fields=comments.id',
    'deep[comments][_filter][author][name][_eq]=Ada&fields=comments.id',
  ];
  for (const query of served) t.match(await get(service, `/items/articles?${query}`), { status: 200 }, query);
  const refused = [
    'fields=author.articles.author.name',
    'fields=*.*.*.*',
    'fields=year(author.articles.comments.created)',
    'filter[author][articles][author][name][_eq]=Ada',
    'filter[year(author.articles.comments.created)][_eq]=2023',
    'filter[comments][_some][author][articles][title][_eq]=Beta',
    'sort=author.articles.author.name',
    'deep[comments][author][articles][comments][_limit]=1',
    'deep[comments][_sort]=author.articles.author.name&fields=comments.id',
    'deep[comments][_filter][author][articles][author][name][_eq]=x&fields=comments.id',
    // What a nested level follows adds to the way that leads to it.
    'deep[comments][_sort]=author.articles.title&fields=comments.id',
    'deep[comments][_filter][author][articles][title][_eq]=x&fields=comments.id',
    'deep[comments][author][_filter][articles][title][_eq]=x&fields=comments.author.id',
    'deep[comments][author][_sort]=articles.title&fields=comments.author.id',
    'deep[comments][_groupBy]=author.articles.title&deep[comments][_aggregate][count]=*&fields=comments.id',
    'filter[author][year(articles.comments.created)][_eq]=2023',
    'groupBy=author.articles.author.name',
    'aggregate[min]=author.articles.author.name',
  ];
  for (const query of refused) names(t, await get(service, `/items/articles?${query}`), 'MAX_RELATIONAL_DEPTH', query);
  t.match(await get(service, '/items/articles?fields=author.articles.author.name'), {
    json: { errors: [{ message: 'Invalid query. Max relational depth exceeded.', extensions: { limit: 3 } }] },
  });
  const body = { query: { filter: { author: { articles: { author: { name: 'x' } } } } } };
  names(t, await search(service, body), 'MAX_RELATIONAL_DEPTH', 'SEARCH');
  const ask = (query: string): Promise<Answer> =>
    request(service, 'POST', '/graphql', {
      headers: { 'content-type': 'application/json', accept: 'application/graphql-response+json' },
      body: JSON.stringify({ query }),
    });
  const allowed = '{ articles { author { articles(filter: { title: { _eq: "x" } }) { id } } } }';
  t.match(await ask(allowed), { status: 200 }, 'GraphQL');
  for (const [place, query] of Object.entries({
    filter: '{ articles { author { articles(filter: { author: { name: { _eq: "x" } } }) { id } } } }',
    'filter of the root': '{ articles(filter: { author: { articles: { author: { name: { _eq: "x" } } } } }) { id } }',
    sort: '{ articles { author { articles(sort: ["author.name"]) { id } } } }',
  }))
    t.match((await ask(query)).text, /MAX_RELATIONAL_DEPTH/, `GraphQL ${place}`);
});

t.test('search: 1 kB each, in ten places', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_RELATIONAL_DEPTH: '20' });
  t.match(await search(service, { query: { search: 'x'.repeat(1_024) } }), { status: 200 });
  t.match(await search(service, { query: { search: 'x'.repeat(1_025) } }), wrong, 'a long term');
  t.match(await search(service, { query: { search: 'ü'.repeat(513) } }), wrong, 'its bytes count');
  t.match(await get(service, `/items/articles?search=${'x'.repeat(1_025)}`), wrong, 'in a URL');
  const nested = (count: number): unknown => {
    const alias = Object.fromEntries(Array.from({ length: count }, (_, n) => [`c${n}`, 'comments']));
    const deep = Object.fromEntries(Object.keys(alias).map((name) => [name, { _search: 'x' }]));
    return { query: { alias, deep, fields: Object.keys(alias).map((name) => `${name}.id`) } };
  };
  t.match(await search(service, nested(10)), { status: 200 });
  t.match(await search(service, nested(11)), wrong, 'many terms');
  const body = JSON.stringify({ query: `{ articles(search: "${'x'.repeat(1_025)}") { id } }` });
  const answer = await request(service, 'POST', '/graphql', { headers: { 'content-type': 'application/json' }, body });
  t.match(answer.json, { errors: [{ extensions: { code: 'INVALID_QUERY' } }] }, 'GraphQL');
});

t.test('MAX_QUERY_NODES: everything a statement grows with', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_QUERY_NODES: '100' });
  const many = (entry: unknown): unknown[] => Array.from({ length: 150 }, () => entry);
  t.match(await get(service, '/items/articles?fields=*.*'), { status: 200 });
  names(t, await get(service, '/items/articles?fields=*.*.*.*'), 'MAX_QUERY_NODES', 'wildcards');
  const bodies: Record<string, unknown> = {
    filters: { filter: { _or: many({ id: { _eq: 1 } }) } },
    'json filters': { filter: { meta: { _json: { _or: many({ k: 1 }) } } } },
    'existence tests': { filter: { _and: many({ comments: { _some: { id: 1 } } }) } },
    'deep filters': { fields: ['comments.id'], deep: { comments: { _filter: { _or: many({ id: 1 }) } } } },
    sorts: { sort: many('author.name') },
    groups: { groupBy: many('status') },
    aggregates: { aggregate: { count: many('id') } },
    having: { aggregate: { count: '*' }, having: { _or: many({ count: { _gt: 1 } }) } },
  };
  for (const [place, query] of Object.entries(bodies)) {
    names(t, await search(service, { query }), 'MAX_QUERY_NODES', place);
  }
  t.match(
    await search(service, { query: { filter: { id: { _in: many(1) } } } }),
    { status: 200 },
    'a list is one value',
  );
});

t.test('QUERY_LIMIT_MAX and QUERY_LIMIT_DEFAULT', async (t) => {
  const service = await startTestService({ databaseUrl, QUERY_LIMIT_MAX: '4', QUERY_LIMIT_DEFAULT: '2' });
  t.match(await get(service, '/items/articles?fields=id'), { json: { data: { length: 2 } } });
  t.match(await get(service, '/items/articles?limit=4'), { json: { data: { length: 4 } } });
  t.match(await get(service, '/items/articles?limit=-1'), { json: { data: { length: 4 } } }, 'all means the maximum');
  t.match(await get(service, '/items/articles?limit=-1&export=ndjson'), { text: /^([^\n]+\n){4}$/ }, 'also in a file');
  names(t, await get(service, '/items/articles?limit=5'), 'QUERY_LIMIT_MAX', 'root');
  names(t, await get(service, '/items/articles?limit=5&export=csv'), 'QUERY_LIMIT_MAX', 'export');
  names(t, await search(service, { query: { limit: 5 } }), 'QUERY_LIMIT_MAX', 'SEARCH');
  names(
    t,
    await get(service, '/items/articles?fields=comments.id&deep[comments][_limit]=5'),
    'QUERY_LIMIT_MAX',
    'deep',
  );
  const nested = await get(service, '/items/authors?fields=articles&filter[id][_eq]=1');
  t.match(nested, { json: { data: [{ articles: { length: 2 } }] } }, 'the default holds per parent');
});

t.test('limit, offset and page', async (t) => {
  const service = await startTestService({ databaseUrl });
  for (const limit of ['-2', '1.5', '1e3', 'x', '2147483648', '99999999999', '0x1']) {
    t.match(await get(service, `/items/articles?limit=${limit}`), wrong, `limit ${limit}`);
    t.match(await get(service, `/items/articles?offset=${limit}`), wrong, `offset ${limit}`);
    t.match(await get(service, `/items/articles?page=${limit}`), wrong, `page ${limit}`);
  }
  t.match(await get(service, '/items/articles?limit=0'), { status: 200, json: { data: { length: 0 } } });
  t.match(await get(service, '/items/articles?page=2147483647&limit=2147483647'), wrong, 'a page nobody can reach');
});

t.test('MAX_URL_SIZE', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_URL_SIZE: '4kb' });
  const query = (size: number): string => `filter[title][_eq]=${'x'.repeat(size)}`;
  t.match(await get(service, `/items/articles?${query(3_000)}`), { status: 200 });
  names(t, await get(service, `/items/articles?${query(4_200)}`), 'MAX_URL_SIZE', 'a long URL');
  const filter = { title: { _eq: 'x'.repeat(100_000) } };
  t.match(await search(service, { query: { filter } }), { status: 200 }, 'a body may be longer');
});

t.test('MAX_PAYLOAD_SIZE', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_PAYLOAD_SIZE: '10kb' });
  const query = (size: number): unknown => ({ query: { filter: { title: { _eq: 'x'.repeat(size) } } } });
  t.match(await search(service, query(10_000)), { status: 200 });
  for (const size of [10_300, 3_000_000]) {
    const extensions = { code: 'INVALID_PAYLOAD', option: 'MAX_PAYLOAD_SIZE', limit: 10_240 };
    const message = /^Invalid payload\. request entity too large\.$/i;
    t.match(
      await search(service, query(size)),
      { status: 400, json: { errors: [{ message, extensions }] } },
      `${size} bytes`,
    );
  }
});

t.test('DATABASE_STATEMENT_TIMEOUT', async (t) => {
  const service = await startTestService({ databaseUrl, DATABASE_STATEMENT_TIMEOUT: '1s' });
  for (const query of [
    'limit=5',
    'limit=-1',
    'export=csv',
    'aggregate[max]=nap',
    'meta=filter_count&filter[nap][_eq]=1',
  ]) {
    names(t, await get(service, `/items/lazy?${query}`), 'DATABASE_STATEMENT_TIMEOUT', query);
  }
  names(t, await get(service, '/items/lazy/1'), 'DATABASE_STATEMENT_TIMEOUT', 'one item');
  t.match(await get(service, '/items/tags'), { status: 200 });
});

t.test('MAX_QUERY_COST', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_QUERY_COST: '2000' });
  t.match(await get(service, '/items/articles/1'), { status: 200 });
  t.match(await get(service, '/items/articles/1'), { status: 200 }, 'also the second time');
  names(t, await get(service, '/items/articles?fields=*.*.*&limit=-1'), 'MAX_QUERY_COST', 'a stream');
  names(t, await get(service, '/items/articles?fields=*.*.*'), 'MAX_QUERY_COST', 'a list');
  names(t, await get(service, '/items/articles?fields=*.*.*'), 'MAX_QUERY_COST', 'and again');
  const costly = '/items/articles?fields=*.*.*';
  const seen = await get(service, costly);
  t.match(
    seen.text,
    /The estimated cost of the query is \d+, above the limit of 2000/,
    'administrators see the figure',
  );
  const permissions = ['articles', 'authors', 'comments'].map((collection) => ({
    collection,
    action: 'read' as const,
  }));
  const caller = await withSql(databaseUrl, (sql) => makeCaller(sql, 'frugal', [{ permissions }]));
  await inForce(service, caller, '/items/articles/1');
  const hidden = await get(service, costly, { token: caller.token });
  t.match(hidden, wrong);
  t.match(
    hidden.text,
    '"The estimated cost of the query is above the limit of 2000"',
    'the figure tells of hidden rows',
  );
});

t.test('MAX_QUERY_COST of the query that selects the items of a change', async (t) => {
  const url = await createLibrary(server, 'costly_changes');
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  await sql.unsafe(`
    create table events (id serial primary key, kind text, at integer);
    insert into events (kind, at) select 'old', n from generate_series(1, 20000) n;
    create index on events (at);
    analyze events`);
  const reading = defineExtension({
    name: 'reading',
    beforeWrite: {
      tags: async ({ tx }) => void (await tx.items('events').read({ filter: { kind: { _eq: 'none' } } })),
    },
  });
  const service = createLateral(
    {
      databaseUrl: url,
      port: 0,
      logLevel: 'silent',
      adminToken: ADMIN_TOKEN,
      maxQueryCost: 100,
      databaseWritePoolSize: 1,
    },
    { extensions: [reading] },
  );
  await service.start();
  t.teardown(() => service.stop());
  const send = (method: string, path: string, given: object): Promise<Answer> => {
    const body = JSON.stringify(given);
    const headers = { 'content-type': 'application/json', 'content-length': String(body.length) };
    return request(service, method, path, { headers, body });
  };
  const data = { kind: 'changed' };
  const costly = { filter: { kind: { _eq: 'none' } } };
  const cheap = { filter: { at: { _eq: 7 } } };
  for (const again of ['first', 'second']) {
    names(t, await send('PATCH', '/items/events', { query: costly, data }), 'MAX_QUERY_COST', `PATCH ${again}`);
    names(t, await send('DELETE', '/items/events', { query: costly }), 'MAX_QUERY_COST', `DELETE ${again}`);
    const operations = [
      { method: 'PATCH', path: '/items/events/1', body: data },
      { method: 'PATCH', path: '/items/events', body: { query: costly, data } },
    ];
    names(t, await send('POST', '/transactions', { operations }), 'MAX_QUERY_COST', `a transaction ${again}`);
    names(t, await send('POST', '/items/tags', { name: again }), 'MAX_QUERY_COST', `a read of a hook ${again}`);
  }
  t.strictSame([...(await sql`select count(*)::int from events where kind = 'changed'`)], [{ count: 0 }]);
  t.equal((await send('PATCH', '/items/events', { query: cheap, data })).status, 200);
  t.equal((await send('PATCH', '/items/events', { keys: [1, 2, 3], data })).status, 200);
  t.strictSame([...(await sql`select count(*)::int from events where kind = 'changed'`)], [{ count: 4 }]);
  t.equal((await send('DELETE', '/items/events', { query: cheap })).status, 204);
});

t.test('STREAM_ABOVE: pages of a cursor are no streams', async (t) => {
  const service = await startTestService({ databaseUrl, STREAM_ABOVE: '5' });
  t.match(await get(service, '/items/tags?cursor=&limit=5'), { status: 200 });
  names(t, await get(service, '/items/tags?cursor=&limit=6'), 'STREAM_ABOVE', 'a long page');
});

t.test('QUERYSTRING_MAX_PARSE_DEPTH and QUERYSTRING_ARRAY_LIMIT', async (t) => {
  const service = await startTestService({
    databaseUrl,
    QUERYSTRING_MAX_PARSE_DEPTH: '4',
    QUERYSTRING_ARRAY_LIMIT: '5',
  });
  t.match(await get(service, '/items/articles?filter[_and][0][id][_eq]=1'), { status: 200 });
  const deep = await get(service, '/items/articles?filter[_and][0][author][id][_eq]=1');
  names(t, deep, 'QUERYSTRING_MAX_PARSE_DEPTH', 'brackets');
  const list = (count: number): string =>
    Array.from({ length: count }, (_, position) => `filter[id][_in][${position}]=${position + 1}`).join('&');
  t.match(await get(service, `/items/articles?${list(5)}`), { status: 200, json: { data: { length: 5 } } });
  t.match(
    await get(service, `/items/articles?${list(9)}`),
    { status: 200, json: { data: { length: 9 } } },
    'as values',
  );
});

t.test('MAX_JSON_QUERY_DEPTH', async (t) => {
  const service = await startTestService({ databaseUrl, MAX_JSON_QUERY_DEPTH: '3' });
  t.match(await get(service, '/items/articles?fields=json(meta, nested.a[0])'.replaceAll(' ', '%20')), { status: 200 });
  const places = ['fields=json(meta,a.b.c.d)', 'filter[meta][_json][a.b[0].c][_eq]=1', 'sort=json(meta,a[0][1][2])'];
  for (const place of places) names(t, await get(service, `/items/articles?${place}`), 'MAX_JSON_QUERY_DEPTH', place);
});

t.test('long lists and many conditions are never a failure of the service', async (t) => {
  const service = await startTestService({ databaseUrl });
  const repeat = (entry: unknown, times: number): unknown[] => Array.from({ length: times }, () => entry);
  const bodies: Record<string, unknown> = {
    '20,000 conditions': { filter: { _or: repeat({ id: 1 }, 20_000) } },
    '1,700 sorts': { sort: repeat('author.name', 1_700) },
    '1,700 groups': { groupBy: repeat('status', 1_700) },
    '1,700 aggregates': { aggregate: { count: repeat('id', 1_700) } },
    '5,000 paths': {
      filter: { meta: { _json: Object.fromEntries(repeat(0, 5_000).map((_, at) => [`a${at}`, 1])) } },
    },
    '100,000 keys': { filter: { id: { _in: repeat(1, 100_000) } } },
    '30 existence tests': { filter: { _and: repeat({ author: { articles: { author: { name: 'x' } } } }, 30) } },
  };
  for (const [name, query] of Object.entries(bodies)) {
    const start = performance.now();
    const { status } = await search(service, { query });
    t.ok(status === 200 || status === 400, `${name}: ${status}`);
    t.ok(performance.now() - start < 3_000, `${name} took ${Math.round(performance.now() - start)} ms`);
  }
});

const wrong = { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } };

function names(t: Tap, answer: Answer, limit: string, place: string): void {
  t.match(answer, wrong, `${place} is refused`);
  const [error] = (answer.json as { errors: { message: string; extensions: { option?: string } }[] }).errors;
  t.match(error?.extensions.option, limit, `${place} names its option: ${answer.text.slice(0, 200)}`);
  t.notOk(error?.message.includes(limit), 'its text is for clients');
}

type Tap = Pick<typeof t, 'match' | 'notOk'>;

function search(service: { readonly url: string }, body: unknown): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, 'SEARCH', '/items/articles', { headers, body: JSON.stringify(body) });
}

t.test('MAX_QUERY_NODES: `*.*.*` of wide collections is within the default', async (t) => {
  const wide = await createDatabase(server, 'wide_limits');
  const tables = Array.from({ length: 8 }, (_, number) => number);
  const columns = Array.from({ length: 20 }, (_, number) => `f${number} text`).join(', ');
  await withSql(wide, async (sql) => {
    for (const table of tables)
      await sql.unsafe(`create table w${table} (id integer primary key, ${columns}); insert into w${table} values (1)`);
    for (const table of tables)
      for (const [number, step] of [1, 3, 4].entries())
        await sql.unsafe(`alter table w${table} add r${number} integer default 1 references w${(table + step) % 8}`);
  });
  const service = await startTestService({ databaseUrl: wide });
  await withSql(wide, async (sql) => {
    for (const table of tables)
      for (const [number, step] of [1, 3, 4].entries())
        await sql`insert into service_relations (many_collection, many_field, one_collection, one_field)
          values (${`w${table}`}, ${`r${number}`}, ${`w${(table + step) % 8}`}, ${`w${table}_r${number}`})`;
  });
  const path = '/items/w0?fields=*.*.*';
  await waitFor(async () => (await get(service, '/items/w0?fields=w4_r2.id')).status === 200, 10_000);
  const { status, json, text } = await get(service, path);
  t.equal(status, 200, text.slice(0, 300));
  t.match(json, { data: [{ r0: { id: 1, r1: { id: 1, r2: 1 } }, w4_r2: [{ id: 1, w0_r2: [{ id: 1 }] }] }] });
  const refused = await get(service, '/items/w0?fields=*.*.*.*.*');
  names(t, refused, 'MAX_QUERY_NODES', 'more levels');
});
