/** Computed fields: a stable function of a row is a field that can be read in every way, and not written. */
import { buildSchema, type GraphQLObjectType } from 'graphql';
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import {
  type Answer,
  createLibrary,
  get,
  KNOWS_CALLERS,
  loadSchemas,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'computed');
await loadSchemas(databaseUrl, ['functions.sql']);
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create function shout(authors) returns text language sql stable as $$ select upper($1.name) $$;
      create function written(author authors) returns bigint language sql stable
        as $$ select count(*) from articles where articles.author = $1.id $$;
      create function reads(articles) returns numeric language sql immutable as $$ select $1.views * 1.5 $$;
      create function age_of(articles) returns timestamptz language sql stable as $$ select $1.published_at + interval '1 day' $$;
      create function label(authors) returns text language sql immutable as $$ select 'author' $$;
      create function changing(articles) returns integer language sql volatile as $$ select 1 $$;
      create function shout(articles) returns text language sql stable as $$ select 'an article' $$;`)
    .simple(),
);
const counter = await StatementCounter.of(server, 'computed');
const service = await startTestService({ databaseUrl, WORKERS: '1', ...KNOWS_CALLERS });

function send(method: string, path: string, body: unknown, token?: string): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, { headers, body: JSON.stringify(body), ...(token ? { token } : {}) });
}

async function read(path: string): Promise<unknown> {
  const { json } = await get(service, path);
  return (json as { data?: unknown }).data ?? json;
}

t.test('a field is declared by its metadata', async (t) => {
  const fields: readonly [string, object][] = [
    ['authors', { field: 'shout', type: 'alias', meta: { special: ['computed'] } }],
    [
      'authors',
      { field: 'article_count', type: 'alias', meta: { special: ['computed'], options: { function: 'written' } } },
    ],
    ['authors', { field: 'label', type: 'alias', meta: { special: ['computed'] } }],
    ['articles', { field: 'reads', type: 'alias', meta: { special: ['computed'] } }],
    ['articles', { field: 'age_of', type: 'alias', meta: { special: ['computed'] } }],
    ['articles', { field: 'changing', type: 'alias', meta: { special: ['computed'] } }],
  ];
  for (const [collection, field] of fields)
    t.match(await send('POST', `/fields/${collection}`, field), { status: 200 });
  t.match(await read('/fields/authors/shout'), { type: 'alias', schema: null, meta: { special: 'computed' } });
});

t.test('it is read, filtered, sorted, grouped and aggregated as other fields are', async (t) => {
  t.strictSame(await read('/items/authors/1?fields=name,shout,article_count'), {
    name: 'Ada Lovelace',
    shout: 'ADA LOVELACE',
    article_count: '3',
  });
  t.match(await read('/items/authors/2'), { id: 2, shout: 'ALAN TURING' }, 'a wildcard has it');
  t.strictSame(await read('/items/articles?fields=id,author.shout&filter[author][shout][_starts_with]=ADA&sort=id'), [
    { id: 1, author: { shout: 'ADA LOVELACE' } },
    { id: 2, author: { shout: 'ADA LOVELACE' } },
    { id: 8, author: { shout: 'ADA LOVELACE' } },
  ]);
  t.strictSame(await read('/items/authors?fields=id&filter[article_count][_gt]=2&sort=-article_count,-id'), [
    { id: 2 },
    { id: 1 },
  ]);
  t.strictSame(await read('/items/articles?fields=id,reads&sort=-reads&limit=2&filter[reads][_lt]=2000'), [
    { id: 5, reads: '1500.0' },
    { id: 6, reads: '1498.5' },
  ]);
  t.strictSame(await read('/items/articles?aggregate[max]=reads&filter[author]=1'), [{ max: { reads: '375.0' } }]);
  t.strictSame(await read('/items/authors?aggregate[count]=*&groupBy=article_count&sort=article_count'), [
    { article_count: '0', count: 1 },
    { article_count: '1', count: 1 },
    { article_count: '2', count: 1 },
    { article_count: '3', count: 2 },
  ]);
  t.strictSame(
    await read('/items/articles?fields=id&filter[author][label][_null]=true'),
    [{ id: 6 }],
    'none of no row',
  );
  t.strictSame(await read('/items/articles/1?fields=age_of,year(age_of)'), {
    age_of: '2023-01-16T10:00:00.000Z',
    age_of_year: 2023,
  });
  t.strictSame(
    await read('/items/authors/1?fields=articles.reads&deep[articles][_sort]=reads&deep[articles][_limit]=1'),
    {
      articles: [{ reads: '150.0' }],
    },
  );
  t.match(
    (await get(service, '/items/authors?fields=name,shout&export=csv&limit=1')).text,
    /Ada Lovelace,ADA LOVELACE/,
  );
  t.match(await read('/items/authors?search=LOVELACE&fields=id'), [{ id: 1 }]);
  const path = '/items/authors?fields=shout,articles.reads&filter[shout][_contains]=A&sort=-shout&meta=filter_count';
  const { counts } = await counter.count(() => get(service, path));
  t.strictSame(
    counts.map(({ calls }) => calls),
    [1],
    'one statement',
  );
});

t.test('pages behind a cursor go by it', async (t) => {
  const seen: unknown[] = [];
  let cursor = '';
  for (let page = 0; page < 6; page++) {
    const { json } = await get(service, `/items/authors?fields=shout&sort=-shout&limit=2&cursor=${cursor}`);
    const { data, meta } = json as { data: { shout: string }[]; meta: { next_cursor: string | null } };
    seen.push(...data.map(({ shout }) => shout));
    if (meta.next_cursor === null) break;
    cursor = meta.next_cursor;
  }
  t.strictSame(
    seen,
    ((await read('/items/authors?fields=shout&sort=-shout')) as { shout: string }[]).map(({ shout }) => shout),
  );
  t.equal(seen.length, 5);
});

t.test('rows that a function returns have it too', async (t) => {
  t.strictSame(await read('/rpc/articles_of?writer=1&fields=id,reads&sort=-reads&limit=1'), [
    { id: 2, reads: '375.0' },
  ]);
  t.strictSame(await read('/rpc/most_read?fields=reads&filter[author][shout][_starts_with]=ADA&limit=1'), [
    { reads: '375.0' },
  ]);
  t.strictSame(await read('/rpc/article_titled?title=Zebra&fields=reads'), { reads: '1498.5' });
  t.strictSame(await read('/rpc/imagined?fields=reads&filter[reads][_gt]=4'), [{ reads: '4.5' }]);
  const made = await send('POST', '/rpc/write_article?fields=reads,author.shout', { title: 'New', writer: 2 });
  t.strictSame(made.json, { data: [{ reads: '0.0', author: { shout: 'ALAN TURING' } }] });
});

t.test('it is not written', async (t) => {
  for (const [method, path, body] of [
    ['POST', '/items/authors', { name: 'New', shout: 'NEW' }],
    ['PATCH', '/items/authors/1', { shout: 'NEW' }],
    ['PATCH', '/items/articles/1', { author: { id: 1, shout: 'NEW' } }],
  ] as const)
    t.match(await send(method, path, body), { status: 400, json: { errors: [{ message: /shout" is generated/ }] } });
  t.match(await send('PATCH', '/items/authors/1?fields=shout', { name: 'Ada Byron' }), {
    json: { data: { shout: 'ADA BYRON' } },
  });
  t.match(await send('PATCH', '/items/authors/1?fields=shout', { name: 'Ada Lovelace' }), { status: 200 });
  t.match(await send('POST', '/items/authors?fields=shout', { name: 'Made' }), { json: { data: { shout: 'MADE' } } });
  t.match(await read('/revisions?sort=-id&limit=1&fields=data'), [{ data: { name: 'Made', shout: undefined } }]);
});

t.test('permissions hold of it', async (t) => {
  const { token } = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'reader', [
      {
        permissions: [
          {
            collection: 'authors',
            action: 'read',
            permissions: { shout: { _starts_with: 'A' } },
            fields: ['id', 'shout'],
          },
          { collection: 'authors', action: 'read', permissions: { id: { _eq: 2 } }, fields: ['article_count'] },
          {
            collection: 'authors',
            action: 'update',
            permissions: { shout: { _starts_with: 'ADA' } },
            fields: ['name'],
          },
          { collection: 'articles', action: 'read', fields: ['id', 'author'] },
        ],
      },
    ]),
  );
  const answer = await get(service, '/items/authors?sort=id', { token });
  t.strictSame(answer.json, {
    data: [
      { id: 1, shout: 'ADA LOVELACE', article_count: null },
      { id: 2, shout: 'ALAN TURING', article_count: '4' },
    ],
  });
  for (const query of [
    'fields=reads',
    'filter[reads]=1',
    'sort=reads',
    'aggregate[max]=reads',
    'filter[author][name]=x',
  ])
    t.match(await get(service, `/items/articles?${query}`, { token }), { status: 403 }, query);
  const masked = await get(service, '/items/authors?filter[article_count][_gt]=0&fields=id', { token });
  t.strictSame(masked.json, { data: [{ id: 2 }] });
  t.match(await send('PATCH', '/items/authors/1?fields=shout', { name: 'Ada Lovelace' }, token), { status: 200 });
  t.match(await send('PATCH', '/items/authors/2?fields=shout', { name: 'Other' }, token), { status: 403 });
});

t.test('GraphQL, OpenAPI and types have it', async (t) => {
  const schema = buildSchema((await get(service, '/server/specs/graphql')).text);
  const fields = (name: string): Record<string, unknown> => (schema.getType(name) as GraphQLObjectType).getFields();
  t.match(String((fields('authors')['article_count'] as { type: unknown }).type), 'GraphQLBigInt');
  t.ok(fields('authors_filter')['shout']);
  t.notOk(fields('create_authors_input')['shout']);
  const query =
    '{ authors(filter: {shout: {_starts_with: "ADA"}}, sort: ["-shout"]) { shout article_count } articles_aggregated { max { reads } } }';
  t.match((await send('POST', '/graphql', { query })).json, {
    data: {
      authors: [{ shout: 'ADA LOVELACE', article_count: '3' }],
      articles_aggregated: [{ max: { reads: 3221225470.5 } }],
    },
  });
  t.match((await get(service, '/server/specs/oas')).json, {
    components: { schemas: { Items_authors: { properties: { shout: { type: ['string', 'null'], readOnly: true } } } } },
  });
  const { output } = await runCommand(['types'], { DATABASE_URL: databaseUrl });
  t.match(output, /interface Authors \{[^}]*shout: string \| null;/);
});

t.test('a function that is not there, or may write, leaves nothing to show', async (t) => {
  t.strictSame(await read('/items/articles/1?fields=id,changing'), { id: 1 });
  t.match(await get(service, '/items/articles?filter[changing]=1'), { status: 403 });
  await withSql(databaseUrl, (sql) => sql.unsafe('drop function reads(articles)'));
  await waitFor(async () => JSON.stringify(await read('/items/articles/1?fields=id,reads')) === '{"id":1}', 5_000);
  await withSql(databaseUrl, (sql) =>
    sql.unsafe("create function reads(articles) returns text language sql stable as $$ select 'now text' $$"),
  );
  await waitFor(
    async () => JSON.stringify(await read('/items/articles/1?fields=reads')) === '{"reads":"now text"}',
    5_000,
  );
});

t.test('rows of tables are no value of a field', async (t) => {
  await withSql(databaseUrl, (sql) =>
    sql.unsafe(`
      create type held_author as (n integer, author authors);
      create function writer(articles) returns authors language sql stable as $$ select a from authors a where a.id = $1.author $$;
      create function writers(articles) returns authors[] language sql stable as $$ select array_agg(a) from authors a $$;
      create function held(articles) returns held_author language sql stable as $$ select row(1, a)::held_author from authors a limit 1 $$;
      create function any_row(articles) returns record language sql stable as $$ select a from authors a limit 1 $$;
      create function plain(articles) returns text language sql stable as $$ select 'shown' $$;
      insert into service_fields (collection, field, special)
        select 'articles', unnest(array['writer', 'writers', 'held', 'any_row', 'plain']), 'computed'`),
  );
  const query = 'fields=id,writer,writers,held,any_row,plain';
  await waitFor(
    async () => JSON.stringify(await read(`/items/articles/1?${query}`)) === '{"id":1,"plain":"shown"}',
    5_000,
  );
  t.match(await get(service, '/items/articles?filter[writer][_nnull]=true'), { status: 403 });
});

t.test('changes of the schema treat it as a field without a column', async (t) => {
  t.match(await send('PATCH', '/fields/authors/shout', { meta: { note: 'Loud' } }), { status: 200 });
  const snapshot = (await read('/schema/snapshot')) as {
    fields: { collection: string; field: string; schema: unknown }[];
  };
  t.match(
    snapshot.fields.find(({ collection, field }) => collection === 'authors' && field === 'shout'),
    { schema: null },
  );
  t.match(await request(service, 'DELETE', '/fields/authors/shout'), { status: 204 });
  t.match(await get(service, '/items/authors?fields=shout'), { status: 403 });
});
