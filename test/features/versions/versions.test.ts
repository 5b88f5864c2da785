/** Content versions: saved beside an item, read in its place with `?version=`, compared and promoted, with the rights of who asks. */
import {
  compareContentVersion,
  createContentVersion,
  createContentVersions,
  createDirectus,
  deleteContentVersion,
  deleteContentVersions,
  promoteContentVersion,
  readContentVersion,
  readContentVersions,
  readItem,
  rest,
  saveToContentVersion,
  staticToken,
  updateContentVersion,
  updateContentVersions,
  updateContentVersionsBatch,
} from '@directus/sdk';
import t from 'tap';
import { inForce, makeCaller, type Permission } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { failure, post } from '../../support/users.js';

const server = await startDatabase();
const url = await createLibrary(server, 'versions');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql`update service_collections set versioning = true where collection in ('articles', 'authors')`;
await sql`create table holders (id serial primary key, version uuid references service_versions)`;
const service = await startTestService({ databaseUrl: url });
const admin = createDirectus<Record<string, object[]>>(service.url).with(rest()).with(staticToken(ADMIN_TOKEN));

interface Version {
  readonly id: string;
  readonly hash: string;
  readonly delta: Record<string, unknown> | null;
}

interface Comparison {
  readonly outdated: boolean;
  readonly mainHash: string;
  readonly current: Record<string, unknown>;
  readonly main: Record<string, unknown>;
}

const as = (token: string) => ({ token });

async function makeVersion(
  item: string,
  key: string,
  delta: object | null = null,
  collection = 'articles',
): Promise<string> {
  const answer = await post(service, '/versions', { key, collection, item }, as(ADMIN_TOKEN));
  if (answer.status !== 200) throw new Error(answer.text);
  const { id } = (answer.json as { data: Version }).data;
  if (delta) {
    const saved = await post(service, `/versions/${id}/save`, delta, as(ADMIN_TOKEN));
    if (saved.status !== 200) throw new Error(saved.text);
  }
  return id;
}

async function dataOf(path: string, token = ADMIN_TOKEN): Promise<unknown> {
  const answer = await get(service, path, { token });
  if (answer.status !== 200) throw new Error(`${answer.status} ${answer.text}`);
  return (answer.json as { data: unknown }).data;
}

async function compared(id: string, token = ADMIN_TOKEN): Promise<Comparison> {
  return (await dataOf(`/versions/${id}/compare`, token)) as Comparison;
}

t.test('the SDK makes, saves, reads, compares, promotes and deletes versions', async (t) => {
  const made = (await admin.request(
    createContentVersion({ key: 'draft', name: 'Draft', collection: 'articles', item: '1' } as never),
  )) as unknown as Version;
  t.match(made, { id: /^[0-9a-f-]{36}$/, key: 'draft', delta: null, hash: /^[0-9a-f]{64}$/ });
  const saved = await admin.request(saveToContentVersion(made.id, { title: 'Hello draft', views: 5 } as never));
  t.match(saved, { id: 1, title: 'Hello draft', views: 5, body: 'The first body' }, 'the item with its changes');
  await admin.request(saveToContentVersion(made.id, { views: 6 } as never));
  const shown = await admin.request(
    readItem('articles', 1, { version: 'draft', fields: ['id', 'title', 'views', 'body'] } as never),
  );
  t.strictSame(shown, { id: 1, title: 'Hello draft', views: 6, body: 'The first body' }, 'saves add up');
  t.match(
    await dataOf('/items/articles/1?fields=title,views'),
    { title: 'Hello World', views: 100 },
    'the item is as it was',
  );
  const difference = (await admin.request(compareContentVersion(made.id))) as unknown as Comparison;
  t.match(difference, { outdated: false, mainHash: made.hash, current: { title: 'Hello draft', views: 6 } });
  t.equal(difference.main['title'], 'Hello World');
  t.match(await admin.request(readContentVersion(made.id)), {
    key: 'draft',
    delta: { title: 'Hello draft', views: 6 },
  });
  t.equal((await admin.request(readContentVersions({ filter: { key: { _eq: 'draft' } } } as never))).length, 1);
  t.match(await admin.request(updateContentVersion(made.id, { name: 'Renamed' } as never)), { name: 'Renamed' });
  t.equal(String(await admin.request(promoteContentVersion(made.id, difference.mainHash, ['title'] as never))), '1');
  t.match(
    await dataOf('/items/articles/1?fields=title,views'),
    { title: 'Hello draft', views: 100 },
    'only what was named',
  );
  t.match(await compared(made.id), { outdated: true, current: { views: 6 } }, 'the version stays');
  const others = (await admin.request(
    createContentVersions([
      { key: 'a', collection: 'articles', item: '2' },
      { key: 'b', collection: 'articles', item: '2' },
    ] as never),
  )) as unknown as Version[];
  const ids = others.map(({ id }) => id);
  await admin.request(updateContentVersions(ids, { name: 'both' } as never));
  const batch = await admin.request(updateContentVersionsBatch(ids.map((id) => ({ id, name: id })) as never));
  t.same((batch as unknown as { name: string }[]).map(({ name }) => name).sort(), [...ids].sort());
  await admin.request(deleteContentVersions(ids));
  const [history] = await sql`select count(*)::int as count from service_revisions where version = ${made.id}`;
  t.equal(history?.['count'], 2, 'each save is recorded');
  t.equal((await sql`select from service_activity where action = 'version_save' and item = '1'`).length, 2);
  await admin.request(deleteContentVersion(made.id));
  t.equal((await sql`select from service_revisions where version = ${made.id}`).length, 0, 'and goes with it');
  await sql`update articles set title = 'Hello World' where id = 1`;
});

t.test('values of every kind are read as the column would read them', async (t) => {
  const delta = {
    rating: '3.75',
    published_at: '2030-05-06T07:08:09Z',
    meta: { deep: [1, 'two'] },
    body: null,
    author: 2,
  };
  const id = await makeVersion('2', 'kinds', delta);
  t.strictSame(
    await dataOf('/items/articles/2?version=kinds&fields=rating,published_at,meta,body,author,year(published_at)'),
    {
      rating: '3.75',
      published_at: '2030-05-06T07:08:09.000Z',
      meta: { deep: [1, 'two'] },
      body: null,
      author: 2,
      published_at_year: 2030,
    },
  );
  t.strictSame(await dataOf('/items/articles/2?version=kinds&fields=title,author.name'), {
    title: 'Second Post',
    author: { name: 'Alan Turing' },
  });
  await request(service, 'DELETE', `/versions/${id}`);
});

t.test('changes of related items are shown at every level', async (t) => {
  const delta = {
    author: { id: 1, name: 'Countess' },
    comments: {
      create: [{ body: 'New here', author: { name: 'Nobody yet' } }],
      update: [{ id: 1, body: 'Changed' }],
      delete: [2],
    },
    tags: [1, { tags_id: { name: 'fresh' } }],
    blocks: {
      create: [{ collection: 'block_text', item: { text: 'Made' } }],
      update: [{ id: 2, collection: 'block_image', item: { id: 1, caption: 'Uno' } }],
    },
  };
  const id = await makeVersion('1', 'nested', delta);
  const fields = 'author.name,comments.id,comments.body,comments.author.name,tags.id,tags.tags_id.name';
  t.strictSame(await dataOf(`/items/articles/1?version=nested&fields=${fields}`), {
    author: { name: 'Countess' },
    comments: [
      { id: 1, body: 'Changed', author: { name: 'Alan Turing' } },
      { id: 3, body: 'Spam', author: null },
      { id: null, body: 'New here', author: { name: 'Nobody yet' } },
    ],
    tags: [
      { id: 1, tags_id: { name: 'news' } },
      { id: null, tags_id: { name: 'fresh' } },
    ],
  });
  t.strictSame(
    await dataOf(
      '/items/articles/1?version=nested&fields=blocks.collection,blocks.item:block_text.text,blocks.item:block_image.caption',
    ),
    {
      blocks: [
        { collection: 'block_image', item: { caption: 'Uno' } },
        { collection: 'block_text', item: { text: 'Intro text' } },
        { collection: 'block_quote', item: 1 },
        { collection: 'block_text', item: { text: 'Made' } },
      ],
    },
  );
  t.match(await dataOf('/items/articles/1?version=nested'), { author: 1, comments: [1, 3] }, 'keys');
  const { mainHash } = await compared(id);
  const promoted = await post(service, `/versions/${id}/promote`, { mainHash }, as(ADMIN_TOKEN));
  t.match(promoted, { status: 200, json: { data: '1' } });
  t.match(await dataOf('/items/articles/1?fields=author.name,comments.body'), {
    author: { name: 'Countess' },
    comments: [{ body: 'Changed' }, { body: 'Spam' }, { body: 'New here' }],
  });
});

t.test('a list shows the items that have the version', async (t) => {
  await makeVersion('3', 'listed', { title: 'Three' });
  await makeVersion('4', 'listed');
  const answer = await get(service, '/items/articles?version=listed&fields=id,title&sort=-id&meta=filter_count');
  t.match(answer.json, {
    data: [
      { id: 4, title: '100% Sure_thing' },
      { id: 3, title: 'Three' },
    ],
    meta: { filter_count: 2 },
  });
  const searched = await request(service, 'SEARCH', '/items/articles', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: { version: 'listed', fields: ['title'], filter: { id: { _eq: 3 } } } }),
  });
  t.strictSame(searched.json, { data: [{ title: 'Three' }] });
  const inUrl = await request(service, 'SEARCH', '/items/articles?version=listed', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ query: { fields: ['title'] } }),
  });
  t.match(inUrl, failure(400, 'INVALID_QUERY'), 'never dropped');
});

t.test('an unknown version is an error, and never the item as it is', async (t) => {
  for (const path of [
    '/items/articles/3?version=unknown',
    '/items/articles/5?version=listed',
    '/items/tags/1?version=listed',
    '/users/me?version=listed',
  ])
    t.match(await get(service, path), failure(403, 'FORBIDDEN'), path);
  t.strictSame(await dataOf('/items/articles?version=unknown'), []);
  t.match(await get(service, '/items/articles/3?version[]=listed'), failure(400, 'INVALID_QUERY'));
  t.match(await get(service, '/items/articles?version=listed&aggregate[count]=*'), failure(400, 'INVALID_QUERY'));
  const written = await request(service, 'PATCH', '/items/articles/3?version=listed', {
    headers: { 'content-type': 'application/json' },
    body: '{"title":"live"}',
  });
  t.match(written, failure(400, 'INVALID_QUERY'));
  for (const live of ['main', 'published', ''])
    t.match(await dataOf(`/items/articles/3?version=${live}`), { title: 'hello lower' }, live);
});

t.test('GraphQL reads versions', async (t) => {
  const ask = (query: string, path = '/graphql') => post(service, path, { query }, as(ADMIN_TOKEN));
  const answer = await ask(`{
    articles_by_id(id: 3, version: "listed") { title author { name } }
    articles_by_version(id: 3, version: "listed") { title }
    live: articles_by_id(id: 3) { title }
  }`);
  t.strictSame(answer.json, {
    data: {
      articles_by_id: { title: 'Three', author: { name: 'Alan Turing' } },
      articles_by_version: { title: 'Three' },
      live: { title: 'hello lower' },
    },
  });
  const unknown = await ask('{ articles_by_id(id: 3, version: "no") { title } }');
  t.match(unknown.json, { data: { articles_by_id: null }, errors: [{ extensions: { code: 'FORBIDDEN' } }] });
  const made = await ask(
    'mutation { create_versions_item(data: { key: "gql", collection: "articles", item: "3" }) { id key hash } }',
    '/graphql/system',
  );
  t.match(made.json, { data: { create_versions_item: { key: 'gql', hash: /^[0-9a-f]{64}$/ } } });
  const refused = await ask(
    'mutation { create_versions_item(data: { key: "main", collection: "articles", item: "3" }) { id } }',
    '/graphql/system',
  );
  t.match(refused.json, { errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }] });
  t.match((await ask('{ versions(filter: { key: { _eq: "gql" } }) { item delta } }', '/graphql/system')).json, {
    data: { versions: [{ item: '3', delta: null }] },
  });
});

t.test('a version may lack values that the item needs: the promotion refuses them', async (t) => {
  const id = await makeVersion('4', 'unfinished');
  const delta = { title: null, author: { name: null }, comments: { create: [{ body: 'x' }] } };
  const saved = await post(service, `/versions/${id}/save`, delta, as(ADMIN_TOKEN));
  t.match(saved, { status: 200, json: { data: { id: 4, title: null } } });
  const shown = await get(service, '/items/articles/4?version=unfinished&fields=id,title,author.name');
  t.strictSame(shown.json, { data: { id: 4, title: null, author: { name: null } } });
  const { mainHash } = await compared(id);
  t.match(await post(service, `/versions/${id}/promote`, { mainHash }, as(ADMIN_TOKEN)), {
    status: 400,
    json: { errors: [{ extensions: { code: 'FAILED_VALIDATION', type: 'nnull', field: /^(title|name)$/ } }] },
  });
  t.notSame((await get(service, '/items/articles/4?fields=title')).json, { data: { title: null } });
  await post(service, `/versions/${id}/save`, { title: 'Finished', author: { name: 'Named' } }, as(ADMIN_TOKEN));
  const promoted = await post(service, `/versions/${id}/promote`, { mainHash }, as(ADMIN_TOKEN));
  t.match(promoted, { status: 200, json: { data: '4' } });
  const finished = await get(service, '/items/articles/4?fields=title,author.name');
  t.strictSame(finished.json, { data: { title: 'Finished', author: { name: 'Named' } } });
});

t.test('an invalid version is refused, and nothing is changed', async (t) => {
  const before = await sql`select count(*)::int as count from service_versions`;
  const cases: [object, number, string][] = [
    [{ key: 'main', collection: 'articles', item: '1' }, 400, 'INVALID_PAYLOAD'],
    [{ key: '', collection: 'articles', item: '1' }, 400, 'INVALID_PAYLOAD'],
    [{ key: 'x', collection: 'articles' }, 400, 'INVALID_PAYLOAD'],
    [{ key: 'x', item: '1' }, 400, 'FAILED_VALIDATION'],
    [{ key: 'x', collection: 'articles', item: '1', delta: { title: 'x' } }, 400, 'INVALID_PAYLOAD'],
    [{ key: 'x', collection: 'articles', item: '1', hash: 'x' }, 400, 'INVALID_PAYLOAD'],
    [{ key: 'x', collection: 'articles', item: '4711' }, 403, 'FORBIDDEN'],
    [{ key: 'x', collection: 'articles', item: 'word' }, 403, 'FORBIDDEN'],
    [{ key: 'x', collection: 'nothing', item: '1' }, 403, 'FORBIDDEN'],
    [{ key: 'x', collection: 'tags', item: '1' }, 422, 'UNPROCESSABLE_CONTENT'],
    [{ key: 'listed', collection: 'articles', item: '3' }, 422, 'UNPROCESSABLE_CONTENT'],
  ];
  for (const [body, status, code] of cases)
    t.match(await post(service, '/versions', body, as(ADMIN_TOKEN)), failure(status, code), JSON.stringify(body));
  t.strictSame(await sql`select count(*)::int as count from service_versions`, before);
  const id = await makeVersion('5', 'refused');
  for (const body of [{ nope: 1 }, { views: 'many' }, { comments: 'x' }, [], 'text', { author: { nope: 1 } }])
    t.match(await post(service, `/versions/${id}/save`, body, as(ADMIN_TOKEN)), { status: 400 }, JSON.stringify(body));
  for (const body of [{}, { mainHash: 1 }, { mainHash: 'x', fields: 'title' }])
    t.match(await post(service, `/versions/${id}/promote`, body, as(ADMIN_TOKEN)), failure(400, 'INVALID_PAYLOAD'));
  const { mainHash } = await compared(id);
  t.match(
    await post(service, `/versions/${id}/promote`, { mainHash }, as(ADMIN_TOKEN)),
    failure(422, 'UNPROCESSABLE_CONTENT'),
    'no changes',
  );
  const patched = await request(service, 'PATCH', `/versions/${id}`, {
    headers: { 'content-type': 'application/json' },
    body: '{"delta":{"title":"x"}}',
  });
  t.match(patched, failure(400, 'INVALID_PAYLOAD'));
  for (const path of ['/versions/word/compare', '/versions/00000000-0000-0000-0000-000000000000/compare'])
    t.match(await get(service, path), failure(403, 'FORBIDDEN'), path);
});

t.test('an item that was changed meanwhile is not overwritten', async (t) => {
  const id = await makeVersion('6', 'lost', { title: 'Mine' });
  const { mainHash } = await compared(id);
  await sql`update articles set body = 'somebody else' where id = 6`;
  t.match(await compared(id), { outdated: true });
  const refused = await post(service, `/versions/${id}/promote`, { mainHash }, as(ADMIN_TOKEN));
  t.match(refused, failure(422, 'UNPROCESSABLE_CONTENT'));
  const { mainHash: now } = await compared(id);
  t.match(refused.json, { errors: [{ extensions: { mainHash: now } }] });
  const both = await Promise.all(
    ['a', 'b'].map(() => post(service, `/versions/${id}/promote`, { mainHash: now }, as(ADMIN_TOKEN))),
  );
  t.same(both.map(({ status }) => status).sort(), [200, 422], 'of two at once one is too late');
});

t.test('a version shows nobody what the item would not show them', async (t) => {
  const versions: Permission = { collection: 'service_versions', action: 'read' };
  const reader = await makeCaller(sql, 'reader', [
    {
      permissions: [
        versions,
        {
          collection: 'articles',
          action: 'read',
          permissions: { status: { _eq: 'published' } },
          fields: ['id', 'title', 'status', 'author'],
        },
        { collection: 'articles', action: 'read', permissions: { views: { _gt: 200 } }, fields: ['body'] },
        { collection: 'authors', action: 'read', permissions: { score: { _gt: 8 } }, fields: ['id', 'name'] },
      ],
    },
  ]);
  const blind = await makeCaller(sql, 'blind', [{ permissions: [{ collection: 'articles', action: 'read' }] }]);
  await inForce(service, reader, '/items/articles');
  await inForce(service, blind, '/items/articles');
  const hidden = await makeVersion('4', 'secret', { status: 'published', title: 'Shown?' });
  const shown = await makeVersion('8', 'secret', {
    views: 1000,
    slug: 'hidden-slug',
    author: { id: 3, score: 10, name: 'Found' },
    title: 'Beta two',
  });
  t.match(
    await get(service, '/items/articles/4?version=secret', as(reader.token)),
    failure(403, 'FORBIDDEN'),
    'the row',
  );
  t.match(await get(service, `/versions/${hidden}/compare`, as(reader.token)), failure(403, 'FORBIDDEN'));
  t.strictSame(
    await dataOf('/items/articles/8?version=secret&fields=id,title,body,author.name', reader.token),
    { id: 8, title: 'Beta two', body: null, author: null },
    'a field of other rows, and a related item that only the changes would show',
  );
  t.match(
    await get(service, '/items/articles/8?version=secret&fields=slug', as(reader.token)),
    failure(403, 'FORBIDDEN'),
  );
  t.strictSame((await compared(shown, reader.token)).current, { author: { id: 3 }, title: 'Beta two' });
  t.notOk(Object.keys((await dataOf(`/versions/${shown}`, reader.token)) as object).includes('delta'));
  t.match(
    await get(service, '/items/articles/8?version=secret', as(blind.token)),
    failure(403, 'FORBIDDEN'),
    'no right to versions',
  );
  t.match(await post(service, `/versions/${shown}/save`, { title: 'x' }, as(reader.token)), failure(403, 'FORBIDDEN'));
  t.match(
    await post(service, '/versions', { key: 'r', collection: 'articles', item: '8' }, as(reader.token)),
    failure(403, 'FORBIDDEN'),
  );
});

t.test('to promote is to update: rules, validation and presets of the caller count', async (t) => {
  const all: Permission[] = ['create', 'read', 'update'].map((action) => ({
    collection: 'service_versions',
    action: action as Permission['action'],
  }));
  const editor = await makeCaller(sql, 'editor', [
    {
      permissions: [
        ...all,
        { collection: 'articles', action: 'read' },
        {
          collection: 'articles',
          action: 'update',
          permissions: { status: { _neq: 'archived' } },
          fields: ['title', 'slug'],
          validation: { title: { _ncontains: 'forbidden' } },
          presets: { slug: 'preset' },
        },
      ],
    },
  ]);
  await inForce(service, editor, '/items/articles');
  const attempt = async (item: string, delta: object) => {
    const made = await post(service, '/versions', { key: 'edit', collection: 'articles', item }, as(editor.token));
    const { id } = (made.json as { data: Version }).data;
    t.equal((await post(service, `/versions/${id}/save`, delta, as(editor.token))).status, 200, 'saved');
    const { mainHash } = await compared(id, editor.token);
    return post(service, `/versions/${id}/promote`, { mainHash }, as(editor.token));
  };
  t.match(await attempt('5', { title: 'x' }), failure(403, 'FORBIDDEN'), 'a row that may not be changed');
  t.match(await attempt('9', { views: 1 }), failure(403, 'FORBIDDEN'), 'a field that may not be changed');
  t.match(await attempt('10', { title: 'forbidden word' }), failure(400, 'FAILED_VALIDATION'));
  t.match(await attempt('3', { title: 'fine' }), { status: 200, json: { data: '3' } });
  t.match(await dataOf('/items/articles/3?fields=title,slug'), { title: 'fine', slug: 'preset' });
  const unknown = await post(service, '/versions', { key: 'v', collection: 'authors', item: '1' }, as(editor.token));
  t.match(unknown, failure(403, 'FORBIDDEN'), 'an item that they may not read');
});

t.test('a version cannot be moved to another item by an upsert', async (t) => {
  const id = await makeVersion('1', 'staying');
  const moved = { id, key: 'moved', collection: 'articles', item: '2' };
  for (const query of ['on_conflict=id', 'on_conflict=id&resolution=ignore'])
    t.match(await post(service, `/versions?${query}`, moved, as(ADMIN_TOKEN)), failure(400, 'INVALID_QUERY'), query);
  const nested = await post(service, '/items/holders', { version: moved }, as(ADMIN_TOKEN));
  t.match(nested, failure(400, 'INVALID_PAYLOAD'), 'nor nested in another item');
  t.match(await dataOf(`/versions/${id}`), { key: 'staying', item: '1' });
});
