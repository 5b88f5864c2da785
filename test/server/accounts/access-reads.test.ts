/** What callers who may not see everything get to see: rows, fields, counts, orders and errors at every level. */
import t from 'tap';
import { makeCaller, makePolicy, type Permission } from '../../support/callers.js';
import {
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'access_reads');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

const read = (collection: string, permissions: object | null, fields: readonly string[] = ['*']): Permission => ({
  collection,
  action: 'read',
  permissions,
  fields,
});

const editor = await makeCaller(sql, 'editor', [
  {
    permissions: [
      read('articles', { status: { _eq: 'published' } }, ['id', 'title', 'status', 'author', 'comments', 'tags']),
      read('authors', { id: { _in: [1, 2] } }, ['id', 'name', 'articles']),
      read('comments', { article: { status: { _eq: 'published' } } }),
    ],
  },
]);
/** Sees all articles; their views only where they are published, their body only where Ada wrote them. */
const mixed = await makeCaller(sql, 'mixed', [
  { permissions: [read('articles', null, ['id', 'title']), read('comments', null, ['id', 'body'])] },
  { permissions: [read('articles', { status: { _eq: 'published' } }, ['views', 'author', 'comments'])] },
  { permissions: [read('articles', { author: { name: { _eq: 'Ada Lovelace' } } }, ['body', 'rating'])] },
  { permissions: [read('authors', { score: { _gt: 8 } }, ['name']), read('authors', { id: 3 }, ['id', 'email'])] },
]);
/** Sees the list of comments of one article alone. */
const pager = await makeCaller(sql, 'pager', [
  {
    permissions: [
      read('comments', null, ['id', 'article']),
      read('articles', null, ['id']),
      read('articles', { id: { _eq: 2 } }, ['comments']),
    ],
  },
]);
const nobody = await makeCaller(sql, 'nobody', [{ permissions: [] }]);
const strict = await makeCaller(sql, 'strict', [
  {
    permissions: [
      read('articles', null, ['id', 'author', 'comments']),
      read('authors', null, ['id']),
      read('comments', null, ['id']),
    ],
  },
]);
const blocks = await makeCaller(sql, 'blocks', [
  {
    permissions: [
      read('articles', null, ['id', 'blocks']),
      read('articles_blocks', null, ['id', 'item', 'collection']),
      read('block_text', { id: 1 }, ['text']),
      read('block_quote', null, ['who']),
    ],
  },
]);
const owner = await makeCaller(sql, 'owner', [
  {
    permissions: [
      read('notes', { owner: { _eq: '$CURRENT_USER' } }),
      read('notes', { role: { _in: ['$CURRENT_ROLE'] } }),
      read('notes', { text: { _eq: '$CURRENT_USER.email' } }),
      read('notes', { text: { _eq: '$CURRENT_ROLE.name' } }),
      read('notes', { text: { _in: '$CURRENT_USER.role.policies.policy.name' } }),
    ],
  },
]);
await sql`create table notes (id serial primary key, owner uuid, role uuid, text text)`;
await sql`insert into notes (owner, role, text) values
  (null, null, 'nobody''s'), (${owner.user}, null, 'mine'), (null, ${owner.role}, 'ours'),
  (null, null, 'owner@example.com'), (null, null, 'owner'), (${editor.user}, ${editor.role}, 'theirs')`;
/** They have a role in common; it tells who has it, and letters tell whose they are, to some of them alone. */
const asker = await makeCaller(sql, 'asker', [{ permissions: [read('articles', null)] }]);
const placer = await makeCaller(sql, 'placer', [{ permissions: [read('articles_blocks', null, ['id', 'item'])] }]);
const lister = await makeCaller(sql, 'lister', [
  {
    permissions: [
      read('articles', null),
      read('letters', { text: { _neq: 'Second Post' } }, ['text', 'addressee']),
      read('letters', { text: { _eq: 'Beta' } }, ['secret']),
      read('service_roles', null, ['name', 'users']),
      read('service_users', { id: { _eq: '$CURRENT_USER' } }, ['first_name', 'letters']),
    ],
  },
]);
const finder = await makeCaller(sql, 'finder', [
  { permissions: [read('articles', null), read('letters', null, ['text'])] },
]);
await sql`create table letters (id serial primary key, addressee uuid references service_users (id), text text, secret text)`;
await sql`insert into service_relations (many_collection, many_field, one_collection, one_field) values
  ('letters', 'addressee', 'service_users', 'letters')`;
await sql`insert into service_fields (collection, field, special) values ('service_users', 'letters', 'o2m')`;
for (const { user, role } of [asker, lister, finder]) {
  await sql`update service_users set first_name = 'Hello World' where id = ${user}`;
  await sql`insert into service_users (first_name, role) values ('Zebra', ${role})`;
  await sql`insert into letters (addressee, text, secret) values
    (${user}, 'Hello World', 'Zebra'), (${user}, 'Second Post', 'Zebra'), (${user}, 'Beta', 'Second Post')`;
}
const service = await startTestService({ databaseUrl });

async function data(caller: { token: string } | null, path: string): Promise<unknown> {
  const answer = await get(service, encodeURI(path), { token: caller?.token ?? null });
  return answer.status === 200 ? (answer.json as { data: unknown }).data : answer.status;
}

t.test('without permissions nothing is there', async (t) => {
  for (const caller of [nobody, null]) {
    t.equal(await data(caller, '/items/articles'), 403);
    t.equal(await data(caller, '/items/articles/1'), 403);
    t.equal(await data(caller, '/items/nothing'), 403);
  }
});

t.test('rows and fields of a list', async (t) => {
  t.strictSame(await data(editor, '/items/articles?limit=2'), [
    { id: 1, title: 'Hello World', status: 'published', author: 1, comments: [1, 2, 3] },
    { id: 2, title: 'Second Post', status: 'published', author: 1, comments: [4, 5] },
  ]);
  t.equal(await data(editor, '/items/articles/3'), 403);
  t.strictSame(await data(editor, '/items/articles/1?fields=id'), { id: 1 });
  t.strictSame(await data(editor, '/items/articles?fields=id,tags.tags_id.name&limit=1'), [{ id: 1 }]);
  t.strictSame(await data(editor, '/items/authors?fields=id,articles.id'), [
    { id: 1, articles: [{ id: 1 }, { id: 2 }, { id: 8 }] },
    { id: 2, articles: [] },
  ]);
});

t.test('a relation leads only to rows that may be seen', async (t) => {
  t.strictSame(await data(editor, '/items/articles?fields=author.name&filter[id][_in]=8,10&sort=id'), [
    { author: { name: 'Ada Lovelace' } },
    { author: null },
  ]);
  t.strictSame(await data(editor, '/items/articles?fields=id&filter={"author":{"name":{"_null":true}}}&sort=id'), [
    { id: 6 },
    { id: 10 },
  ]);
  t.strictSame(await data(editor, '/items/authors?fields=count(articles)&sort=count(articles)'), [
    { articles_count: 0 },
    { articles_count: 3 },
  ]);
});

t.test('fields that some rules grant are null where none of these rules holds', async (t) => {
  t.strictSame(await data(mixed, '/items/articles?fields=*&filter[id][_in]=1,3,6&sort=id'), [
    { id: 1, title: 'Hello World', body: 'The first body', views: 100, rating: '4.50', author: 1, comments: [1, 2, 3] },
    { id: 3, title: 'hello lower', body: null, views: null, rating: null, author: null, comments: null },
    { id: 6, title: 'Zebra', body: null, views: 999, rating: null, author: null, comments: [6, 7] },
  ]);
  t.strictSame(await data(mixed, '/items/authors?fields=*&sort=id'), [
    { id: 3, name: null, email: 'grace@example.com' },
    { id: null, name: 'Ada Lovelace', email: null },
    { id: null, name: 'Alan Turing', email: null },
  ]);
});

t.test('masked values cannot be probed', async (t) => {
  t.strictSame(await data(mixed, '/items/articles?fields=id&filter[views][_eq]=2147483647'), []);
  t.strictSame(await data(mixed, '/items/articles?fields=id&filter[views][_null]=true&sort=id'), [
    { id: 3 },
    { id: 4 },
    { id: 5 },
    { id: 7 },
    { id: 9 },
  ]);
  t.strictSame(await data(mixed, '/items/articles?aggregate[max]=views&aggregate[count]=views,*'), [
    { max: { views: 999 }, count: { views: 5, '*': 10 } },
  ]);
  t.strictSame(await data(mixed, '/items/articles?fields=id&search=Percent'), []);
  t.strictSame(await data(mixed, '/items/articles?fields=id&sort=-views&limit=6'), [
    { id: 3 },
    { id: 4 },
    { id: 5 },
    { id: 7 },
    { id: 9 },
    { id: 6 },
  ]);
  t.strictSame(await data(mixed, '/items/articles?groupBy=body&aggregate[count]=*&sort=body'), [
    { body: 'Another body', count: 1 },
    { body: 'The first body', count: 1 },
    { body: 'b', count: 1 },
    { body: null, count: 7 },
  ]);
  t.strictSame(await data(mixed, '/items/articles?fields=id&filter={"comments":{"_none":{"id":{"_gt":4}}}}&sort=id'), [
    { id: 1 },
    { id: 10 },
  ]);
  t.strictSame(await data(mixed, '/items/articles?fields=id,author.name&filter[author][name][_nnull]=true&sort=id'), [
    { id: 1, author: { name: 'Ada Lovelace' } },
    { id: 2, author: { name: 'Ada Lovelace' } },
    { id: 8, author: { name: 'Ada Lovelace' } },
  ]);
});

t.test('a caller who may not see the key of an item does not find out by trying', async (t) => {
  const headers = { 'content-type': 'application/json' };
  const search = async ({ token }: { token: string }, path: string, keys: readonly unknown[]) =>
    (await request(service, 'SEARCH', path, { token, headers, body: JSON.stringify({ keys }) })).text;
  for (const fields of ['text', '*']) {
    const [known, missing] = [`/items/letters/1?fields=${fields}`, `/items/letters/999?fields=${fields}`];
    t.equal((await get(service, known, finder)).status, 403);
    t.equal((await get(service, known, finder)).text, (await get(service, missing, finder)).text);
  }
  t.equal(await search(finder, '/items/letters', [1]), await search(finder, '/items/letters', [999]));
  const [present, absent] = ['/items/authors/1?fields=name', '/items/authors/999?fields=name'];
  t.equal((await get(service, present, mixed)).text, (await get(service, absent, mixed)).text, 'in some rows only');
  t.equal(await search(mixed, '/items/authors', [1, 2]), '{"data":[]}');
  t.strictSame(await data(mixed, '/items/authors/3?fields=email'), { email: 'grace@example.com' });
  t.strictSame(await data(lister, '/users/me?fields=first_name'), { first_name: 'Hello World' }, 'but oneself');
  t.strictSame(await data(lister, '/roles/me?fields=name'), [{ name: 'lister' }]);
  const me = await request(service, 'POST', '/graphql/system', {
    token: lister.token,
    headers,
    body: JSON.stringify({ query: '{ users_me { first_name } }' }),
  });
  t.strictSame(me.json, { data: { users_me: { first_name: 'Hello World' } } });
});

t.test('concealed JSON cannot be probed', async (t) => {
  const clerk = await makeCaller(sql, 'clerk', [
    { permissions: [read('service_users', null), read('service_roles', null)] },
  ]);
  await sql`update service_users set auth_data = '{"refreshToken": "sesame", "list": [1, 2]}' where id = ${clerk.user}`;
  await waitFor(async () => (await data(clerk, '/users?fields=id')) !== 403, 5_000);
  t.strictSame(await data(clerk, `/users/${clerk.user}?fields=auth_data`), { auth_data: '**********' });
  const operators = [
    '{"refreshToken":{"_starts_with":"ses"}}',
    '{"refreshToken":{"_null":true}}',
    '{"list[0]":{"_eq":1}}',
  ];
  const places = [
    ...operators.map((operator) => `filter={"auth_data":{"_json":${operator}}}`),
    ...operators.map((operator) => `filter={"role":{"users":{"auth_data":{"_json":${operator}}}}}`),
    'filter[count(auth_data)][_gt]=1',
    'filter[json(auth_data,refreshToken)][_eq]=sesame',
    'fields=id,count(auth_data)',
    'fields=id,json(auth_data,refreshToken)',
    'sort=count(auth_data)',
    'aggregate[max]=count(auth_data)',
    'groupBy=count(auth_data)&aggregate[count]=*',
  ];
  for (const place of places) t.equal(await data(clerk, `/users?${place}`), 400, place);
  t.strictSame(await data(clerk, '/users?fields=first_name&filter[auth_data][_nnull]=true'), [{ first_name: 'clerk' }]);
  t.strictSame(await data(clerk, '/users?fields=id&search=sesame'), []);
});

t.test('hidden objects look like objects that do not exist, wherever they are named', async (t) => {
  const places = [
    'fields=X',
    'fields=id,author.X',
    'fields=id,comments.X',
    'filter[X][_eq]=1',
    'filter[author][X][_eq]=1',
    'filter={"_or":[{"id":1},{"X":{"_null":true}}]}',
    'filter={"comments":{"_some":{"X":1}}}',
    'sort=X',
    'sort=-author.X',
    'aggregate[max]=X',
    'groupBy=X&aggregate[count]=*',
    'aggregate[count]=*&having[max][X][_gt]=1',
    'alias[y]=X&fields=y',
    'fields=year(X)',
    'fields=id,comments.id&deep={"comments":{"_filter":{"X":1}}}',
    'fields=id,comments.id&deep={"comments":{"_sort":"X"}}',
    'fields=id,comments&deep={"comments":{"_aggregate":{"max":"X"}}}',
    'filter={"$FOLLOW(X,article)":{"id":1}}',
    'sort=X&cursor=&limit=2',
    'filter[X][_eq]=1&meta=*',
  ];
  for (const place of places) {
    const hidden = place.includes('comments')
      ? 'body'
      : place.includes('author.') || place.includes('[author]')
        ? 'born'
        : place.includes('FOLLOW')
          ? 'articles_tags'
          : place.includes('year')
            ? 'published_at'
            : 'views';
    const [known, unknown] = await Promise.all(
      [hidden, 'nonsense'].map((name) =>
        get(service, encodeURI(`/items/articles?${place.replace('X', name)}`), { token: strict.token }),
      ),
    );
    t.equal(known?.status, 403, place);
    t.equal(known?.text.replaceAll(hidden, '?'), unknown?.text.replaceAll('nonsense', '?'), place);
  }
});

t.test('counts are of the rows that may be seen', async (t) => {
  const answer = await get(service, '/items/articles?fields=id&limit=1&meta=*', { token: editor.token });
  t.strictSame(answer.json, { meta: { total_count: 5, filter_count: 5 }, data: [{ id: 1 }] });
  t.strictSame(await data(editor, '/items/articles?aggregate[count]=*'), [{ count: 5 }]);
});

t.test('cursors, streams and exports', async (t) => {
  const page = await get(service, '/items/articles?fields=id&sort=-title&limit=2&cursor=', { token: editor.token });
  const { meta, data: items } = page.json as { meta: { next_cursor: string }; data: unknown };
  t.strictSame(items, [{ id: 6 }, { id: 2 }]);
  t.strictSame(await data(editor, `/items/articles?fields=id&sort=-title&limit=2&cursor=${meta.next_cursor}`), [
    { id: 1 },
    { id: 10 },
  ]);
  // The key that a cursor holds may not be seen.
  t.equal(await data(mixed, '/items/authors?fields=name&cursor=&limit=1'), 403);
  t.strictSame(await data(editor, '/items/articles?fields=id&limit=-1&meta=total_count'), [
    { id: 1 },
    { id: 2 },
    { id: 6 },
    { id: 8 },
    { id: 10 },
  ]);
  const file = await get(service, '/items/articles?export=csv&fields=id,title&limit=1', { token: editor.token });
  t.equal(file.text.replaceAll('\r', ''), 'id,title\n1,Hello World\n');
  const search = await request(service, 'SEARCH', '/items/articles', {
    token: editor.token,
    headers: { 'content-type': 'application/json' },
    body: '{"keys":[1,3],"query":{"fields":["id"]}}',
  });
  t.strictSame(search.json, { data: [{ id: 1 }] });
});

t.test('pages behind a cursor have all rows, also where a count is hidden in some', async (t) => {
  const path = '/items/comments?fields=id&sort=-article.count(comments)';
  const all = (await data(pager, `${path}&limit=100`)) as object[];
  const found: object[] = [];
  for (let cursor: string | null = ''; cursor !== null && found.length < 100; ) {
    const page = await get(service, `${path}&limit=2&cursor=${cursor}`, { token: pager.token });
    const { data: items, meta } = page.json as { data: object[]; meta: { next_cursor: string | null } };
    found.push(...items);
    cursor = meta.next_cursor;
  }
  t.strictSame(found, all);
});

t.test('many-to-any leads to readable collections alone', async (t) => {
  t.strictSame(await data(blocks, '/items/articles/1?fields=blocks.item.*&deep[blocks][_sort]=id'), {
    blocks: [{ item: { text: 'Intro text' } }, { item: null }, { item: { who: 'Hamlet' } }],
  });
  const named = 'blocks.item:block_text.text,blocks.item:block_image.url,blocks.item:block_quote.who';
  t.strictSame(
    await data(blocks, `/items/articles/1?fields=${named}&deep[blocks][_sort]=id`),
    { blocks: [{ item: { text: 'Intro text' } }, { item: null }, { item: { who: 'Hamlet' } }] },
    'a named collection that may not be read is as one that is not named',
  );
  t.equal(
    await data(blocks, '/items/articles/1?fields=blocks.item:authors.name'),
    403,
    'no collection of the relation',
  );
  t.equal(await data(blocks, '/items/articles_blocks?filter[item:block_image][url][_nnull]=true'), 403);
});

t.test('a relation that leads nowhere is the key that the request names', async (t) => {
  const one = (fields: string): Promise<unknown> => data(asker, `/items/articles/1?fields=${fields}`);
  const { author } = (await one('author')) as { author: unknown };
  t.ok(author);
  for (const fields of ['id,author,author.*', 'author.*,id,author', 'id,author,author.name'])
    t.strictSame(await one(fields), { id: 1, author }, fields);
  t.match(await one('*,author.*'), { id: 1, author });
  t.match(await one('*,*.*'), { id: 1, author });
  t.strictSame(await one('id,author.*'), { id: 1 }, 'without its own name it is left out');
  t.strictSame(await data(asker, '/items/articles/1?alias[writer]=author&fields=id,writer,writer.name'), {
    id: 1,
    writer: author,
  });
  const places = await data(placer, '/items/articles_blocks?fields=item,item.*&sort=id&limit=1');
  t.strictSame(places, [{ item: '1' }], 'many-to-any');
  t.strictSame(await data(editor, '/items/articles/1?fields=author,author.id'), { author: { id: author } });
});

t.test('of their own account and roles callers get what they may see', async (t) => {
  const { user, role } = lister;
  const name = 'Hello World';
  t.strictSame(await data(lister, '/users/me?fields=first_name'), { first_name: name });
  t.match(await data(lister, '/users/me?fields=*,policies.policy.name'), { first_name: name });
  t.strictSame(
    await data(
      lister,
      '/users/me?fields=first_name,email,letters.text,letters.nothing,role.name&deep[letters][_limit]=1',
    ),
    {
      first_name: name,
      letters: [{ text: name }],
    },
  );
  t.strictSame(await data(lister, '/users/me?fields=email,policies'), { id: user }, 'nothing of it');
  t.strictSame(await data(lister, '/users/me?fields=email&filter[x]=1'), { id: user });
  t.strictSame(await data(asker, '/users/me?fields=first_name'), { id: asker.user });
  t.strictSame(await data(lister, '/roles/me?fields=name,description,users.email,users.first_name'), [
    { name: 'lister', users: [{ first_name: name }] },
  ]);
  t.strictSame(await data(asker, '/roles/me?fields=name'), [{ id: asker.role }]);
  t.equal(await data(lister, `/users/${user}?fields=first_name,email`), 403);
  t.equal(await data(lister, `/roles/${role}?fields=name,email`), 403, 'other reads are refused');
});

t.test('variables of the caller in rules', async (t) => {
  t.strictSame(
    await data(owner, '/items/notes?fields=text&sort=id'),
    ['mine', 'ours', 'owner@example.com', 'owner'].map((text) => ({ text })),
  );
});

t.test('of the caller a request names what the caller may see, and their own row', async (t) => {
  const titles = async (caller: { token: string }, variable: string): Promise<unknown> => {
    const found = await data(caller, `/items/articles?fields=title&sort=id&filter[title][_in]=${variable}`);
    const query = `{ articles(sort: "id", filter: {title: {_in: "${variable}"}}) { title } }`;
    const body = JSON.stringify({ query });
    const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
    const { json } = await request(service, 'POST', '/graphql', { token: caller.token, headers, body });
    const same = (json as { data?: { articles?: unknown } }).data?.articles ?? 403;
    t.strictSame(same, found, `${variable} in GraphQL`);
    return Array.isArray(found) ? found.map(({ title }) => title) : found;
  };
  const refused = ['role.users.first_name', 'role.name', 'letters.text', 'letters.secret', 'policies.policy.name'];
  for (const path of refused) t.equal(await titles(asker, `$CURRENT_USER.${path}`), 403, path);
  t.equal(await titles(asker, '$CURRENT_ROLE.users.first_name'), 403);
  t.equal(await titles(asker, '$CURRENT_ROLES.users.first_name'), 403);
  t.equal(await titles(asker, '$CURRENT_POLICIES.permissions.collection'), 403);
  t.strictSame(await titles(asker, '$CURRENT_USER.first_name'), ['Hello World']);
  t.strictSame(await titles(asker, '$CURRENT_ROLE.name'), []);
  t.strictSame(await titles(asker, '$CURRENT_POLICIES.name'), []);
  t.equal(await titles(asker, '$CURRENT_USER.token'), 403);

  t.strictSame(await titles(lister, '$CURRENT_USER.first_name'), ['Hello World']);
  t.strictSame(await titles(lister, '$CURRENT_USER.role.name'), []);
  t.strictSame(await titles(lister, '$CURRENT_USER.role.users.first_name'), ['Hello World'], 'rows are hidden');
  t.strictSame(await titles(lister, '$CURRENT_ROLE.users.first_name'), ['Hello World']);
  t.equal(await titles(lister, '$CURRENT_USER.role.users.email'), 403, 'a field is hidden');
  t.strictSame(await titles(lister, '$CURRENT_USER.letters.text'), ['Hello World', 'Beta']);
  t.strictSame(await titles(lister, '$CURRENT_USER.letters.secret'), ['Second Post'], 'values are masked');
  t.strictSame(await titles(lister, '$CURRENT_USER.letters.addressee.letters.text'), ['Hello World', 'Beta']);
  t.equal(await titles(lister, '$CURRENT_USER.letters.id'), 403);

  t.equal(await titles(finder, '$CURRENT_USER.letters.text'), 403, 'whose letters they are is hidden');
});

t.test('the public sees what its policies say', async (t) => {
  await makePolicy(sql, 'open', { permissions: [read('tags', { id: { _lt: 3 } }, ['name'])] });
  await waitFor(async () => (await data(null, '/items/tags')) !== 403, 5_000);
  t.strictSame(await data(null, '/items/tags'), [{ name: 'news' }, { name: 'tech' }]);
  t.equal(await data(null, '/items/articles'), 403);
  // It is no right of those who have a role.
  t.equal(await data(nobody, '/items/tags'), 403);
});
