/** DIRECTUS_COMPATIBILITY: which columns hold names of collections, in every format, and what GraphQL, OpenAPI and errors call things. */
import t from 'tap';
import { MessageSocket } from '../../support/message-socket.js';
import {
  ADMIN_TOKEN,
  type Answer,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const url = await createLibrary(server, 'names');
await withSql(url, (sql) =>
  sql`
    create table labels (id integer primary key, collection text, note jsonb, owner uuid references service_users);
    create table shelves (id integer primary key);
    create table volumes (id integer primary key, shelf integer not null references shelves on delete set null);
    insert into shelves values (1); insert into volumes values (1, 1);
    create table places (id integer primary key, item text, collection varchar(80));
    insert into service_relations (many_collection, many_field, one_collection_field, one_allowed_collections) values
      ('places', 'item', 'collection', 'service_users,authors')`.simple(),
);
const service = await startTestService({ databaseUrl: url, DIRECTUS_COMPATIBILITY: 'true' });
const send = (method: string, path: string, body: unknown) =>
  request(service, method, path, { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
const ask = async (path: string, query: string, variables = {}) =>
  (await send('POST', path, { query, variables })).json as {
    readonly data: Record<string, unknown>;
    readonly errors?: unknown;
  };

function dataOf<Data>({ status, text, json }: Answer): Data {
  if (status !== 200) throw new Error(`${status}: ${text}`);
  return (json as { data: Data }).data;
}

t.test("values of a user's own column are never changed", async (t) => {
  const label = {
    id: 1,
    collection: 'directus_users',
    note: { collection: { _eq: 'directus_users' }, 'item:directus_users': 'service_users' },
  };
  t.match((await send('POST', '/items/labels', label)).json, { data: label });
  t.match((await send('POST', '/items/labels', { id: 2, collection: 'service_users' })).json, {
    data: { collection: 'service_users' },
  });
  const [row] = await withSql(url, (sql) => sql`select collection, note from labels where id = 1`);
  t.strictSame(row, { collection: label.collection, note: label.note }, 'stored as it was sent');
  const { json } = await get(service, '/items/labels?filter[collection][_eq]=directus_users&fields=id');
  t.strictSame(json, { data: [{ id: 1 }] });
  const { data } = await ask('/graphql', '{ labels(filter: {collection: {_eq: "service_users"}}) { id collection } }');
  t.strictSame(data, { labels: [{ id: '2', collection: 'service_users' }] });
});

t.test('a text in a payload that is JSON is stored as that JSON', async (t) => {
  const written = [
    ['{"x":1}', { x: 1 }],
    [' [1, {"y": null}] ', [1, { y: null }]],
    ['5', 5],
    ['true', true],
    ['"quoted"', 'quoted'],
    ['null', null],
    ['plain', 'plain'],
    ['{"x":', '{"x":'],
    [{ x: '{"y":1}' }, { x: '{"y":1}' }],
  ];
  for (const [sent, stored] of written) {
    const label = JSON.stringify(sent);
    t.match((await send('POST', '/items/labels', { id: 10, note: sent })).json, { data: { note: stored } }, label);
    await send('PATCH', '/items/labels/10', { note: 'before' });
    t.match((await send('PATCH', '/items/labels/10', { note: sent })).json, { data: { note: stored } }, label);
    const change = 'mutation($note: JSON) { update_labels_item(id: 10, data: {note: $note}) { note } }';
    t.strictSame(await ask('/graphql', change, { note: sent }), { data: { update_labels_item: { note: stored } } });
    await request(service, 'DELETE', '/items/labels/10');
  }
  const digits = '{"n":12345678901234567890.10}';
  t.match((await send('POST', '/items/labels', { id: 10, note: digits })).text, '12345678901234567890.10');
  await request(service, 'DELETE', '/items/labels/10');
});

t.test('a many-to-any relation is written, filtered and shown with both names', async (t) => {
  const { data: me } = (await get(service, '/users/me?fields=id')).json as { data: { id: string } };
  const place = { id: 1, collection: 'directus_users', item: me.id };
  t.match((await send('POST', '/items/places', place)).json, { data: { collection: 'directus_users' } });
  const own = { id: 2, collection: 'service_users', item: { id: me.id, title: 'Clerk' } };
  t.match((await send('POST', '/items/places', own)).json, { data: { collection: 'directus_users' } }, 'ours is too');
  const rows = await withSql(url, (sql) => sql`select collection from places`);
  t.strictSame([...rows], [{ collection: 'service_users' }, { collection: 'service_users' }]);

  const fields = 'fields=collection,item:directus_users.title&sort=id';
  const filter = 'filter[item:directus_users][title][_eq]=Clerk&filter[collection][_in]=directus_users,authors';
  t.strictSame((await get(service, `/items/places?${fields}&${filter}&limit=1`)).json, {
    data: [{ collection: 'directus_users', item: { title: 'Clerk' } }],
  });
  t.strictSame((await get(service, '/items/places?groupBy=collection&aggregate[count]=*')).json, {
    data: [{ collection: 'directus_users', count: 2 }],
  });
  const document = `query($of: places_filter) { places(filter: $of, limit: 1) {
    collection item { __typename ... on directus_users { title } } } }`;
  const shown = await ask('/graphql', document, { of: { item__directus_users: { title: { _eq: 'Clerk' } } } });
  t.strictSame(shown, {
    data: { places: [{ collection: 'directus_users', item: { __typename: 'directus_users', title: 'Clerk' } }] },
  });
});

t.test('exports have the names too', async (t) => {
  for (const format of ['csv', 'xml', 'yaml', 'json']) {
    const { text } = await get(service, `/items/places?export=${format}&fields=collection`);
    t.match(text, /directus_users/, format);
    t.notMatch(text, /service_users/, format);
  }
});

t.test('GraphQL has types of these names, and no others', async (t) => {
  for (const scope of ['items', 'system']) {
    const { text } = await get(service, `/server/specs/graphql/${scope}`);
    t.match(text, /\btype directus_users \{/);
    t.notMatch(text, /service_/);
  }
  const { data } = await ask(
    '/graphql/system',
    `query($of: directus_activity_filter) {
      users_me { __typename }
      fields_by_name(collection: "directus_users", field: "password") { __typename meta { __typename } }
      activity(filter: $of, limit: 1) { __typename collection }
      __type(name: "create_directus_fields_input") { name }
    }`,
    { of: { collection: { _eq: 'directus_users' } } },
  );
  t.strictSame(data, {
    users_me: { __typename: 'directus_users' },
    fields_by_name: { __typename: 'directus_fields', meta: { __typename: 'directus_fields_meta' } },
    activity: [{ __typename: 'directus_activity', collection: 'directus_users' }],
    __type: { name: 'create_directus_fields_input' },
  });
  const made = await ask(
    '/graphql/system',
    `mutation($data: create_directus_presets_input!) { create_presets_item(data: $data) { collection } }`,
    { data: { collection: 'directus_users', bookmark: 'directus_users' } },
  );
  t.strictSame(made.data, { create_presets_item: { collection: 'directus_users' } });
  const [row] = await withSql(url, (sql) => sql`select collection, bookmark from service_presets`);
  t.strictSame({ ...row }, { collection: 'service_users', bookmark: 'directus_users' });
});

t.test('types of filters of functions and dates are those of Directus', async (t) => {
  const { data } = await ask('/graphql', `{ __type(name: "articles_filter") { inputFields { name type { name } } } }`);
  const { inputFields } = data['__type'] as { inputFields: { name: string; type: { name: string | null } }[] };
  const typeOf = (field: string) => inputFields.find(({ name }) => name === field)?.type.name;
  t.strictSame(['published_at_func', 'tags_func'].map(typeOf), [
    'datetime_function_filter_operators',
    'count_function_filter_operators',
  ]);
  const document = `query($parts: datetime_function_filter_operators, $days: [GraphQLStringOrFloat]) {
    articles_aggregated(filter: { published_at_func: $parts, published_at: { _between: $days } }) { countAll } }`;
  const found = await ask('/graphql', document, { parts: { year: { _gt: 1 } }, days: ['2000-01-01', '2100-01-01'] });
  t.match(found, { data: { articles_aggregated: [{ countAll: Number }] }, errors: undefined });
});

t.test('the OpenAPI document has the names of Directus', async (t) => {
  const { json } = await get(service, '/server/specs/oas');
  t.match(json, {
    tags: [{ name: 'Server' }],
    components: {
      schemas: {
        Users: { 'x-collection': 'directus_users' },
        ItemsArticlesBlocks: { 'x-collection': 'articles_blocks' },
      },
    },
    paths: { '/items/articles': { get: { tags: ['Items', 'ItemsArticles'] } }, '/users': { get: { tags: ['Users'] } } },
  });
});

t.test('errors have the codes of Directus in GraphQL and over WebSockets as in REST', async (t) => {
  const double = { id: 1, collection: 'x' };
  const expected = { message: /has to be unique/, extensions: { code: 'RECORD_NOT_UNIQUE', type: 'unique' } };
  t.match((await send('POST', '/items/labels', double)).json, { errors: [expected] });
  const answer = await ask('/graphql', 'mutation { create_labels_item(data: {id: 1}) { id } }');
  t.match(answer, { errors: [expected] });

  const socket = await new MessageSocket(service).opened();
  t.teardown(() => socket.socket.close());
  t.match(await socket.ask({ type: 'auth', access_token: ADMIN_TOKEN }), { status: 'ok' });
  t.match(await socket.ask({ type: 'items', collection: 'labels', action: 'create', data: double }), {
    status: 'error',
    error: { code: 'RECORD_NOT_UNIQUE', message: /has to be unique/ },
  });
});

t.test(
  'null that a validation refuses is FAILED_VALIDATION, and NOT_NULL_VIOLATION comes from the database',
  async (t) => {
    const policy = dataOf<{ id: string }>(await send('POST', '/policies', { name: 'Writers' })).id;
    const rule = {
      policy,
      collection: 'authors',
      action: 'create',
      fields: ['*'],
      validation: { bio: { _nnull: true } },
    };
    await send('POST', '/permissions', rule);
    const token = 'the-token-of-a-writer';
    await send('POST', '/users', { email: 'writer@example.com', token, policies: [{ policy }] });
    const authorWith = (values: object, caller: string) =>
      request(service, 'POST', '/items/authors', {
        token: caller,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(values),
      });
    const refused = (field: string) => ({
      status: 400,
      json: { errors: [{ extensions: { code: 'FAILED_VALIDATION', type: 'nnull', field } }] },
    });
    t.match(await authorWith({ name: 'A', bio: null }, token), refused('bio'), 'the validation of a permission');
    t.match(await authorWith({ name: null }, ADMIN_TOKEN), refused('name'), 'a column that is not nullable');
    const gone = await request(service, 'DELETE', '/items/shelves/1');
    t.match(gone, { status: 400, json: { errors: [{ extensions: { code: 'NOT_NULL_VIOLATION', type: 'nnull' } }] } });
  },
);

t.test('errors of validations and documents have the form of Directus', async (t) => {
  const rules = { rating: { _lte: 5 }, slug: { _regex: '^[a-z0-9-]+$' }, title: { _ncontains: 'x' } };
  for (const [field, rule] of Object.entries(rules))
    await send('PATCH', `/fields/articles/${field}`, { meta: { validation: { [field]: rule } } });
  const errorOf = async (item: object, path = '/items/articles') =>
    ((await send('POST', path, item)).json as { errors: object[] }).errors[0];
  t.match(await errorOf({ title: 'a', rating: 9 }), {
    message: 'Validation failed for field "rating". Value has to be less than or equal to "5".',
    extensions: { code: 'FAILED_VALIDATION', field: 'rating', type: 'lte', valid: 5, path: [] },
  });
  t.match(await errorOf([{ title: 'a' }, { title: 'a', slug: 'A B' }]), {
    message: 'Validation failed for field "slug". Value doesn\'t have the correct format.',
    extensions: { field: 'slug', type: 'regex', invalid: 'A B', path: [] },
  });
  t.match(
    await errorOf({ name: 'a', articles: { create: [{ title: 'x' }], update: [], delete: [] } }, '/items/authors'),
    {
      message: 'Validation failed for field "title" at "articles". Value can\'t contain "x".',
      extensions: { field: 'title', type: 'ncontains', substring: 'x', path: ['articles'] },
    },
  );
  t.match(await errorOf({ title: 'a', author: { name: null } }), {
    message: 'Validation failed for field "name" at "author". Value can\'t be null.',
    extensions: { field: 'name', type: 'nnull', path: ['author'] },
  });
  t.match(await errorOf({ title: 'a', author: 9999 }), {
    message: 'Invalid foreign key "9999" for field "author" in collection "articles".',
    extensions: { code: 'INVALID_FOREIGN_KEY', value: 9999 },
  });

  const document = '{ articles { nope foo } }';
  t.strictSame((await send('POST', '/graphql', { query: document })).json, {
    errors: [
      {
        message: 'GraphQL validation error.',
        extensions: {
          errors: [
            { message: 'Cannot query field "nope" on type "articles".', locations: [{ line: 1, column: 14 }] },
            { message: 'Cannot query field "foo" on type "articles".', locations: [{ line: 1, column: 19 }] },
          ],
          code: 'GRAPHQL_VALIDATION',
        },
      },
    ],
  });
  t.match(await ask('/graphql', '{ articles { id '), { errors: [{ extensions: { code: 'GRAPHQL_VALIDATION' } }] });
});

t.test('an error shows no value that its caller may not read', async (t) => {
  const policy = dataOf<{ id: string }>(await send('POST', '/policies', { name: 'Preset' })).id;
  const rule = { policy, collection: 'articles', action: 'create', fields: ['title'], presets: { author: 9999 } };
  await send('POST', '/permissions', rule);
  const token = 'the-token-of-a-preset';
  await send('POST', '/users', { email: 'preset@example.com', token, policies: [{ policy }] });
  const answer = await request(service, 'POST', '/items/articles', {
    token,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ title: 'a' }),
  });
  t.match(answer, {
    status: 400,
    json: { errors: [{ extensions: { code: 'INVALID_FOREIGN_KEY', field: 'author' } }] },
  });
  t.notMatch(answer.text, /9999/);
});

t.test('an item that is shown as a version says which one', async (t) => {
  await send('PATCH', '/collections/articles', { meta: { versioning: true } });
  const make = async (key: string, item: string) =>
    dataOf<{ id: string }>(await send('POST', '/versions', { key, collection: 'articles', item })).id;
  const [saved, unsaved] = [await make('v1', '1'), await make('v1', '2')];
  dataOf(await send('POST', `/versions/${saved}/save`, { title: 'Draft' }));
  const read = async (path: string) => dataOf(await get(service, path));
  const first = { id: 1, title: 'Draft', $meta: { version_id: saved } };
  t.strictSame(await read('/items/articles/1?version=v1&fields=id,title'), first);
  t.match(await read('/items/articles/2?version=v1'), { id: 2, $meta: { version_id: unsaved, delta: {} } });
  const list = '/items/articles?version=v1&fields=id,title&sort=id';
  t.match(await read(list), [first, { id: 2, $meta: { version_id: unsaved } }]);
  t.match(await read(`${list}&cursor=`), [first, { id: 2, $meta: { version_id: unsaved } }]);
  t.strictSame(await read('/items/articles/1?fields=id,title&version=main'), {
    id: 1,
    title: 'Hello World',
  });
  const { text } = await get(service, `${list}&export=csv&limit=1`);
  t.equal(text, 'id,title\n1,Draft\n', 'a file has the fields that were asked for');
  const answer = await ask('/graphql', '{ articles_by_id(id: 1, version: "v1") { title } }');
  t.strictSame(answer, { data: { articles_by_id: { title: 'Draft' } } }, 'GraphQL answers what was selected');
});

t.test('permissions and the version of the server', async (t) => {
  const { json } = await get(service, '/permissions/me');
  t.match(json, { data: { directus_users: { read: { access: 'full' } } } });
  t.notMatch((json as { data: object }).data, { service_users: {} });
  t.match((await get(service, '/server/info')).json, { data: { version: /^1[1-9]\./, lateral: /^1\./ } });
  t.match(await get(service, '/server/ping'), { text: 'pong', headers: { 'content-type': /^text\/html/ } });
});
