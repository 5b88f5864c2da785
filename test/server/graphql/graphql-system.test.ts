/** /graphql/system, and what callers with few rights see of both endpoints. */
import t from 'tap';
import { makeCaller, makePolicy } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  createLibrary,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

t.setTimeout(120_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'system');
const callers = await withSql(databaseUrl, async (sql) => ({
  editor: await makeCaller(sql, 'editor', [
    {
      permissions: [
        {
          collection: 'articles',
          action: 'read',
          permissions: { status: { _eq: 'published' } },
          fields: ['id', 'title', 'status', 'author', 'comments'],
        },
        { collection: 'articles', action: 'update', fields: ['title'] },
        { collection: 'authors', action: 'read', fields: ['name'] },
        { collection: 'tags', action: 'create' },
      ],
    },
  ]),
  nobody: await makeCaller(sql, 'nobody', []),
  open: await makePolicy(sql, 'open', { permissions: [{ collection: 'tags', action: 'read', fields: ['name'] }] }),
}));
const service = await startTestService({
  databaseUrl,
  LOGIN_STALL_TIME: '1ms',
});

interface Options {
  readonly token?: string | null;
  readonly path?: string;
  readonly cookie?: string;
}

function send(query: string, { token = ADMIN_TOKEN, path = '/graphql/system', cookie }: Options = {}): Promise<Answer> {
  return request(service, 'POST', path, {
    token,
    headers: { 'content-type': 'application/json', ...(cookie ? { cookie } : {}) },
    body: JSON.stringify({ query }),
  });
}

async function ask(query: string, options?: Options): Promise<unknown> {
  return (await send(query, options)).json;
}

t.test('users, roles and policies are items; relations cross both endpoints', async (t) => {
  t.match(
    await ask(
      '{ users(filter: { email: { _eq: "editor@example.com" } }) { id role { name } token password } roles_aggregated { countAll } }',
    ),
    {
      data: { users: [{ id: callers.editor.user, role: { name: 'editor' }, token: '**********', password: null }] },
    },
  );
  const made = (await ask('mutation { create_roles_item(data: { name: "made" }) { id name users { id } } }')) as {
    data: { create_roles_item: { id: string } };
  };
  t.match(made, { data: { create_roles_item: { name: 'made', users: [] } } });
  const { id } = made.data.create_roles_item;
  t.match(
    await ask(
      `mutation { update_roles_item(id: "${id}", data: { description: "x" }) { description } delete_roles_item(id: "${id}") { id } }`,
    ),
    {
      data: { update_roles_item: { description: 'x' }, delete_roles_item: { id } },
    },
  );
  t.match(
    await ask(
      '{ settings { project_name } activity(limit: 1, sort: ["-id"]) { action user { email } } revisions(limit: 1) { id } }',
    ),
    {
      data: {
        settings: { project_name: String },
        activity: [{ action: 'delete', user: { email: 'admin@example.com' } }],
      },
    },
  );
  const schema = (await ask('{ __schema { queryType { fields { name } } mutationType { fields { name } } } }')) as {
    data: { __schema: Record<string, { fields: { name: string }[] }> };
  };
  const names = Object.values(schema.data.__schema).flatMap(({ fields }) => fields.map(({ name }) => name));
  for (const name of [
    'articles',
    'sessions',
    'receipts',
    'update_activity_item',
    'create_revisions_item',
    'delete_settings_item',
  ])
    t.notOk(names.includes(name), `there is no ${name}`);
});

t.test('the schema', async (t) => {
  t.match(
    await ask(`mutation { create_collections_item(data: { collection: "notes", schema: {}, meta: { note: "Short texts" },
      fields: [{ field: "id", type: "integer", schema: { is_primary_key: true, has_auto_increment: true } }] }) { collection meta { note } schema { name } } }`),
    {
      data: {
        create_collections_item: { collection: 'notes', meta: { note: 'Short texts' }, schema: { name: 'notes' } },
      },
    },
  );
  t.match(
    await ask(
      'mutation { create_fields_item(collection: "notes", data: { field: "body", type: "text" }) { field type schema { data_type is_nullable } __typename } }',
    ),
    { data: { create_fields_item: { field: 'body', schema: { data_type: 'text' }, __typename: 'service_fields' } } },
  );
  t.match(await ask('mutation { create_notes_item(data: { body: "one" }) { id body } }', { path: '/graphql' }), {
    data: { create_notes_item: { id: '1', body: 'one' } },
  });
  t.match(
    await ask(`{ one: fields_by_name(collection: "notes", field: "body") { type } all: fields_in_collection(collection: "notes") { field }
      collections_by_name(name: "notes") { collection } relations_by_name(collection: "articles", field: "author") { related_collection }
      missing: fields_by_name(collection: "notes", field: "nope") { type } }`),
    {
      data: {
        one: { type: 'text' },
        all: [{ field: 'id' }, { field: 'body' }],
        collections_by_name: { collection: 'notes' },
        relations_by_name: { related_collection: 'authors' },
        missing: null,
      },
      errors: [{ path: ['missing'], extensions: { code: 'FORBIDDEN' } }],
    },
  );
  t.match(
    await ask(
      `mutation { delete_fields_item(collection: "notes", field: "body") { collection field } delete_collections_item(collection: "notes") { collection } }`,
    ),
    {
      data: {
        delete_fields_item: { collection: 'notes', field: 'body' },
        delete_collections_item: { collection: 'notes' },
      },
    },
  );
  t.match(
    await ask('mutation { delete_collections_item(collection: "notes") { collection } }', {
      token: callers.editor.token,
    }),
    {
      data: { delete_collections_item: null },
      errors: [{ extensions: { code: 'FORBIDDEN' } }],
    },
  );
  t.match(await ask('{ server_ping collections_by_name(name: "") { collection } }'), {
    data: null,
    errors: [{ path: ['collections_by_name'], extensions: { code: 'FORBIDDEN' } }],
  });
});

t.test('logging in, and one’s own account', async (t) => {
  t.match(await ask('mutation { update_users_me(data: { password: "a-password-for-tests" }) { password } }'), {
    data: { update_users_me: { password: '**********' } },
  });
  const login = (more: string): Promise<Answer> =>
    send(
      `mutation { auth_login(email: "admin@example.com", password: "a-password-for-tests"${more}) { access_token refresh_token expires } }`,
      { token: null },
    );
  const { json } = await login('');
  const { auth_login: tokens } = (json as { data: { auth_login: Record<string, string> } }).data;
  t.match(tokens, { access_token: String, refresh_token: String, expires: /^\d+$/ });
  t.match(await ask('{ users_me { email } roles_me { name } }', { token: tokens['access_token'] ?? null }), {
    data: { users_me: { email: 'admin@example.com' }, roles_me: [{ name: 'Administrator' }] },
  });
  const session = await login(', mode: session');
  const [cookie = ''] = session.headers['set-cookie'] ?? [];
  t.match(await ask('{ users_me { email } }', { token: null, cookie: cookie.split(';', 1)[0] ?? '' }), {
    data: { users_me: { email: 'admin@example.com' } },
  });
  t.match(
    await ask('mutation { auth_login(email: "admin@example.com", password: "wrong") { access_token } }', {
      token: null,
    }),
    {
      data: { auth_login: null },
      errors: [{ path: ['auth_login'], extensions: { code: 'INVALID_CREDENTIALS' } }],
    },
  );
  const twice =
    'mutation { a: auth_login(email: "a@b.c", password: "x") { expires } b: auth_login(email: "a@b.c", password: "y") { expires } }';
  t.match(await ask(twice, { token: null }), { errors: [{ path: ['b'], extensions: { code: 'INVALID_QUERY' } }] });
  t.match(await ask('mutation { update_users_me(data: { title: "Editor in chief" }) { title email } }'), {
    data: { update_users_me: { title: 'Editor in chief', email: 'admin@example.com' } },
  });
  t.match(await ask('mutation { auth_logout { x } }'), { errors: [{ extensions: { code: 'INVALID_QUERY' } }] });
  t.match(
    await ask(
      'mutation { utils_sort(collection: "tags", item: 1, to: 2) create_roles_item(data: { name: "x" }) { id } }',
    ),
    {
      errors: [{ path: ['utils_sort'], extensions: { code: 'INVALID_QUERY' } }],
    },
  );
  t.match(
    await ask(
      '{ server_ping server_info { version project { project_name public_registration } rateLimit { points } queryLimit { max } } server_specs_graphql(scope: "items") permissions_me }',
    ),
    {
      data: {
        server_ping: 'pong',
        server_info: {
          version: String,
          project: { project_name: 'Lateral', public_registration: false },
          rateLimit: null,
          queryLimit: { max: -1 },
        },
        server_specs_graphql: /type articles /,
        permissions_me: Object,
      },
    },
  );
});

t.test('a schema for each set of rights', async (t) => {
  const { token } = callers.editor;
  const options = { token, path: '/graphql' };
  t.match(
    await ask(
      '{ articles(sort: ["id"], limit: 2) { id title author { name } } articles_aggregated { countAll } }',
      options,
    ),
    {
      data: {
        articles: [{ id: '1', author: { name: 'Ada Lovelace' } }, { id: '2' }],
        articles_aggregated: [{ countAll: 5 }],
      },
    },
  );
  for (const [query, column] of [
    ['{ articles { id views } }', 17],
    ['{ articles { comments { id } } }', 14],
    ['{ articles(filter: { views: { _gt: 1 } }) { id } }', 22],
    ['{ comments { id } }', 3],
    ['{ authors_by_id(id: 1) { name } }', 3],
    ['mutation { create_articles_item(data: { title: "x" }) { id } }', 12],
    ['mutation { update_articles_item(id: 1, data: { status: "x" }) { id } }', 48],
    ['mutation { delete_articles_item(id: 1) { id } }', 12],
    ['query ($d: create_articles_input) { articles { id } }', 12],
  ] as const) {
    const answer = await send(query, options);
    t.match(
      answer,
      { status: 400, json: { errors: [{ locations: [{ line: 1, column }], extensions: { code: 'INVALID_QUERY' } }] } },
      query,
    );
  }
  t.strictSame(await ask('{ articles_by_id(id: 3) { id } }', options), {
    data: { articles_by_id: null },
    errors: [
      {
        message: "You don't have permission to access this.",
        path: ['articles_by_id'],
        locations: [{ line: 1, column: 3 }],
        extensions: { code: 'FORBIDDEN' },
      },
    ],
  });
  t.match(
    await ask(
      'mutation { update_articles_item(id: 1, data: { title: "edited" }) { title } create_tags_item(data: { name: "t" }) }',
      options,
    ),
    {
      data: { update_articles_item: { title: 'edited' }, create_tags_item: true },
    },
  );
  t.match(await ask('{ tags(limit: 1) { name } }', { token: null, path: '/graphql' }), {
    data: { tags: [{ name: 'news' }] },
  });
  t.match(await ask('{ tags { id } }', { token: null, path: '/graphql' }), {
    errors: [{ extensions: { code: 'INVALID_QUERY' } }],
  });
  t.match(await ask('{ _empty }', { token: callers.nobody.token, path: '/graphql' }), { data: { _empty: null } });
});
