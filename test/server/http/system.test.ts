/** The tables of the service itself through the API: users, roles, policies, who one is, who did what, and what nobody may do. */
import t from 'tap';
import { addPermission, makeCaller, makePolicy, type Permission } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'system');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

const allow = (
  collection: string,
  action: Permission['action'],
  permissions: object | null = null,
  fields: readonly string[] = ['*'],
): Permission => ({ collection, action, permissions, fields });

const admin = { token: ADMIN_TOKEN };
const plain = await makeCaller(sql, 'plain', [{ app_access: true, permissions: [allow('articles', 'read')] }]);
/** May manage users and roles, but is no administrator. */
const manager = await makeCaller(sql, 'manager', [
  {
    permissions: ['service_users', 'service_roles', 'service_access', 'service_policies'].flatMap((collection) => [
      allow(collection, 'read'),
      allow(collection, 'create'),
      allow(collection, 'update'),
      allow(collection, 'delete'),
    ]),
  },
]);
/** Imports articles, and with them the users they name. */
const importer = await makeCaller(sql, 'importer', [
  {
    permissions: ['service_users', 'articles'].flatMap((collection) => [
      allow(collection, 'read'),
      allow(collection, 'create'),
      allow(collection, 'update'),
    ]),
  },
]);
/** Changes what it cannot read. */
const blind = await makeCaller(sql, 'blind', [
  {
    permissions: [
      allow('articles', 'update', { status: { _eq: 'draft' } }, ['title']),
      allow('comments', 'delete', { article: { author: { name: { _eq: 'Ada Lovelace' } } } }),
    ],
  },
]);
/** Uses the app. */
const screen = await makeCaller(sql, 'screen', [
  {
    app_access: true,
    permissions: [allow('articles', 'read', null, ['id', 'title', 'author']), allow('tags', 'update')],
  },
]);
/** Sees and changes the own row, of which the role is a part. */
const own = await makeCaller(sql, 'own', [
  {
    permissions: [
      allow('service_users', 'read', { id: { _eq: '$CURRENT_USER' } }, ['id', 'first_name']),
      allow('service_users', 'update', { id: { _eq: '$CURRENT_USER' } }, ['first_name', 'title']),
      allow('articles', 'update', null, ['title', 'editor']),
      allow('articles', 'read', null, ['id']),
    ],
  },
]);
await sql`alter table articles add column editor uuid references service_users (id)`;
const service = await startTestService({ databaseUrl });
const other = await startTestService({ databaseUrl });
const [administrator] = await sql`select id, role from service_users where email = 'admin@example.com'`;
const [adminPolicy] = await sql`select id from service_policies where admin_access`;

function send(caller: { token: string } | null, method: string, path: string, body?: unknown): Promise<Answer> {
  const token = caller?.token ?? null;
  if (body === undefined) return request(service, method, path, { token });
  const text = JSON.stringify(body);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) };
  return request(service, method, path, { token, headers, body: text });
}

const dataOf = (answer: Answer): unknown => (answer.json as { data?: unknown } | undefined)?.data ?? answer.status;

t.test('users, roles, policies and permissions are written and read like items', async (t) => {
  const policy = await send(admin, 'POST', '/policies?fields=id,name,permissions.collection', {
    name: 'Made',
    permissions: [{ collection: 'tags', action: 'read', fields: ['id', 'name'], permissions: { id: { _lt: 3 } } }],
  });
  t.match(dataOf(policy), { name: 'Made', permissions: [{ collection: 'tags' }] });
  const { id } = dataOf(policy) as { id: string };
  const role = await send(admin, 'POST', '/roles?fields=id,users.email', {
    name: 'Made',
    policies: [{ policy: id }],
    users: [{ email: 'made@example.com', password: 'secret', token: 'a-token-for-the-made-user' }],
  });
  t.match(dataOf(role), { users: [{ email: 'made@example.com' }] });
  const made = { token: 'a-token-for-the-made-user' };
  t.strictSame(dataOf(await send(made, 'GET', '/items/tags')), [
    { id: 1, name: 'news' },
    { id: 2, name: 'tech' },
  ]);
  const list = await send(admin, 'SEARCH', '/users', {
    query: { filter: { email: { _eq: 'made@example.com' } }, fields: ['password', 'token', 'role.name'] },
  });
  t.strictSame(dataOf(list), [{ password: '**********', token: '**********', role: { name: 'Made' } }]);
  const [stored] = await sql`select password, token from service_users where email = 'made@example.com'`;
  t.match(stored?.['password'], /^\$argon2id\$/);
  t.match(stored?.['token'], /^[0-9a-f]{64}$/);
  // What is shown of a secret does not replace it.
  const [user] = await sql`select id from service_users where email = 'made@example.com'`;
  await send(admin, 'PATCH', `/users/${user?.['id']}`, { password: '**********', token: '**********', title: 'Dr' });
  t.strictSame((await sql`select password, token from service_users where id = ${user?.['id']}`)[0], stored);
  t.equal((await send(admin, 'PATCH', `/users/${user?.['id']}`, { tfa_secret: 'x' })).status, 400);
  t.equal(
    (await send(admin, 'POST', '/users', { email: 'MADE@example.com' })).status,
    400,
    'addresses differ in more than case',
  );
  t.equal((await send(admin, 'DELETE', `/users/${user?.['id']}`)).status, 204);
  t.equal((await send(made, 'GET', '/items/tags')).status, 401);
  for (const path of [
    '/items/service_users',
    '/items/service_sessions',
    '/items/service_receipts',
    `/items/service_users/${user?.['id']}`,
  ])
    t.equal((await send(admin, 'GET', path)).status, 403, path);
  t.equal((await send(admin, 'PATCH', '/settings?fields=project_name', { project_name: 'New' })).status, 200);
  t.match(dataOf(await send(admin, 'GET', '/settings')), { project_name: 'New' });
  t.equal((await send(admin, 'POST', '/activity', { action: 'x' })).status, 404);
});

t.test('a rule has to be a filter', async (t) => {
  const rule = { policy: plain.policies[0], collection: 'tags', action: 'read', fields: ['*'] };
  for (const permissions of [
    [],
    'x',
    1,
    { id: { _in: [] } },
    { id: { _nothing: [] }, _and: 1 },
    { _eq: 1 },
    { id: { _regex: 'x' } },
    { _or: [] },
    { _and: {} },
    { _and: [{ id: { _gt: 0 } }, {}] },
    { _or: [{ id: { _gt: 0 } }, { _and: [] }] },
    { name: {} },
    { articles: {} },
    { nothing: { _eq: 1 } },
    { id: { _contains: 'x' } },
    { id: { _eq: 'x' } },
    { id: { _in: [1, 'x'] } },
    { id: { _eq: '$CURRENT_USER' } },
  ]) {
    const answer = await send(admin, 'POST', '/permissions', { ...rule, permissions });
    t.equal(answer.status, 400, `${JSON.stringify(permissions)}: ${answer.text}`);
  }
  t.match(await send(admin, 'POST', '/permissions', { ...rule, collection: 'artikles' }), {
    status: 400,
    json: { errors: [{ message: /Collection "artikles" doesn't exist/, extensions: { code: 'INVALID_PAYLOAD' } }] },
  });
  t.equal((await send(admin, 'POST', '/permissions', { ...rule, validation: { id: { _regex: 1 } } })).status, 400);
  t.equal((await send(admin, 'POST', '/permissions', { ...rule, validation: { nothing: { _eq: 1 } } })).status, 400);
  for (const presets of [[], 'x', { nothing: 1 }])
    t.equal((await send(admin, 'POST', '/permissions', { ...rule, presets })).status, 400, JSON.stringify(presets));
});

t.test('a stored rule that does not fit grants nothing', async (t) => {
  const rules = [{ _or: [] }, { _and: {} }, { name: {} }, { nothing: { _eq: 1 } }, { id: { _eq: 'x' } }];
  for (const [number, permissions] of rules.entries()) {
    const rule = { ...allow('tags', 'read'), permissions };
    const caller = await makeCaller(sql, `misfit-${number}`, [{ permissions: [rule, allow('articles', 'read')] }]);
    await waitFor(async () => (await send(caller, 'GET', '/items/articles')).status === 200, 10_000);
    t.equal((await send(caller, 'GET', '/items/tags')).status, 403, JSON.stringify(permissions));
  }
});

t.test('users have addresses', async (t) => {
  const failed = { errors: [{ extensions: { code: 'FAILED_VALIDATION', field: 'email', type: 'email' } }] };
  for (const email of ['nope', '', 'a b@example.com', null]) {
    t.match(await send(admin, 'PATCH', `/users/${own.user}`, { email }), { status: 400, json: failed }, `${email}`);
    t.match(await send(admin, 'POST', '/users', { email }), { status: 400, json: failed }, `${email}`);
  }
  const each = [
    { id: own.user, email: 'own@example.com' },
    { id: plain.user, title: 'Mx' },
  ];
  t.equal((await send(admin, 'PATCH', '/users', each)).status, 200, 'who keeps an address need not repeat it');
});

t.test('a policy takes addresses alone', async (t) => {
  const path = `/policies/${plain.policies[0]}`;
  for (const entry of ['garbage', '1.2.3.4/99', '1.2.3.4-1.2.3.1', '::1/129', '1.2.3', '10.0.0.0/8/8']) {
    const ip_access = ['10.0.0.1', entry];
    t.equal((await send(admin, 'PATCH', path, { ip_access })).status, 400, entry);
    t.equal((await send(admin, 'POST', '/policies', { name: 'x', ip_access })).status, 400, entry);
  }
  const ip_access = ['127.0.0.1', '10.0.0.0/8', '::1', '1.2.3.4-1.2.3.9'];
  t.match(dataOf(await send(admin, 'PATCH', path, { ip_access })), { ip_access });
  t.match(dataOf(await send(admin, 'PATCH', path, { ip_access: null })), { ip_access: null });
});

t.test('a password has to meet the settings', async (t) => {
  await sql`update service_settings set auth_password_policy = '/^.{8,}$/'`;
  const short = await send(admin, 'PATCH', `/users/${own.user}`, { password: 'short' });
  t.match(short.json, { errors: [{ extensions: { code: 'FAILED_VALIDATION', field: 'password', type: 'regex' } }] });
  t.equal((await send(admin, 'PATCH', `/users/${own.user}`, { password: 'long enough' })).status, 200);
});

t.test('the policy of passwords can be read', async (t) => {
  const ask = (auth_password_policy: unknown): Promise<Answer> =>
    send(admin, 'PATCH', '/settings', { auth_password_policy });
  const before = await sql`select auth_password_policy from service_settings`;
  for (const pattern of ['(', '/(/', '/x/nonsense', '/x/uv', '[']) {
    const answer = await ask(pattern);
    t.equal(answer.status, 400, `${pattern}: ${answer.text}`);
    t.match(answer.text, 'auth_password_policy');
  }
  t.strictSame(await sql`select auth_password_policy from service_settings`, before);
  for (const pattern of [null, '', '^.{4,}$', '/^.{4,}$/gi']) t.equal((await ask(pattern)).status, 200, `${pattern}`);
  // One that was written past the service.
  await sql`update service_settings set auth_password_policy = '('`;
  const change = await send(admin, 'PATCH', `/users/${own.user}`, { password: 'long enough' });
  t.equal(change.status, 422);
  t.match(change.text, 'auth_password_policy');
  await sql`update service_settings set auth_password_policy = null`;
});

t.test('secrets are neither filtered, sorted, grouped nor searched by', async (t) => {
  for (const query of [
    'filter[password][_starts_with]=$argon2',
    'filter[token][_eq]=x',
    'sort=password',
    'groupBy=token&aggregate[count]=*',
    'aggregate[max]=password',
    'filter[id][_eq]=$CURRENT_USER.password',
    'alias[x]=token&fields=x&sort=x',
  ]) {
    const { status, text } = await send(admin, 'GET', `/users?${query}`);
    t.ok([400, 403].includes(status), `${query}: ${status}`);
    t.notMatch(text, /argon2id|[0-9a-f]{64}/);
  }
  t.strictSame(dataOf(await send(admin, 'GET', '/users?fields=id&search=argon2')), []);
  const shown = await send(admin, 'GET', '/users?fields=*.*&limit=-1');
  t.notMatch(shown.text, /argon2|[0-9a-f]{64}/);
});

t.test('the current user', async (t) => {
  t.match(dataOf(await send(plain, 'GET', '/users/me')), { id: plain.user, first_name: 'plain', role: plain.role });
  t.strictSame(dataOf(await send(own, 'GET', '/users/me')), { id: own.user, first_name: 'own' });
  t.strictSame(dataOf(await send(own, 'GET', '/users/me?fields=email')), { id: own.user });
  t.equal((await send(null, 'GET', '/users/me')).status, 401);
  t.match(dataOf(await send(plain, 'GET', '/roles/me')), [{ id: plain.role, name: 'plain' }]);
  t.strictSame(dataOf(await send(own, 'GET', '/roles/me')), [{ id: own.role }]);
  t.equal((await send(null, 'GET', '/roles/me')).status, 403);
  t.strictSame(dataOf(await send(plain, 'GET', '/policies/me/globals')), {
    app_access: true,
    admin_access: false,
    enforce_tfa: false,
  });
  t.strictSame(dataOf(await send(null, 'GET', '/policies/me/globals')), { app_access: false });
  const permissions = dataOf(await send(own, 'GET', '/permissions/me')) as Record<string, unknown>;
  t.strictSame(Object.keys(permissions).sort(), ['articles', 'service_users']);
  t.strictSame(dataOf(await send(own, 'GET', `/permissions/me/service_users/${own.user}`)), {
    update: { access: true },
    delete: { access: false },
    share: { access: false },
  });
  t.match(dataOf(await send(own, 'GET', `/permissions/me/service_users/${plain.user}`)), { update: { access: false } });
  t.equal((await send(plain, 'GET', '/users')).status, 200);
  t.equal((dataOf(await send(plain, 'GET', '/users')) as unknown[]).length, 1, 'nobody but oneself');
});

t.test('every user can read which actions an item allows, also if it may not be read', async (t) => {
  const nothing = { update: { access: false }, delete: { access: false }, share: { access: false } };
  for (const path of [
    'authors/1',
    'authors',
    'authors/99',
    'nothing/1',
    'nothing',
    'service_settings/1',
    'service_settings',
  ])
    t.strictSame(dataOf(await send(own, 'GET', `/permissions/me/${path}`)), nothing, path);
  for (const path of ['authors/1', 'articles/1', 'nothing/1'])
    t.equal((await send(null, 'GET', `/permissions/me/${path}`)).status, 403, path);
  t.equal((await send(admin, 'GET', '/permissions/me/nothing/1')).status, 403, 'an administrator is told of a slip');
  const asked = async (path: string): Promise<unknown> => dataOf(await send(blind, 'GET', `/permissions/me/${path}`));
  t.match(await asked('articles/3'), { update: { access: true }, delete: { access: false } });
  t.match(
    await asked('articles/1'),
    { update: { access: false }, delete: { access: false } },
    'the rule does not hold',
  );
  t.match(await asked('articles/99'), nothing);
  t.match(await asked('articles/no-key'), nothing);
  t.match(await asked('articles'), { update: { access: true } });
  for (const [hers, mayDelete] of [
    [sql`= 1`, true],
    [sql`is distinct from 1`, false],
  ] as const) {
    const [comment] = await sql`
      select comments.id from comments join articles on articles.id = comments.article where articles.author ${hers} limit 1`;
    t.match(await asked(`comments/${comment?.['id']}`), { update: { access: false }, delete: { access: mayDelete } });
  }
  t.equal((await send(blind, 'GET', '/items/articles/3')).status, 403, 'which lets nobody read');
});

t.test('the allowed actions of a singleton come with its fields and presets', async (t) => {
  await sql`create table banner (id integer primary key, text text, owner text)`;
  await sql`insert into service_collections (collection, singleton) values ('banner', true)`;
  const writer = await makeCaller(sql, 'banner-writer', [
    {
      permissions: [
        { ...allow('banner', 'create', null, ['text']), presets: { owner: 'new' } },
        allow('banner', 'update'),
        allow('banner', 'delete'),
      ],
    },
  ]);
  const asked = async (caller: { token: string }): Promise<unknown> =>
    dataOf(await send(caller, 'GET', '/permissions/me/banner'));
  await waitFor(async () => (await send(admin, 'GET', '/permissions/me/banner')).status === 200, 5_000);
  await waitFor(async () => JSON.stringify(await asked(writer)).includes('true'), 5_000);
  const others = { delete: { access: true }, share: { access: false } };
  const made = { update: { access: true, fields: ['text'], presets: { owner: 'new' } }, ...others };
  t.strictSame(await asked(writer), made, 'an update of an empty one creates it');
  await sql`insert into banner values (1)`;
  t.strictSame(await asked(writer), { update: { access: true, fields: ['*'], presets: {} }, ...others });
  const all = { update: { access: true }, delete: { access: true }, share: { access: true } };
  t.strictSame(await asked(admin), all, 'an administrator has no rules');
  await sql`delete from service_collections where collection = 'banner'`;
  await sql`drop table banner`;
});

t.test('users of the app know the schema as far as their permissions go', async (t) => {
  const ask = (path: string, caller: { token: string } | null = screen): Promise<Answer> => send(caller, 'GET', path);
  const named = (data: unknown): string[] => (data as { collection: string }[]).map((each) => each.collection);
  const collections = named(dataOf(await ask('/collections')));
  t.ok(collections.includes('articles'));
  for (const hidden of ['authors', 'tags', 'comments', 'service_policies', 'service_permissions'])
    t.notOk(collections.includes(hidden), hidden);
  const { service_fields } = dataOf(await ask('/permissions/me')) as Record<string, unknown>;
  t.match(service_fields, { read: { access: 'full', fields: ['*'] }, update: { access: 'none' } });
  t.match(dataOf(await ask('/permissions/me', admin)), { service_fields: { update: { access: 'full' } } });
  for (const table of ['service_collections', 'service_fields', 'service_relations']) {
    t.ok(collections.includes(table), `the routes are read, so ${table} is known`);
    t.equal((await ask(`/collections/${table}`)).status, 200);
    t.match(dataOf(await ask(`/fields/${table}`)), dataOf(await ask(`/fields/${table}`, admin)));
  }
  t.equal((await ask('/collections/articles')).status, 200);
  t.equal((await ask('/collections/authors')).status, 403);
  const fields = dataOf(await ask('/fields/articles')) as { field: string }[];
  t.strictSame(fields.map(({ field }) => field).sort(), ['author', 'id', 'title']);
  t.equal((await ask('/fields/articles/title')).status, 200);
  t.equal((await ask('/fields/articles/body')).status, 403);
  t.equal((await ask('/fields/authors')).status, 403);
  t.ok(named(dataOf(await ask('/fields'))).every((name) => collections.includes(name)));
  for (const { collection, related_collection } of dataOf(await ask('/relations')) as Record<string, string | null>[]) {
    t.ok(collections.includes(collection ?? ''), `${collection}`);
    t.ok(related_collection === null || collections.includes(related_collection ?? ''), `${related_collection}`);
  }
  for (const path of ['/collections', '/fields', '/relations']) {
    t.equal((await ask(path, own)).status, 403, `${path} without the app`);
    t.equal((await ask(path, null)).status, 403, `${path} for the public`);
  }
  t.equal((await send(screen, 'POST', '/fields/articles', { field: 'more', type: 'string' })).status, 403);
  t.equal((await ask('/items/service_fields')).status, 403, 'what is said of other collections stays out of sight');
});

t.test('nobody makes more of themselves', async (t) => {
  const { id, role } = administrator as { id: string; role: string };
  const attempts: [caller: { token: string }, method: string, path: string, body: unknown][] = [
    [own, 'PATCH', '/users/me', { role }],
    [own, 'PATCH', '/users/me', { first_name: 'x', role }],
    [own, 'PATCH', '/users/me', { policies: [{ policy: adminPolicy?.['id'] }] }],
    [own, 'PATCH', '/users/me', { status: 'active' }],
    [own, 'PATCH', '/users/me', { token: 'a-new-token-for-myself' }],
    [own, 'PATCH', '/users/me', { id }],
    [own, 'PATCH', `/users/${id}`, { first_name: 'Eve' }],
    [own, 'PATCH', '/users', { query: { limit: -1 }, data: { role } }],
    [own, 'PATCH', '/items/articles/1', { editor: { id: own.user, role } }],
    [own, 'PATCH', '/items/articles/1', { editor: { id, first_name: 'Eve' } }],
    [own, 'PATCH', '/items/articles/1', { editor: { email: 'eve@example.com', role } }],
    [plain, 'PATCH', '/users/me', { role }],
    [plain, 'POST', '/access', { user: plain.user, policy: adminPolicy?.['id'] }],
    [plain, 'PATCH', `/policies/${plain.policies[0]}`, { admin_access: true }],
    [
      plain,
      'POST',
      '/permissions',
      { policy: plain.policies[0], collection: 'authors', action: 'read', fields: ['*'] },
    ],
    // Who may write these tables still cannot make an administrator.
    [manager, 'PATCH', '/users/me', { role }],
    [manager, 'POST', '/users', { email: 'eve@example.com', role, token: 'the-token-of-eve-the-admin' }],
    [manager, 'POST', '/access', { user: manager.user, policy: adminPolicy?.['id'] }],
    [manager, 'PATCH', `/policies/${manager.policies[0]}`, { admin_access: true }],
    [manager, 'PATCH', `/roles/${manager.role}`, { parent: role }],
    [
      manager,
      'PATCH',
      `/roles/${manager.role}`,
      { policies: { create: [{ policy: { name: 'x', admin_access: true } }] } },
    ],
    [
      manager,
      'POST',
      '/permissions',
      { policy: manager.policies[0], collection: 'authors', action: 'read', fields: ['*'] },
    ],
  ];
  const before = await snapshot();
  for (const [caller, method, path, body] of attempts) {
    const answer = await send(caller, method, path, body);
    // A key in the payload of an update only repeats which item is meant.
    const harmless = JSON.stringify(body) === JSON.stringify({ id });
    t.ok(
      answer.status === 403 || (harmless && answer.status < 400),
      `${method} ${path} ${JSON.stringify(body)}: ${answer.status}`,
    );
  }
  t.strictSame(await snapshot(), before, 'nothing was changed');
  t.equal((await send(own, 'PATCH', '/users/me', { title: 'Dr' })).status, 200);
  t.equal((await send(manager, 'PATCH', `/users/${own.user}`, { title: 'Prof' })).status, 200);
});

async function snapshot(): Promise<unknown> {
  const [row] = await sql`select
    (select json_agg(u order by id) from (select id, first_name, email, role, status, token from service_users) u) as users,
    (select json_agg(a order by id) from service_access a) as access,
    (select json_agg(p order by id) from service_policies p) as policies,
    (select json_agg(p order by id) from service_permissions p) as permissions,
    (select json_agg(r order by id) from service_roles r) as roles`;
  return row;
}

t.test('the last administrator stays', async (t) => {
  const { id, role } = administrator as { id: string; role: string };
  const [access] = await sql`select id from service_access where policy = ${adminPolicy?.['id']}`;
  const attempts: [method: string, path: string, body?: unknown][] = [
    ['DELETE', `/users/${id}`],
    ['DELETE', '/users', [id]],
    ['DELETE', '/users', { query: { limit: -1 } }],
    ['PATCH', `/users/${id}`, { status: 'suspended' }],
    ['PATCH', `/users/${id}`, { role: null }],
    ['PATCH', `/users/${id}`, { role: plain.role }],
    ['PATCH', '/users/me', { role: plain.role }],
    ['PATCH', '/users', { query: { limit: -1 }, data: { status: 'archived' } }],
    ['DELETE', `/roles/${role}`],
    ['PATCH', `/roles/${role}`, { policies: [] }],
    ['PATCH', `/roles/${role}`, { users: { delete: [id] } }],
    ['DELETE', `/policies/${adminPolicy?.['id']}`],
    ['PATCH', `/policies/${adminPolicy?.['id']}`, { admin_access: false }],
    ['DELETE', `/access/${access?.['id']}`],
  ];
  for (const [method, path, body] of attempts) {
    const answer = await send(admin, method, path, body);
    t.equal(answer.status, 422, `${method} ${path} ${JSON.stringify(body)}: ${answer.text.slice(0, 200)}`);
  }
  const second = await send(admin, 'POST', '/users?fields=id', { email: 'second@example.com', role });
  t.equal((await send(admin, 'DELETE', `/users/${(dataOf(second) as { id: string }).id}`)).status, 204);
});

t.test('nobody else makes an administrator of the public, or comes in as an administrator', async (t) => {
  const { id, role } = administrator as { id: string; role: string };
  const open = await makePolicy(sql, 'open', { permissions: [allow('tags', 'read')] });
  // Who may do everything, but only from elsewhere.
  const away = await makeCaller(sql, 'away', [{ admin_access: true }, { permissions: [allow('tags', 'read')] }]);
  await sql`update service_policies set ip_access = '203.0.113.7' where id = ${away.policies[0] as string}`;
  const [resting] = await sql`
    insert into service_users (email, role, status) values ('resting@example.com', ${role}, 'suspended') returning id`;
  const [awayAccess] = await sql`select id from service_access where policy = ${away.policies[0] as string}`;
  const attempts: [method: string, path: string, body: unknown][] = [
    ['POST', '/access', { policy: adminPolicy?.['id'] }],
    ['PATCH', `/policies/${open}`, { admin_access: true }],
    ['POST', '/policies', { name: 'x', admin_access: true, users: [{}] }],
    ['PATCH', `/policies/${away.policies[0]}`, { ip_access: null }],
    ['POST', '/access', { user: away.user, policy: adminPolicy?.['id'] }],
    ...['draft', 'invited', 'unverified', 'suspended', 'archived'].map((status): [string, string, unknown] => [
      'POST',
      '/users',
      { email: 'eve@example.com', status, role },
    ]),
    ['PATCH', `/users/${resting?.['id']}`, { status: 'active' }],
    ['PATCH', `/users/${resting?.['id']}`, { password: 'chosen by another' }],
    ['PATCH', `/users/${away.user}`, { token: 'chosen-by-another' }],
    ...[
      { password: 'chosen by another' },
      { token: 'chosen-by-another' },
      { token: null },
      { email: 'eve@example.com' },
      { provider: 'another', external_identifier: 'eve' },
      { external_identifier: 'eve' },
      { auth_data: { eve: true } },
      { first_name: 'Eve', token: 'chosen-by-another' },
    ].flatMap((change): [string, string, unknown][] => [
      ['PATCH', `/users/${id}`, change],
      ['PATCH', '/users', { query: { filter: { id: { _eq: id } } }, data: change }],
      ['PATCH', `/roles/${role}`, { users: { update: [{ id, ...change }], create: [], delete: [] } }],
    ]),
    // There is another administrator: it is not the last one that is kept here.
    ['PATCH', `/users/${away.user}`, { role: plain.role, token: 'chosen-by-another' }],
    ['PATCH', `/users/${away.user}`, { role: plain.role }],
    ['PATCH', `/users/${away.user}`, { status: 'archived' }],
    ['DELETE', `/users/${away.user}`, undefined],
    ['DELETE', '/users', [away.user]],
    ['DELETE', '/users', { keys: [plain.user, resting?.['id']] }],
    ['DELETE', '/users', { query: { filter: { id: { _in: [away.user, id] } } } }],
    ['PATCH', `/roles/${role}`, { users: { create: [], update: [], delete: [resting?.['id']] } }],
    ['POST', '/graphql/system', { query: `mutation { delete_users_item(id: "${away.user}") { id } }` }],
    ['POST', '/graphql/system', { query: `mutation { delete_users_items(ids: ["${away.user}"]) { ids } }` }],
    ['DELETE', `/roles/${away.role}`, undefined],
    ['DELETE', `/policies/${away.policies[0]}`, undefined],
    ['PATCH', `/policies/${away.policies[0]}`, { admin_access: false }],
    ['PATCH', `/policies/${away.policies[0]}`, { ip_access: '203.0.113.8' }],
    ['PATCH', `/policies/${away.policies[0]}`, { roles: [] }],
    ['DELETE', `/access/${awayAccess?.['id']}`, undefined],
    ['PATCH', `/access/${awayAccess?.['id']}`, { policy: open }],
  ];
  const before = await snapshot();
  for (const [method, path, body] of attempts) {
    const answer = await send(manager, method, path, body);
    const { errors } = (answer.json ?? {}) as { errors?: { extensions: { code: string } }[] };
    t.equal(
      errors?.[0]?.extensions.code,
      'FORBIDDEN',
      `${method} ${path} ${JSON.stringify(body)}: ${answer.text.slice(0, 200)}`,
    );
  }
  t.strictSame(await snapshot(), before, 'nothing was changed');
  t.equal((await send(null, 'GET', '/users')).status, 403);
  t.equal((await send(manager, 'PATCH', `/users/${id}`, { title: 'Dr' })).status, 200, 'what lets nobody in');
  t.equal((await send(manager, 'PATCH', `/users/${plain.user}`, { email: 'simple@example.com' })).status, 200);
  t.equal((await send(admin, 'PATCH', `/users/${resting?.['id']}`, { status: 'active', token: 'awake' })).status, 200);
  t.equal((await send(admin, 'DELETE', '/users', [resting?.['id'], away.user])).status, 204);
  t.equal((await send(admin, 'DELETE', `/policies/${away.policies[0]}`)).status, 204);
  t.equal((await send(admin, 'DELETE', `/policies/${open}`)).status, 204);
});

t.test('nobody deletes an administrator together with what they refer to', async (t) => {
  const away = await makeCaller(sql, 'boss', [{ admin_access: true }]);
  const other = await makeCaller(sql, 'other', []);
  await sql`create table companies (id integer primary key, name text)`;
  await sql`create table teams (id integer primary key, company integer references companies on delete cascade)`;
  await sql`insert into companies values (1, 'a'), (2, 'b')`;
  await sql`insert into teams values (1, 1), (2, 2)`;
  await sql`insert into service_relations (many_collection, many_field, one_collection, one_field, one_deselect_action)
    values ('teams', 'company', 'companies', 'teams', 'delete')`;
  await sql`alter table service_users add column team integer references teams on delete cascade`;
  await sql`update service_users set team = 1 where id = ${away.user}`;
  await sql`update service_users set team = 2 where id = ${other.user}`;
  const rights = ['read', 'update', 'delete'] as const;
  const clerk = await makeCaller(sql, 'clerk', [
    { permissions: ['teams', 'companies'].flatMap((each) => rights.map((action) => allow(each, action))) },
  ]);
  await waitFor(async () => (await send(clerk, 'GET', '/items/companies?fields=teams.id')).status === 200, 5_000);
  const attempts: [method: string, path: string, body?: unknown][] = [
    ['DELETE', '/items/teams/1'],
    ['DELETE', '/items/companies', [1]],
    ['DELETE', '/items/companies', { query: { limit: -1 } }],
    ['PATCH', '/items/companies/1', { teams: [] }],
    ['PATCH', '/items/companies/1', { teams: { create: [], update: [], delete: [1] } }],
  ];
  for (const [method, path, body] of attempts) {
    const { text } = await send(clerk, method, path, body);
    t.match(text, '"code":"FORBIDDEN"', `${method} ${path} ${JSON.stringify(body)}: ${text}`);
  }
  const left = async (): Promise<number> =>
    (await sql`select from service_users where id in (${away.user}, ${other.user})`).length;
  t.equal(await left(), 2);
  t.equal(
    (await send(clerk, 'PATCH', '/items/companies/2', { teams: [] })).status,
    200,
    'other users may be deleted so',
  );
  t.equal(await left(), 1);
  t.equal((await send(admin, 'DELETE', '/items/companies/1')).status, 204);
  t.equal(await left(), 0);
  await sql`alter table service_users drop column team`;
  await sql`drop table teams, companies`;
});

t.test('an import gets nothing past these guards', async (t) => {
  const { id, role } = administrator as { id: string; role: string };
  await sql`update service_settings set auth_password_policy = '/^.{8,}$/'`;
  const attempts: [caller: { token: string }, editor: object, code: string][] = [
    [importer, { id: importer.user, role }, 'FORBIDDEN'],
    [importer, { email: 'eve@example.com', role, token: 'the-token-of-eve-the-admin' }, 'FORBIDDEN'],
    [importer, { id, token: 'chosen-by-another' }, 'FORBIDDEN'],
    [importer, { id: importer.user, password: 'short' }, 'FAILED_VALIDATION'],
    [admin, { id, status: 'suspended' }, 'UNPROCESSABLE_CONTENT'],
  ];
  const before = await snapshot();
  for (const [caller, editor, code] of attempts) {
    const rows = [{ title: 'imported' }, { title: 'imported too', editor }];
    const answer = await send(caller, 'POST', '/utils/import/articles', rows);
    t.match(
      answer.json,
      { errors: [{ extensions: { code, rows: [2] } }] },
      `${JSON.stringify(editor)}: ${answer.text}`,
    );
  }
  t.strictSame(await snapshot(), before, 'nothing was changed');
  t.strictSame([...(await sql`select id from articles where title like 'imported%'`)], []);
  t.equal((await send(importer, 'GET', '/policies')).status, 403);

  // What is allowed acts before the answer, as it does with any other write.
  const token = 'the-token-that-was-imported';
  const editor = { id: importer.user, token };
  t.equal((await send(importer, 'POST', '/utils/import/articles', [{ title: 'imported', editor }])).status, 200);
  t.equal((await send({ token }, 'GET', '/users/me')).status, 200);
  t.equal((await send(importer, 'GET', '/users/me')).status, 401, 'the old token is forgotten');
  await sql`delete from articles where title = 'imported'`;
});

t.test('roles inherit the policies of those above them', async (t) => {
  const child = await makeCaller(sql, 'child', [{ permissions: [allow('tags', 'read', { id: 1 }, ['id'])] }]);
  await sql`update service_roles set parent = ${plain.role} where id = ${child.role}`;
  for (const name of ['articles', 'tags'])
    await waitFor(async () => (await send(child, 'GET', `/items/${name}?fields=id&limit=1`)).status === 200, 5_000);
  t.strictSame(dataOf(await send(child, 'GET', '/items/tags')), [{ id: 1 }]);
  await sql`update service_roles set parent = ${child.role} where id = ${plain.role}`;
  t.equal((await send(child, 'GET', '/items/tags')).status, 200, 'a circle of roles is no endless one');
  await sql`update service_roles set parent = null`;
});

t.test('changes of policies and roles act on every instance at once', async (t) => {
  const caller = await makeCaller(sql, 'changing', [{ permissions: [] }]);
  const seen = async (): Promise<number> =>
    (await request(other, 'GET', '/items/tags?limit=1', { token: caller.token })).status;
  const changes: [what: string, expected: number, change: () => Promise<unknown>][] = [
    ['a permission is given', 200, () => addPermission(sql, caller.policies[0] as string, allow('tags', 'read'))],
    [
      'a permission is taken',
      403,
      () => sql`delete from service_permissions where policy = ${caller.policies[0] as string}`,
    ],
    [
      'a policy is handed to the user',
      200,
      () => makePolicy(sql, 'extra', { permissions: [allow('tags', 'read')] }, { user: caller.user }),
    ],
    ['the link is removed', 403, () => sql`delete from service_access where "user" = ${caller.user}`],
    [
      'the role changes',
      200,
      () => sql`update service_users set role = ${administrator?.['role']} where id = ${caller.user}`,
    ],
    ['the role changes back', 403, () => sql`update service_users set role = ${caller.role} where id = ${caller.user}`],
    [
      'a role above it',
      200,
      () => sql`update service_roles set parent = ${administrator?.['role']} where id = ${caller.role}`,
    ],
    ['no role above it', 403, () => sql`update service_roles set parent = null where id = ${caller.role}`],
    [
      "the policy becomes an administrator's",
      200,
      () => sql`update service_policies set admin_access = true where id = ${caller.policies[0] as string}`,
    ],
    [
      'and no longer',
      403,
      () => sql`update service_policies set admin_access = false where id = ${caller.policies[0] as string}`,
    ],
    ['the user is suspended', 401, () => sql`update service_users set status = 'suspended' where id = ${caller.user}`],
  ];
  await waitFor(async () => (await seen()) === 403, 5_000);
  for (const [what, expected, change] of changes) {
    await change();
    const took = await waitFor(async () => (await seen()) === expected, 5_000);
    t.ok(took < 1_000, `${what}: ${Math.round(took)} ms`);
  }
  // Through the API it acts before the answer.
  for (const [permission, status] of [
    ['read', 200],
    ['update', 403],
  ] as const) {
    await send(admin, 'PATCH', `/policies/${plain.policies[0]}`, {
      permissions: [{ collection: 'tags', action: permission, fields: ['*'] }],
    });
    t.equal((await send(plain, 'GET', '/items/tags')).status, status);
  }
});

t.test('the activity is written together with the change', async (t) => {
  await sql`truncate service_activity, service_revisions`;
  await sql`update service_collections set accountability = 'activity' where collection = 'comments'`;
  await sql`update service_collections set accountability = null where collection = 'authors'`;
  await waitFor(async () => {
    await send(admin, 'PATCH', '/items/authors/2', { bio: String(Math.random()) });
    const [row] = await sql`delete from service_activity returning 1`;
    return row === undefined;
  }, 5_000);
  await sql`truncate service_activity, service_revisions`;
  const made = await send(admin, 'POST', '/items/articles?fields=id', {
    title: 'recorded',
    author: { name: 'Not recorded' },
    comments: [{ body: 'recorded' }, { body: 'too' }],
  });
  const { id } = dataOf(made) as { id: number };
  await send(admin, 'PATCH', `/items/articles/${id}`, { title: 'again', views: 3, comments: [] });
  await send(admin, 'DELETE', `/items/articles/${id}`);
  const activity = await sql`
    select action, collection, "user", ip is not null as addressed from service_activity order by id`;
  t.strictSame(activity.map(({ action, collection }) => `${action} ${collection}`).sort(), [
    'create articles',
    'create comments',
    'create comments',
    'delete articles',
    'update articles',
    'update comments',
    'update comments',
  ]);
  t.ok(activity.every(({ user, addressed }) => user === administrator?.['id'] && addressed));
  const revisions = dataOf(
    await send(
      admin,
      'GET',
      `/revisions?filter[item][_eq]=${id}&filter[collection][_eq]=articles&sort=id&fields=data,delta,activity.action`,
    ),
  );
  t.match(revisions, [
    { data: { id, title: 'recorded' }, delta: { title: 'recorded' }, activity: { action: 'create' } },
    { data: { id, title: 'again', views: 3 }, activity: { action: 'update' } },
  ]);
  t.strictSame((revisions as { delta: unknown }[])[1]?.delta, { title: 'again', views: 3 });
  await send(admin, 'PATCH', `/users/${own.user}`, {
    password: 'another long one',
    token: 'a-token-that-is-long-enough',
  });
  const [revision] =
    await sql`select data::text, delta::text from service_revisions where collection = 'service_users'`;
  t.match(revision?.['delta'], /\*{10}/);
  t.notMatch(revision?.['data'] + revision?.['delta'], /argon2|[0-9a-f]{64}|another long one|long-enough/);
  // What is refused leaves no trace.
  const [before] = await sql`select count(*)::int from service_activity`;
  t.equal((await send(admin, 'PATCH', '/items/articles/99999', { title: 'x' })).status, 403);
  t.equal((await send(admin, 'POST', '/items/articles', { title: null })).status, 400);
  t.strictSame((await sql`select count(*)::int from service_activity`)[0], before);
  t.equal((await send(manager, 'GET', '/activity')).status, 403);
});
