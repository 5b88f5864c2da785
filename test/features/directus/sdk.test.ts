/** The family's own SDK as a client: its commands for items, structure, access, accounts and the server do what they promise. */
import {
  acceptUserInvite,
  aggregate,
  authentication,
  clearCache,
  createCollection,
  createDirectus,
  createField,
  createItem,
  createItems,
  createPermission,
  createPermissions,
  createPolicies,
  createPolicy,
  createRelation,
  createRole,
  createRoles,
  createUser,
  createUsers,
  deleteCollection,
  deleteField,
  deleteItem,
  deleteItems,
  deletePermission,
  deletePermissions,
  deletePolicies,
  deletePolicy,
  deleteRelation,
  deleteRole,
  deleteRoles,
  deleteUser,
  deleteUsers,
  disableTwoFactor,
  enableTwoFactor,
  generateTwoFactorSecret,
  graphql,
  inviteUser,
  login,
  logout,
  passwordRequest,
  passwordReset,
  randomString,
  readActivities,
  readActivity,
  readAssetArrayBuffer,
  readCollection,
  readCollections,
  readField,
  readFields,
  readFieldsByCollection,
  readFiles,
  readGraphqlSdl,
  readItem,
  readItemPermissions,
  readItems,
  readMe,
  readOpenApiSpec,
  readPermission,
  readPermissions,
  readPolicies,
  readPolicy,
  readPolicyGlobals,
  readProviders,
  readRelation,
  readRelationByCollection,
  readRelations,
  readRevision,
  readRevisions,
  readRole,
  readRoles,
  readRolesMe,
  readSettings,
  readSingleton,
  readUser,
  readUserPermissions,
  readUsers,
  refresh,
  registerUser,
  registerUserVerify,
  rest,
  schemaApply,
  schemaDiff,
  schemaSnapshot,
  serverHealth,
  serverInfo,
  serverPing,
  staticToken,
  updateCollection,
  updateCollectionsBatch,
  updateField,
  updateFields,
  updateItem,
  updateItems,
  updateItemsBatch,
  updateMe,
  updatePermission,
  updatePermissions,
  updatePolicies,
  updatePolicy,
  updateRelation,
  updateRole,
  updateRoles,
  updateRolesBatch,
  updateSettings,
  updateSingleton,
  updateUser,
  updateUsers,
  updateUsersBatch,
  utilitySort,
  utilsExport,
  utilsImport,
  withSearch,
  withToken,
} from '@directus/sdk';
import t from 'tap';
import { mailbox } from '../../support/mailbox.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  makeFolder,
  startDatabase,
  startTestService,
  type TestOptions,
  waitFor,
} from '../../support/service.js';
import { codeOf } from '../../support/users.js';

interface Article {
  id: number;
  title: string;
  views: number;
  status: string;
  published_at: 'datetime' | null;
  author: number | Author | null;
  comments: number[] | Comment[];
}

interface Author {
  id: number;
  name: string;
}

interface Comment {
  id: number;
  body: string | null;
  article: number | Article | null;
}

interface Tag {
  id: number;
  name: string | null;
  sort: number | null;
}

interface Schema {
  articles: Article[];
  authors: Author[];
  comments: Comment[];
  tags: Tag[];
  site: { id: number; title: string | null };
}

t.setTimeout(120_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'sdk');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table site (id serial primary key, title text);
  alter table tags add column sort integer;
  insert into service_collections (collection, singleton) values ('site', true);
  update service_collections set sort_field = 'sort' where collection = 'tags';`);
const mails = await mailbox();
const service = await startTestService({
  ...{ databaseUrl, EMAIL_TRANSPORT: mails.transport, LOGIN_STALL_TIME: '0' },
  ...{ STORAGE_LOCAL_ROOT: await makeFolder() },
} as TestOptions);
const client = createDirectus<Schema>(service.url).with(staticToken(ADMIN_TOKEN)).with(rest()).with(graphql());
const PASSWORD = 'a long enough password';

t.test('items', async (t) => {
  const made = await client.request(
    createItem('articles', { title: 'By the SDK', views: 3, author: 1 }, { fields: ['id', { author: ['name'] }] }),
  );
  t.match(made, { id: Number, author: { name: 'Ada Lovelace' } });
  const list = await client.request(createItems('tags', [{ name: 'x' }, { name: 'y' }], { fields: ['id'] }));
  const keys = list.map(({ id }) => id);
  t.equal(keys.length, 2);
  const read = () =>
    readItems<Schema, 'articles', object>('articles', {
      fields: ['id', 'title', 'year(published_at)', { comments: ['body'] }],
      filter: { _and: [{ published_at: { _gte: '2023-01-01' } }, { comments: { _some: { body: { _nnull: true } } } }] },
      sort: ['-id'],
      limit: 2,
      deep: { comments: { _limit: 1 } },
    });
  const found = [{ id: 8, published_at_year: 2023, comments: [{ body: 'on beta' }] }, { id: 6 }];
  t.match(await client.request(read()), found);
  t.match(await client.request(withSearch(read())), found);
  t.match(await client.request(readItem('articles', 1, { fields: ['title'] })), { title: 'Hello World' });
  t.match(await client.request(updateItem('articles', made.id, { title: 'Changed' })), { title: 'Changed' });
  t.match(await client.request(updateItems('tags', keys, { name: 'both' })), [{ name: 'both' }, { name: 'both' }]);
  t.match(await client.request(updateItems('tags', { filter: { name: { _eq: 'both' } } }, { name: 'by query' })), [
    { name: 'by query' },
    { name: 'by query' },
  ]);
  t.match(await client.request(updateItemsBatch('tags', [{ id: keys[0] ?? 0, name: 'batch' }])), [{ name: 'batch' }]);
  const counted = await client.request(
    aggregate('articles', { aggregate: { count: '*', sum: ['views'] }, groupBy: ['status'], query: { limit: 1 } }),
  );
  t.match(counted, [{ status: String, sum: { views: /^\d+$|^-?\d/ } }]);
  t.match(await client.request(updateSingleton('site', { title: 'Magazine' })), { title: 'Magazine' });
  t.match(await client.request(readSingleton('site')), { title: 'Magazine' });
  await client.request(utilitySort('tags', keys[1] ?? 0, keys[0] ?? 0));
  t.equal(await client.request(deleteItem('articles', made.id)), null);
  t.equal(await client.request(deleteItems('tags', keys)), null);
  const error = await client.request(readItem('articles', 99_999)).catch((caught: unknown) => caught);
  t.match(error, { errors: [{ extensions: { code: 'FORBIDDEN' } }], response: { status: 403 } });
  t.match(await client.query('query ($id: ID!) { articles_by_id(id: $id) { title } }', { id: 1 }), {
    articles_by_id: { title: 'Hello World' },
  });
});

t.test('collections, fields and relations', async (t) => {
  const key = { field: 'id', type: 'integer', schema: { is_primary_key: true, has_auto_increment: true } } as const;
  for (const collection of ['s_bills', 's_lines'])
    t.match(
      await client.request(
        createCollection({ collection, schema: { name: collection }, meta: { icon: 'bill' }, fields: [key] } as object),
      ),
      { collection, meta: { icon: 'bill' } },
    );
  const name = 's_lines' as 'tags';
  t.match(await client.request(createField(name, { field: 'bill', type: 'integer', meta: { special: ['m2o'] } })), {
    field: 'bill',
  });
  const relation = {
    collection: 's_lines',
    field: 'bill',
    related_collection: 's_bills',
    meta: { one_field: 'lines' },
  };
  t.match(await client.request(createRelation(relation as object)), { meta: { one_field: 'lines' } });
  const alias = { field: 'lines', type: 'alias', meta: { special: ['o2m'] } };
  t.match(await client.request(createField('s_bills' as 'tags', alias)), { type: 'alias' });
  t.ok((await client.request(readCollections())).some(({ collection }) => collection === 's_lines'));
  t.match(await client.request(readCollection('s_lines' as 'tags')), { collection: 's_lines' });
  t.match(await client.request(updateCollection('s_lines' as 'tags', { meta: { note: 'Lines' } } as object)), {
    meta: { note: 'Lines' },
  });
  await client.request(updateCollectionsBatch([{ collection: 's_lines', meta: { icon: 'line' } } as object]));
  t.ok((await client.request(readFields())).length > 50);
  t.equal((await client.request(readFieldsByCollection(name))).length, 2);
  t.match(await client.request(readField(name, 'bill' as 'name')), { type: 'integer' });
  t.match(await client.request(updateField(name, 'bill' as 'name', { meta: { note: 'x' } })), { meta: { note: 'x' } });
  t.match(await client.request(updateFields(name, [{ field: 'bill', meta: { note: 'y' } }])), [
    { meta: { note: 'y' } },
  ]);
  t.ok((await client.request(readRelations())).every(({ meta }) => meta !== null));
  t.equal((await client.request(readRelationByCollection(name))).length, 1);
  t.match(await client.request(readRelation(name, 'bill' as 'name')), { related_collection: 's_bills' });
  t.match(
    await client.request(updateRelation(name, 'bill' as 'name', { schema: { on_delete: 'CASCADE' } } as object)),
    { schema: { on_delete: 'CASCADE' } },
  );
  const snapshot = await client.request(schemaSnapshot());
  await client.request(deleteRelation(name, 'bill' as 'name'));
  await client.request(deleteField(name, 'bill' as 'name'));
  await client.request(deleteCollection('s_lines' as 'tags'));
  const difference = await client.request(schemaDiff(snapshot));
  await client.request(schemaApply(difference));
  t.match(await client.request(readRelation(name, 'bill' as 'name')), { related_collection: 's_bills' });
  t.equal(await client.request(schemaDiff(snapshot)), null, 'nothing differs');
});

t.test('users, roles, policies and permissions', async (t) => {
  const role = await client.request(createRole({ name: 'Editor' }));
  const roles = await client.request(createRoles([{ name: 'R1' }, { name: 'R2' }]));
  t.match(await client.request(updateRole(role.id, { icon: 'pen' })), { icon: 'pen' });
  await client.request(updateRoles([role.id], { description: 'Edits' }));
  await client.request(updateRolesBatch([{ id: role.id, description: 'Writes' }]));
  t.match(await client.request(readRole(role.id)), { description: 'Writes' });
  t.ok((await client.request(readRoles())).length > 3);
  const policy = await client.request(createPolicy({ name: 'Edit', app_access: true }));
  const policies = await client.request(createPolicies([{ name: 'P1' }, { name: 'P2' }]));
  t.match(await client.request(updatePolicy(policy.id, { description: 'x' })), { description: 'x' });
  await client.request(updatePolicies([policy.id], { icon: 'key' }));
  t.match(await client.request(readPolicy(policy.id)), { icon: 'key' });
  t.ok((await client.request(readPolicies())).length > 3);
  const grant = { policy: policy.id, collection: 'articles', action: 'read', fields: ['*'] } as const;
  const permission = await client.request(createPermission({ ...grant, fields: ['*'] } as object));
  const more = await client.request(
    createPermissions([
      { ...grant, action: 'update', fields: ['*'] } as object,
      { ...grant, action: 'delete' } as object,
    ]),
  );
  await client.request(updatePermission(permission.id, { permissions: { id: { _lt: 3 } } } as object));
  await client.request(
    updatePermissions(
      more.map(({ id }) => id),
      { fields: ['title'] },
    ),
  );
  t.match(await client.request(readPermission(permission.id)), { permissions: { id: { _lt: 3 } } });
  t.ok((await client.request(readPermissions())).length >= 3);
  const wrong = client.request(createPermission({ ...grant, collection: 'artikles' } as object));
  t.match(await wrong.catch((caught: unknown) => caught), { errors: [{ message: /doesn't exist/ }] });
  await sql`insert into service_access (role, policy) values (${role.id}, ${policy.id})`;
  const user = await client.request(createUser({ email: 'ed@example.com', password: PASSWORD, role: role.id }));
  const users = await client.request(createUsers([{ email: 'u1@example.com' }, { email: 'u2@example.com' }]));
  t.match(await client.request(updateUser(user.id, { first_name: 'Ed' })), { first_name: 'Ed' });
  await client.request(
    updateUsers(
      users.map(({ id }) => id),
      { title: 'x' },
    ),
  );
  await client.request(updateUsersBatch([{ id: user.id, title: 'y' }]));
  t.match(await client.request(readUser(user.id, { fields: ['title'] })), { title: 'y' });
  t.ok((await client.request(readUsers({ filter: { role: { _eq: role.id } } }))).length === 1);

  const editor = createDirectus<Schema>(service.url).with(authentication('json')).with(rest());
  t.match(await editor.login({ email: 'ed@example.com', password: PASSWORD }), {
    access_token: String,
    expires: Number,
  });
  t.match(await editor.request(readMe({ fields: ['id', 'email'] })), { id: user.id, email: 'ed@example.com' });
  t.match(await editor.request(updateMe({ first_name: 'Edith' })), { first_name: 'Edith' });
  t.match(await editor.request(readRolesMe()), [{ id: role.id }]);
  t.match(await editor.request(readPolicyGlobals()), { app_access: true });
  t.match(await editor.request(readUserPermissions()), { articles: { read: { access: 'partial' } } });
  t.match(await editor.request(readItemPermissions('articles', 1)), { update: { access: true } });
  t.strictSame(
    (await editor.request(readItems('articles', { fields: ['id'], limit: -1 }))).map(({ id }) => id),
    [1, 2],
  );
  t.match(await editor.refresh(), { access_token: String });
  const { secret } = await editor.request(generateTwoFactorSecret(PASSWORD));
  await editor.request(enableTwoFactor(secret, codeOf(secret)));
  await editor.request(disableTwoFactor(codeOf(secret, 1)));
  await editor.logout();
  t.match(await editor.request(readMe()).catch((caught: unknown) => caught), { response: { status: 401 } });

  for (const command of [
    deleteUser(user.id),
    deleteUsers(users.map(({ id }) => id)),
    deletePermission(permission.id),
    deletePermissions(more.map(({ id }) => id)),
    deletePolicy(policy.id),
    deletePolicies(policies.map(({ id }) => id)),
    deleteRole(role.id),
    deleteRoles(roles.map(({ id }) => id)),
  ])
    t.equal(await client.request(command), null);
});

t.test('accounts: log in, invite, register, new passwords', async (t) => {
  const stranger = createDirectus<Schema>(service.url).with(rest());
  const role = await client.request(createRole({ name: 'Guest' }));
  await client.request(inviteUser('guest@example.com', role.id));
  const tokenIn = (link: string): string => new URL(link).searchParams.get('token') ?? '';
  await stranger.request(acceptUserInvite(tokenIn(await mails.link('guest@example.com')), PASSWORD));
  const email = 'guest@example.com';
  const tokens = await stranger.request(login({ email, password: PASSWORD }, { mode: 'json' }));
  t.match(tokens, { access_token: String, refresh_token: String, expires: Number });
  const renewed = await stranger.request(refresh({ mode: 'json', refresh_token: tokens.refresh_token ?? '' }));
  t.match(await stranger.request(withToken(renewed.access_token ?? '', readMe())), { id: String });
  await stranger.request(logout({ mode: 'json', refresh_token: renewed.refresh_token ?? '' }));
  await stranger.request(passwordRequest(email));
  await stranger.request(passwordReset(tokenIn(await mails.link(email)), `${PASSWORD}!`));
  t.ok(await stranger.request(login({ email, password: `${PASSWORD}!` }, { mode: 'json' })));
  await client.request(updateSettings({ public_registration: true }));
  t.match(await client.request(readSettings()), { public_registration: true });
  await stranger.request(registerUser('new@example.com', PASSWORD, { first_name: 'New' }));
  await stranger.request(registerUserVerify(tokenIn(await mails.link('new@example.com'))));
  t.ok(await stranger.request(login({ email: 'new@example.com', password: PASSWORD }, { mode: 'json' })));
  t.strictSame(await stranger.request(readProviders()), []);
});

t.test('the server, utilities and history', async (t) => {
  t.equal(await client.request(serverPing()), 'pong');
  t.match(await client.request(serverInfo()), { project: { project_name: 'Lateral' } });
  t.match(await client.request(serverHealth()), { status: 'ok' });
  t.match(await client.request(readOpenApiSpec()), { openapi: /^3/, paths: {} });
  t.match(await client.request(readGraphqlSdl('item')), /type articles/);
  t.match(await client.request(randomString(12)), /^[\w-]{12}$/);
  await client.request(clearCache());
  const query = { fields: ['name'], limit: 1, sort: ['id'] } as const;
  t.equal(await client.request(utilsExport('tags', 'csv', query as never, { title: 'Tags' })), null);
  const exported = () => client.request(readFiles({ filter: { title: { _eq: 'Tags' } }, fields: ['id'] }));
  await waitFor(async () => (await exported()).length === 1, 10_000);
  const bytes = await client.request(readAssetArrayBuffer(String((await exported())[0]?.['id'])));
  t.equal(Buffer.from(bytes).toString(), 'name\nnews\n');
  const form = new FormData();
  form.append('file', new Blob(['name\nimported\n'], { type: 'text/csv' }), 'tags.csv');
  await client.request(utilsImport('tags', form));
  t.equal((await client.request(readItems('tags', { filter: { name: { _eq: 'imported' } } }))).length, 1);
  const [activity] = await client.request(readActivities({ sort: ['-id'], limit: 1 }));
  t.match(await client.request(readActivity(activity?.id ?? 0)), { id: activity?.id });
  const [revision] = await client.request(readRevisions({ sort: ['-id'], limit: 1 }));
  t.match(await client.request(readRevision(revision?.id ?? 0)), { id: revision?.id });
});
