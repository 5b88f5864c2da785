/** One request, one statement: counted by PostgreSQL itself, with everything the service sends in the meantime. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  createLibrary,
  get,
  KNOWS_CALLERS,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';
import { cookieOf, granted, login, makeUser } from '../../support/users.js';

const server = await startDatabase({ settings: { 'pg_stat_statements.track': 'all' } });
const databaseUrl = await createLibrary(server, 'counted');
await withSql(databaseUrl, async (sql) => {
  await sql`insert into articles (id, title, author) select n, 'Article ' || n, n % 5 + 1 from generate_series(11, 60) n`;
  await sql`insert into comments (id, body, article, author)
    select n, 'Comment ' || n, n % 50 + 11, n % 5 + 1 from generate_series(10, 209) n`;
});
/** Counts from another database, so that counting is not counted. */
const counter = await StatementCounter.of(server, 'counted');

/** One thread: each has to learn once who asks, and that is counted here. */
const service = await startTestService({ databaseUrl, WORKERS: '1', ...KNOWS_CALLERS });
const NESTED =
  '/items/articles?fields=id,title,author.name,comments.id,comments.body,comments.author.id,comments.author.name&sort=id&limit=25&offset=10';

t.test('a nested read of 25 articles is one statement, the first time and every time', async (t) => {
  t.match(await get(service, '/items/tags'), { status: 200 });
  const cold = await count(() => get(service, NESTED));
  t.strictSame(cold.calls, [1], cold.said);
  const warm = await count(() => get(service, NESTED));
  t.strictSame(warm.calls, [1], warm.said);
  t.equal(warm.answer.text, cold.answer.text);
  const other = await count(() => get(service, NESTED.replace('offset=10', 'offset=20')));
  t.strictSame(other.calls, [1], other.said);
  const many = await count(() => Promise.all(Array.from({ length: 20 }, () => get(service, NESTED))));
  const sent = many.calls.reduce((sum, calls) => sum + calls, 0);
  t.ok(
    sent >= 1 && sent <= 20,
    `requests at the same time may share a statement, never need a second one: ${many.said}`,
  );

  const { data } = warm.answer.json as { data: Article[] };
  t.strictSame(
    data.map((article) => article.id),
    Array.from({ length: 25 }, (_, position) => position + 11),
  );
  t.strictSame(data, await readNaively());
});

t.test('a read by key is one statement', async (t) => {
  await get(service, '/items/articles/1?fields=title,author.name');
  for (const [key, name] of [
    [1, 'Ada Lovelace'],
    [3, 'Alan Turing'],
  ] as const) {
    const { calls, said, answer } = await count(() => get(service, `/items/articles/${key}?fields=title,author.name`));
    t.strictSame(calls, [1], said);
    t.match(answer.json, { data: { author: { name } } });
  }
  const missing = await count(() => get(service, '/items/articles/4040?fields=title,author.name'));
  t.strictSame([missing.answer.status, missing.calls], [403, [1]], 'also where there is none');
});

t.test('the caller costs a statement once, and again only after a change', async (t) => {
  const token = 'another-token-for-counting';
  await withSql(
    databaseUrl,
    (sql) => sql`insert into service_users (email, role, token)
      select 'counted@example.com', role, encode(sha256(convert_to(${token}, 'utf8')), 'hex') from service_users limit 1`,
  );
  await hear();
  const first = await count(() => get(service, '/items/tags', { token }));
  t.equal(first.answer.status, 200);
  t.strictSame(first.calls, [1, 1], first.said);
  t.match(first.said, /service_users/);
  const second = await count(() => get(service, '/items/tags', { token }));
  t.strictSame(second.calls, [1], second.said);
  t.notMatch(second.said, /service_/);

  await withSql(
    databaseUrl,
    (sql) => sql`update service_users set status = 'suspended' where email = 'counted@example.com'`,
  );
  await hear();
  const third = await count(() => get(service, '/items/tags', { token }));
  t.equal(third.answer.status, 401, 'a suspended user is out at once');
  t.strictSame(third.calls, [1], third.said);
});

t.test('a warm read is one statement, whatever carries the token', async (t) => {
  const { email, token } = await withSql(databaseUrl, (sql) => makeUser(sql, 'carried'));
  await hear();
  const { access_token } = granted(await login(service, email));
  const cookie = cookieOf(await login(service, email, { mode: 'session' }));
  const carriers: Readonly<Record<string, () => Promise<Answer>>> = {
    'a static token': () => get(service, '/items/tags', { token }),
    'a static token in the URL': () => get(service, `/items/tags?access_token=${token}`, { token: null }),
    'a signed token': () => get(service, '/items/tags', { token: access_token }),
    'a signed token in the URL': () => get(service, `/items/tags?access_token=${access_token}`, { token: null }),
    'a session cookie': () => get(service, '/items/tags', { token: null, headers: { cookie } }),
  };
  for (const [name, ask] of Object.entries(carriers)) {
    await ask();
    const { answer, calls, said } = await count(ask);
    t.strictSame([answer.status, calls], [200, [1]], `${name}: ${said}`);
    t.notMatch(said, /service_/, name);
  }
  const together = await count(() => Promise.all(Object.values(carriers).flatMap((ask) => [ask(), ask(), ask()])));
  t.notMatch(together.said, /service_/, 'also together');
  t.ok(together.calls.reduce((sum, calls) => sum + calls, 0) <= 15, together.said);
});

t.test('a restricted read is one statement, and so is a restricted write beside what is shown of it', async (t) => {
  const caller = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'restricted', [
      {
        permissions: [
          {
            collection: 'articles',
            action: 'read',
            permissions: { author: { name: { _nnull: true } } },
            fields: ['id', 'author'],
          },
          {
            collection: 'articles',
            action: 'update',
            permissions: { author: { name: { _nnull: true } } },
            fields: ['title'],
          },
        ],
      },
      {
        permissions: [
          { collection: 'articles', action: 'read', permissions: { status: 'published' } },
          { collection: 'authors', action: 'read' },
        ],
      },
    ]),
  );
  const read = (): Promise<Answer> =>
    get(service, '/items/articles?fields=*,author.name&meta=*', { token: caller.token });
  await waitFor(async () => (await read()).status === 200, 5_000);
  // Each thread reads who asks for itself: by now the others have, too.
  for (let turn = 0; turn < 20; turn++) await read();
  const { calls, said } = await count(read);
  t.strictSame(calls, [1], said);
  const body = '{"title":"x"}';
  const headers = { 'content-type': 'application/json' };
  const write = (): Promise<Answer> =>
    request(service, 'PATCH', '/items/articles/1?fields=id', { token: caller.token, body, headers });
  await write();
  await write();
  const written = await count(write);
  t.equal(written.answer.status, 200);
  const statements = written.said.split('\n').filter((each) => !/^(begin|commit)$/i.test(each));
  t.equal(statements.length, 2, written.said);
  // New users had everybody forgotten.
  t.equal((await get(service, '/items/tags')).status, 200);
});

t.test('a request that needs no data costs no statement', async (t) => {
  const paths = [
    '/server/ping',
    '/nothing',
    '/items/nothing',
    '/items/articles?fields=nothing',
    '/items/articles?limit=x',
  ];
  for (const path of paths) {
    const { calls, said } = await count(() => get(service, path));
    t.strictSame(calls, [], `${path}: ${said}`);
  }
  await get(service, '/items/articles', { token: null });
  const anonymous = await count(() => get(service, '/items/articles', { token: null }));
  t.strictSame([anonymous.answer.status, anonymous.calls], [403, []]);
  const misfit = await count(() => get(service, '/items/articles/one'));
  t.strictSame([misfit.answer.status, misfit.calls], [403, []], 'a key that cannot exist');
});

const TWENTY: Readonly<Record<string, string>> = {
  'everything of a list': '/items/articles',
  'three levels of wildcards': '/items/articles?fields=*.*.*&limit=10',
  'five relations deep': '/items/comments?fields=article.author.articles.comments.author.name&limit=5',
  'many to many': '/items/articles?fields=title,tags.tags_id.name,tags.sort',
  'many to any, scoped':
    '/items/articles?fields=blocks.item:block_text.text,blocks.item:block_image.*,blocks.collection',
  'many to any, unscoped': '/items/articles?fields=blocks.item.*',
  'keys of relations': '/items/articles?fields=author,comments,tags,blocks',
  'aliases with queries of their own':
    '/items/articles?alias[new]=comments&alias[old]=comments&fields=new.body,old.body&deep[new][_sort]=-created&deep[new][_limit]=1&deep[old][_limit]=1',
  'deep filter, sort, search and page':
    '/items/authors?fields=name,articles.title,articles.comments.body&deep={"articles":{"_filter":{"views":{"_gt":0}},"_sort":"-views","_page":1,"_limit":3,"comments":{"_search":"nice"}}}',
  'deep aggregates':
    '/items/authors?fields=name,articles&deep[articles][_aggregate][avg]=rating&deep[articles][_groupBy]=status',
  'filters over every kind of relation':
    '/items/articles?filter={"_or":[{"author":{"name":{"_contains":"a"}}},{"comments":{"_some":{"author":{"score":{"_gt":1}}}}},{"tags":{"_none":{"tags_id":{"name":"fun"}}}},{"blocks":{"item:block_text":{"text":{"_nnull":true}}}}]}',
  '$FOLLOW and variables':
    '/items/articles?filter[$FOLLOW(comments,article)][created][_lt]=$NOW(-1%20day)&filter[title][_neq]=$CURRENT_USER.role.name',
  'functions everywhere':
    '/items/articles?fields=year(published_at),count(comments),json(meta,lang)&filter[month(published_at)][_gt]=1&sort=-count(comments),json(meta,k)',
  'sorts along relations': '/items/articles?sort=author.name,-comments.created&fields=id',
  search: '/items/articles?search=hello&meta=*',
  counts: '/items/articles?meta=total_count,filter_count&filter[comments][author][name][_null]=false&limit=2&page=2',
  aggregates:
    '/items/articles?aggregate[count]=*&aggregate[sum]=views,rating&aggregate[countDistinct]=author&groupBy=status,year(published_at),author.name&sort=-count&having[count][_gt]=0',
  'a cursor': '/items/articles?cursor=&limit=3&sort=-rating,author.name&meta=*',
  'a stream with counts': '/items/articles?limit=-1&meta=*&fields=id,comments.author.name',
  'an export': '/items/articles?export=csv&fields=id,author.name,tags.tags_id.name',
  'one item with all its relations': '/items/articles/1?fields=*.*.*',
};

t.test('any request is one statement', async (t) => {
  for (const [name, path] of Object.entries(TWENTY)) {
    const first = await get(service, path);
    t.equal(first.status, 200, `${name}: ${first.text.slice(0, 200)}`);
    const { calls, said, answer } = await count(() => get(service, path));
    t.strictSame(calls, [1], `${name}: ${said}`);
    t.equal(answer.text, first.text);
  }
  const body = { keys: [1, 2, 3], query: { fields: ['*', 'author.*'], sort: ['-id'], meta: '*' } };
  const headers = { 'content-type': 'application/json' };
  const ask = (): Promise<Answer> =>
    request(service, 'SEARCH', '/items/articles', { headers, body: JSON.stringify(body) });
  await ask();
  const { calls, said, answer } = await count(ask);
  t.strictSame([answer.status, calls], [200, [1]], said);
});

t.test('a request that PostgreSQL refuses costs no second statement', async (t) => {
  const refused = [
    '/items/articles?sort=meta',
    '/items/articles?filter[published_at][_gt]=never',
    '/items/articles?aggregate[countDistinct]=meta',
    '/items/articles?sort=json(meta,k)&cursor=WyJ4IiwgIngiXQ',
  ];
  for (const path of refused) {
    t.equal((await get(service, path)).status, 400);
    const { calls, said, answer } = await count(() => get(service, path));
    t.equal(answer.status, 400);
    t.strictSame(calls, [], `${path}: ${said}`);
  }
});

const DASHBOARD = `{
  newest: articles(sort: ["-id"], limit: 5) { id title author { name articles(limit: 2) { title comments(limit: 1) { body } } } }
  authors(limit: 3) { name articles(limit: 2) { title tags { tags_id { name } } } }
  discussed: articles(filter: { comments_func: { count: { _gt: 1 } } }, limit: 3) { id comments(limit: 2) { body author { name } } }
  articles_aggregated(groupBy: ["status"]) { group count { id } avg { views } }
  comments_aggregated { countAll }
  shown: articles_by_id(id: 1) { blocks { item { __typename ... on block_text { text } ... on block_image { url } } } }
}`;

t.test('a GraphQL operation with six root fields is one statement', async (t) => {
  const ask = (query: string): Promise<Answer> =>
    request(service, 'POST', '/graphql', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query }),
    });
  t.match(await ask('{ tags { id } }'), { status: 200 });
  const cold = await count(() => ask(DASHBOARD));
  t.strictSame(cold.calls, [1], cold.said);
  const warm = await count(() => ask(DASHBOARD));
  t.strictSame(warm.calls, [1], warm.said);
  const { data, errors } = warm.answer.json as { data: Record<string, unknown[]>; errors?: unknown };
  t.equal(errors, undefined);
  t.match(data, {
    newest: [{ id: '60', author: { articles: [{ comments: Array }, {}] } }, {}, {}, {}, {}],
    discussed: [{ comments: [{ author: { name: String } }, {}] }, {}, {}],
    comments_aggregated: [{ countAll: 209 }],
    shown: { blocks: [{ item: { __typename: 'block_image' } }, { item: { text: 'Intro text' } }, {}] },
  });
  const missing = await count(() => ask('{ articles_by_id(id: 4040) { id } tags(limit: 1) { id } }'));
  t.strictSame(missing.calls, [1], 'also where an item is missing');
  const wrong = await count(() => ask('{ articles { nope } }'));
  t.strictSame(wrong.calls, [], 'what does not fit the schema is never sent');
  t.strictSame((await count(() => ask('{ __schema { types { name } } }'))).calls, []);
});

interface Article {
  readonly id: number;
  readonly title: string;
  readonly author: { readonly name: string } | null;
  readonly comments: readonly { id: number; body: string | null; author: { id: number; name: string } | null }[];
}

/** What the nested read has to show, put together from plain tables. */
async function readNaively(): Promise<Article[]> {
  return withSql(databaseUrl, async (sql) => {
    const authors = await sql<{ id: number; name: string }[]>`select id, name from authors`;
    const comments = await sql<{ id: number; body: string; article: number; author: number }[]>`
      select id, body, article, author from comments order by id`;
    const articles = await sql<{ id: number; title: string; author: number }[]>`
      select id, title, author from articles order by id limit 25 offset 10`;
    const authorOf = (id: number): { id: number; name: string } | undefined => authors.find((each) => each.id === id);
    return articles.map(({ id, title, author }) => ({
      id,
      title,
      author: { name: authorOf(author)?.name ?? '' },
      comments: comments
        .filter((comment) => comment.article === id)
        .map((comment) => ({
          id: comment.id,
          body: comment.body,
          author: { ...(authorOf(comment.author) ?? { id: 0, name: '' }) },
        })),
    }));
  });
}

/** Runs the work and answers how often each statement of the service's database ran meanwhile. */
async function count<Result extends Answer | readonly Answer[]>(
  work: () => Promise<Result>,
): Promise<{ answer: Result; calls: number[]; said: string }> {
  const { answer, counts } = await counter.count(work);
  return { answer, calls: counts.map(({ calls }) => calls), said: counts.map(({ query }) => query).join('\n') };
}

/** Until the service has heard of a change of users and has settled: it forgets whom it knew, and reads the policies again. */
async function hear(): Promise<void> {
  const ask = () => count(() => get(service, '/items/tags'));
  await waitFor(async () => /service_users/.test((await ask()).said), 10_000);
  await waitFor(async () => (await ask()).calls.length === 1, 10_000);
}
