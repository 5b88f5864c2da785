/** Functions that return items are read as their collection is: the same parameters, the same permissions, one statement. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  createLibrary,
  get,
  KNOWS_CALLERS,
  loadSchemas,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'returned');
await loadSchemas(databaseUrl, ['functions.sql']);
const counter = await StatementCounter.of(server, 'returned');
const service = await startTestService({ databaseUrl, WORKERS: '1', ...KNOWS_CALLERS });

function call(path: string, body: unknown, options: RequestOptions = {}): Promise<Answer> {
  const headers = { 'content-type': 'application/json', ...options.headers };
  return request(service, 'POST', `/rpc/${path}`, { ...options, headers, body: JSON.stringify(body) });
}

function idsOf(answer: Answer): number[] {
  const { data } = answer.json as { data?: { id: number }[] };
  return data?.map(({ id }) => id) ?? [];
}

const QUERIES: readonly string[] = [
  'fields=id,title,rating&sort=-views',
  'fields=*,author.name,comments.body,tags.tags_id.name&sort=id',
  'fields=id,comments.id&deep[comments][_sort]=-id&deep[comments][_limit]=1&sort=id',
  'fields=id&filter[status]=published&sort=-id',
  'fields=id&filter[author][name][_starts_with]=Ada&sort=id',
  'fields=id&filter[comments][body][_contains]=e&sort=id',
  'fields=id&sort=author.name,-id&limit=2&offset=1',
  'fields=id&sort=title&limit=1&page=2',
  'search=post&fields=id&sort=id',
  'aggregate[count]=*&aggregate[sum]=views&groupBy=status&sort=status',
  'fields=id&sort=id&limit=1&meta=*',
  'fields=id&sort=id&limit=-1',
  'fields=id&sort=id&export=csv',
  'fields=year(published_at)&sort=id',
  'alias[writer]=author&fields=writer.name&sort=id',
];

t.test('the parameters of a query mean what they mean for the collection', async (t) => {
  for (const query of QUERIES) {
    const narrowed = query.replace('filter[', 'filter[_and][1][');
    const expected = await get(service, `/items/articles?${narrowed}&filter[_and][0][author]=1`);
    const answer = await get(service, `/rpc/articles_of?writer=1&${query}`);
    t.equal(answer.status, 200, `${query}: ${answer.text}`);
    t.equal(withoutCounts(answer.text), withoutCounts(expected.text), query);
    const posted = await call(`articles_of?${query}`, { writer: 1 });
    t.equal(posted.text, answer.text, query);
  }
  t.match((await get(service, '/rpc/articles_of?writer=1&meta=*&filter[views][_gt]=100')).json, {
    meta: { total_count: 3, filter_count: 1 },
  });
});

/** The total of a collection is not that of a function. */
function withoutCounts(text: string): string {
  return text.replace(/"total_count":\d+/, '');
}

t.test('without a sort the rows keep the order of the function, with joins too', async (t) => {
  const order = [9, 5, 6, 2, 1, 8, 4, 10, 3, 7];
  t.strictSame(idsOf(await get(service, '/rpc/most_read?at_least=-5&fields=id')), order);
  t.strictSame(
    idsOf(await get(service, '/rpc/most_read?at_least=-5&fields=id,author.name,comments.body&limit=4')),
    order.slice(0, 4),
  );
  const joined = await get(service, '/rpc/most_read?at_least=-5&fields=id&filter[author][name][_nnull]=true');
  t.strictSame(
    idsOf(joined),
    order.filter((id) => id !== 6),
  );
  t.strictSame(idsOf(await get(service, '/rpc/most_read?at_least=-5&fields=id&limit=2&offset=1')), [5, 6]);
});

t.test('they keep it below rules and subtrees that are joined in any order', async (t) => {
  const { token } = await withSql(databaseUrl, async (sql) => {
    for (const way of ['hashjoin', 'nestloop', 'memoize'])
      await sql`alter database ${sql(`${server.prefix}returned`)} set ${sql(`enable_${way}`)} = off`;
    return makeCaller(sql, 'ordered', [
      {
        permissions: [
          { collection: 'most_read', action: 'execute' },
          { collection: 'articles', action: 'read', permissions: { author: { name: { _nnull: true } } } },
          { collection: 'authors', action: 'read' },
        ],
      },
    ]);
  });
  const other = await startTestService({ databaseUrl, WORKERS: '1' });
  const order = [9, 5, 2, 1, 8, 4, 10, 3, 7];
  t.strictSame(idsOf(await get(other, '/rpc/most_read?at_least=-5&fields=id', { token })), order);
  for (const query of [
    'fields=id,author.articles&filter[author][_nnull]=true',
    'fields=id&filter[comments][_some][id][_gt]=0',
  ]) {
    const path = `/rpc/most_read?at_least=-5&${query}`;
    const ids = idsOf(await get(other, path));
    t.ok(ids.length > 2, query);
    t.strictSame(
      ids,
      [9, 5, 6, 2, 1, 8, 4, 10, 3, 7].filter((id) => ids.includes(id)),
      query,
    );
  }
  await other.stop();
  await withSql(databaseUrl, (sql) => sql`alter database ${sql(`${server.prefix}returned`)} reset all`);
});

t.test('a cursor goes through the rows of a function', async (t) => {
  const seen: number[] = [];
  let cursor = '';
  for (let page = 0; page < 5; page++) {
    const answer = await get(service, `/rpc/most_read?at_least=-5&fields=id&limit=4&sort=-views&cursor=${cursor}`);
    seen.push(...idsOf(answer));
    const { meta } = answer.json as { meta: { next_cursor: string | null } };
    if (meta.next_cursor === null) break;
    cursor = meta.next_cursor;
  }
  t.strictSame(seen, [9, 5, 6, 2, 1, 8, 4, 10, 3, 7]);
});

t.test('rows that are in no table are items too', async (t) => {
  const answer = await get(service, '/rpc/imagined?fields=id,title,author.name&sort=-id&filter[views][_gt]=1');
  t.strictSame(answer.json, {
    data: [
      { id: 1003, title: 'Imagined 3', author: { name: 'Ada Lovelace' } },
      { id: 1002, title: 'Imagined 2', author: { name: 'Ada Lovelace' } },
    ],
  });
});

t.test('one item, or null', async (t) => {
  t.strictSame((await get(service, '/rpc/article_titled?title=Zebra&fields=id,comments.id')).json, {
    data: { id: 6, comments: [{ id: 6 }, { id: 7 }] },
  });
  t.strictSame((await get(service, '/rpc/article_titled?title=None')).json, { data: null });
});

t.test('wrong parameters are refused as for the collection', async (t) => {
  for (const [query, status] of [
    ['fields=nothing', 403],
    ['filter[nothing]=1', 403],
    ['sort=nothing', 403],
    ['filter[views]=x', 400],
    ['limit=x', 400],
  ] as const)
    t.match(await get(service, `/rpc/articles_of?writer=1&${query}`), { status }, query);
  t.match(await call('write_article?export=csv', { title: 'x', writer: 1 }), { status: 400 });
});

t.test('one statement answers, the first time and every time', async (t) => {
  const path =
    '/rpc/articles_of?writer=1&fields=id,author.name,comments.author.name&filter[views][_gt]=1&sort=-id&meta=filter_count';
  await get(service, '/items/tags');
  for (const round of ['cold', 'warm']) {
    const { answer, counts } = await counter.count(() => get(service, path));
    t.equal(answer.status, 200);
    t.strictSame(
      counts.map(({ calls }) => calls),
      [1],
      round,
    );
  }
});

t.test('a volatile function and the read of what it wrote are one transaction', async (t) => {
  const answer = await call('write_article?fields=title,status,author.name,comments.body', {
    title: 'New',
    writer: 2,
    comment: 'Mine',
  });
  t.strictSame(answer.json, {
    data: [{ title: 'New', status: 'draft', author: { name: 'Alan Turing' }, comments: [{ body: 'Mine' }] }],
  });
  t.strictSame((await call('publish?fields=id,status', { article: 3 })).json, { data: { id: 3, status: 'published' } });
  t.strictSame((await call('publish', { article: 99_999 })).json, { data: null });
  t.strictSame((await call('remove_drafts?fields=id,title,author.name', {})).json, {
    data: [{ id: 4, title: '100% Sure_thing', author: { name: 'Alan Turing' } }],
  });
  t.match(await get(service, '/items/articles/4'), { status: 403 });
  t.match(await call('write_article?filter[views]=x', { title: 'Undone', writer: 1 }), { status: 400 });
  t.match((await get(service, '/items/articles?filter[title]=Undone')).json, { data: [] });
});

t.test('the permissions of the collection hold of what a function returns', async (t) => {
  const { token } = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'reader', [
      {
        permissions: [
          ...['articles_of', 'most_read', 'article_titled', 'publish', 'write_article'].map((collection) => ({
            collection,
            action: 'execute' as const,
          })),
          {
            collection: 'articles',
            action: 'read',
            permissions: { status: { _eq: 'published' } },
            fields: ['id', 'title', 'author'],
          },
          { collection: 'articles', action: 'read', permissions: { id: { _eq: 1 } }, fields: ['views'] },
        ],
      },
    ]),
  );
  const read = (path: string): Promise<Answer> => get(service, `/rpc/${path}`, { token });
  t.strictSame((await read('articles_of?writer=1&sort=id')).json, {
    data: [
      { id: 1, title: 'Hello World', views: 100, author: 1 },
      { id: 2, title: 'Second Post', views: null, author: 1 },
      { id: 8, title: 'Beta', views: null, author: 1 },
    ],
  });
  t.strictSame(idsOf(await read('most_read?filter[views][_gt]=0&fields=id')), [1], 'masked values match nothing');
  for (const query of [
    'filter[status]=draft',
    'fields=status',
    'sort=status',
    'aggregate[count]=slug',
    'filter[author][name]=x',
  ])
    t.match(await read(`articles_of?writer=1&${query}`), { status: 403 }, query);
  t.strictSame((await read('most_read?aggregate[count]=*')).json, { data: [{ count: 6 }] });
  t.match((await read('most_read?meta=*&limit=1')).json, { meta: { total_count: 6, filter_count: 6 } });
  t.strictSame((await read('article_titled?title=Gamma')).json, { data: null });
  const written = await call('write_article', { title: 'Unseen', writer: 1 }, { token });
  t.strictSame({ status: written.status, json: written.json }, { status: 200, json: { data: [] } });
  t.match(await call('publish?fields=id', { article: 9 }, { token }), { json: { data: { id: 9 } } });
});

t.test('a caller who may call a function and not read its collection', async (t) => {
  await withSql(databaseUrl, (sql) =>
    sql.unsafe(`create function write_articles(titles text[]) returns setof articles language sql volatile
      as $$ insert into articles (title, author) select each, 1 from unnest(titles) each returning * $$`),
  );
  const exposed = { body: JSON.stringify({ name: 'write_articles' }), headers: { 'content-type': 'application/json' } };
  t.match(await request(service, 'POST', '/functions', exposed), { status: 200 });
  await waitFor(async () => (await get(service, '/rpc/write_articles')).status !== 403, 10_000);
  const { token } = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'caller', [
      {
        permissions: [
          { collection: 'most_read', action: 'execute' },
          { collection: 'write_article', action: 'execute' },
          { collection: 'write_articles', action: 'execute' },
        ],
      },
    ]),
  );
  t.match(await get(service, '/rpc/most_read', { token }), { status: 403 });
  t.match(await call('write_article', { title: 'Blind', writer: 1 }, { token }), { status: 200, json: { data: null } });
  t.match((await get(service, '/items/articles?filter[title]=Blind&fields=title')).json, {
    data: [{ title: 'Blind' }],
  });
  t.match(await call('write_articles', { titles: ['Two', 'Two'] }, { token }), { status: 200, json: { data: null } });
  t.match((await get(service, '/items/articles?filter[title]=Two&fields=title')).json, {
    data: [{ title: 'Two' }, { title: 'Two' }],
  });
});
