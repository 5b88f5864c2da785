/** DIRECTUS_COMPATIBILITY: the schema in the words of Directus, for tools that were made for it. */
import t from 'tap';
import { inForce, makeCaller } from '../../support/callers.js';
import { createLibrary, get, request, startDatabase, startTestService, withSql } from '../../support/service.js';

const server = await startDatabase();

function dataOf<Data = unknown>({ json }: { readonly json: unknown }): Data {
  return (json as { data: Data }).data;
}

t.test('system tables have the names of Directus, in both directions', async (t) => {
  const url = await createLibrary(server, 'family');
  const service = await startTestService({ databaseUrl: url, DIRECTUS_COMPATIBILITY: 'true' });
  const send = (method: string, path: string, body: unknown) =>
    request(service, method, path, { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

  t.match((await get(service, '/collections/directus_users')).json, {
    data: { collection: 'directus_users', meta: { collection: 'directus_users' } },
  });
  t.match((await get(service, '/fields/directus_users/password')).json, {
    data: { collection: 'directus_users', meta: { special: ['hash', 'conceal'] }, schema: { table: 'directus_users' } },
  });
  t.match((await get(service, '/fields/articles/id')).json, { data: { meta: { special: null } } });

  const field = {
    field: 'editor',
    type: 'uuid',
    meta: { special: ['m2o'], options: { collection: 'directus_users' } },
  };
  t.match((await send('POST', '/fields/articles', field)).json, {
    data: { meta: { special: ['m2o'], options: { collection: 'directus_users' } } },
  });
  const relation = { collection: 'articles', field: 'editor', related_collection: 'directus_users', schema: {} };
  const described = {
    collection: 'articles',
    related_collection: 'directus_users',
    schema: { foreign_key_table: 'directus_users' },
    meta: { one_collection: 'directus_users' },
  };
  t.match((await send('POST', '/relations', relation)).json, { data: described });
  t.match((await get(service, '/relations/articles/editor')).json, { data: described });
  t.match((await get(service, '/relations/directus_users')).json, { data: [{ related_collection: 'directus_roles' }] });
  t.match((await get(service, '/items/articles/1?fields=editor.email')).json, { data: { editor: null } });

  const { text } = await send('POST', '/graphql/system', {
    query: '{ fields_by_name(collection: "directus_users", field: "password") { collection meta { special } } }',
  });
  t.match(text, /"collection":"directus_users".*hash/, 'GraphQL has the names, and answers as its schema says');
  t.notMatch(text, /errors/);
  await service.stop();
});

t.test('rows, filters, rules and errors have the names of Directus', async (t) => {
  const url = await createLibrary(server, 'rows');
  const service = await startTestService({ databaseUrl: url, DIRECTUS_COMPATIBILITY: 'true' });
  const send = (method: string, path: string, body: unknown) =>
    request(service, method, path, { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

  const policy = dataOf<{ id: string }>(await send('POST', '/policies', { name: 'Readers' })).id;
  const rule = {
    _or: [{ collection: { _eq: 'directus_users' } }, { collection: { _in: ['directus_roles', 'articles'] } }],
  };
  const created = await send('POST', '/permissions', {
    policy,
    collection: 'directus_presets',
    action: 'read',
    fields: ['*'],
    permissions: rule,
  });
  t.match(created.json, { data: { collection: 'directus_presets', permissions: rule } });
  const [stored] = await withSql(
    url,
    (sql) => sql`select collection, permissions::text as rule from service_permissions where policy = ${policy}`,
  );
  t.match(
    stored,
    { collection: 'service_presets', rule: /directus_users.*directus_roles/ },
    'the name is ours, the rule as it was written',
  );

  const names = async (query: string) =>
    dataOf(await get(service, `/permissions?fields=collection&filter[policy][_eq]=${policy}&${query}`));
  const expected = [{ collection: 'directus_presets' }];
  t.strictSame(await names('filter[collection][_eq]=directus_presets'), expected);
  t.strictSame(await names('filter[collection][_in]=directus_presets,articles'), expected);
  t.strictSame(await names('filter[collection][_eq]=service_presets'), expected, 'ours is a synonym');
  const whole = encodeURIComponent(
    JSON.stringify({ collection: { _eq: 'directus_presets' }, policy: { _eq: policy } }),
  );
  t.strictSame(dataOf(await get(service, `/permissions?fields=collection&filter=${whole}`)), expected);
  t.strictSame(
    dataOf(
      await send('SEARCH', '/permissions', {
        query: { fields: ['collection'], filter: { collection: { _eq: 'directus_presets' }, policy: { _eq: policy } } },
      }),
    ),
    expected,
  );
  t.match((await get(service, '/permissions?limit=-1&fields=*')).text, /"collection":"directus_presets"/, 'streamed');
  t.match(dataOf(await get(service, '/activity?filter[collection][_eq]=directus_permissions&fields=collection')), [
    { collection: 'directus_permissions' },
  ]);

  const [activity] = dataOf<{ id: unknown; revisions: unknown[] }[]>(
    await get(service, '/activity?limit=1&fields=id,revisions&filter[collection]=directus_permissions'),
  );
  const [revision] = dataOf<{ id: unknown; activity: unknown }[]>(
    await get(service, `/revisions?fields=id,activity&filter[activity]=${activity?.id}`),
  );
  t.type(activity?.id, 'number', 'these keys are numbers, as in Directus');
  t.strictSame(revision, { id: activity?.revisions[0], activity: activity?.id });
  t.equal((await get(service, `/activity/${activity?.id}`)).status, 200);
  t.strictSame((await get(service, '/activity?filter[id]=4611686018427387904')).json, { data: [] }, 'of 64 bits still');

  const follow = encodeURIComponent('{"$FOLLOW(directus_panels,dashboard)":{"name":{"_eq":"a"}}}');
  t.strictSame((await get(service, `/dashboards?filter=${follow}`)).json, { data: [] });

  const preset = { collection: 'directus_users', bookmark: 'directus_users', layout_query: { title: 'service_users' } };
  t.match((await send('POST', '/presets', preset)).json, { data: preset }, 'other values are left alone');
  t.match((await get(service, '/items/directus_users')).json, {
    errors: [{ message: /collection "directus_users"/, extensions: { code: 'FORBIDDEN' } }],
  });
  const role = await send('POST', '/users', { email: 'a@example.com', role: '00000000-0000-4000-8000-000000000000' });
  t.match(role.json, {
    errors: [{ message: /^Invalid foreign key.*"directus_users"/, extensions: { code: 'INVALID_FOREIGN_KEY' } }],
  });
  await service.stop();
});

t.test('snapshots have the format of Directus, in both directions', async (t) => {
  const url = await createLibrary(server, 'snapshots');
  await withSql(url, (sql) => sql`create table bare (id integer primary key, label text)`);
  const service = await startTestService({ databaseUrl: url, DIRECTUS_COMPATIBILITY: 'true' });
  const send = (path: string, body: unknown) =>
    request(service, 'POST', path, { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  const take = async () => dataOf<Taken>(await get(service, '/schema/snapshot'));

  const snapshot = await take();
  t.match(snapshot, { version: 1, directus: /^\d+\.\d+\.\d+$/, vendor: 'postgres', systemFields: [] });
  t.notOk('lateral' in snapshot);
  const same = await send('/schema/diff', snapshot);
  t.equal(same.status, 204, same.text);

  const without = (name: string) => ({
    ...snapshot,
    ...Object.fromEntries(
      (['collections', 'fields', 'relations'] as const).map((section) => [
        section,
        snapshot[section].filter(({ collection }) => collection !== name),
      ]),
    ),
  });
  const unmanaged = await send('/schema/diff', without('bare'));
  t.equal(unmanaged.status, 204, `a table without metadata is not named, and stays: ${unmanaged.text}`);

  const added = {
    version: 1,
    directus: '11.17.4',
    vendor: 'postgres',
    collections: [{ collection: 'pages', meta: { collection: 'pages', icon: 'article' }, schema: { name: 'pages' } }],
    fields: [
      fieldOf('id', 'integer', null, {
        data_type: 'integer',
        default_value: "nextval('pages_id_seq'::regclass)",
        is_nullable: false,
        is_unique: true,
        is_primary_key: true,
        has_auto_increment: true,
        numeric_precision: 32,
        numeric_scale: 0,
      }),
      fieldOf('title', 'string', null, { data_type: 'character varying', max_length: 80 }),
      fieldOf('price', 'decimal', null, { data_type: 'numeric', numeric_precision: 10, numeric_scale: 2 }),
      fieldOf('made', 'timestamp', ['date-created'], {
        data_type: 'timestamp with time zone',
        default_value: 'CURRENT_TIMESTAMP',
      }),
      fieldOf('owner', 'uuid', ['m2o'], {
        data_type: 'uuid',
        foreign_key_table: 'directus_users',
        foreign_key_column: 'id',
      }),
    ],
    systemFields: [],
    relations: [
      {
        collection: 'pages',
        field: 'owner',
        related_collection: 'directus_users',
        meta: {
          many_collection: 'pages',
          many_field: 'owner',
          one_collection: 'directus_users',
          one_allowed_collections: null,
        },
        schema: {
          table: 'pages',
          column: 'owner',
          foreign_key_table: 'directus_users',
          foreign_key_column: 'id',
          constraint_name: 'pages_owner_foreign',
          on_update: 'NO ACTION',
          on_delete: 'SET NULL',
        },
      },
    ],
  };
  t.match(await send('/schema/diff?mode=merge', added), {
    status: 400,
    json: { errors: [{ message: /11\.17\.4.*force/, extensions: { code: 'INVALID_PAYLOAD' } }] },
  });
  t.match(await send('/schema/diff?mode=merge', { ...added, directus: 12 }), { status: 400 });
  const difference = await send('/schema/diff?mode=merge&force', added);
  t.equal(difference.status, 200, difference.text);
  t.match(dataOf(difference), { diff: { relations: [{ related_collection: 'directus_users' }], systemFields: [] } });
  const applied = await send('/schema/apply', dataOf(difference));
  t.equal(applied.status, 204, applied.text);
  t.match((await get(service, '/fields/pages/title')).json, { data: { schema: { max_length: 80 } } });
  const { fields, relations } = await take();
  const found = (name: string) => fields.find(({ collection, field }) => collection === 'pages' && field === name);
  t.match(found('price'), { schema: { data_type: 'numeric', numeric_precision: 10, numeric_scale: 2 } });
  t.match(found('made'), { meta: { special: ['date-created'] } });
  t.match(
    relations.find(({ collection }) => collection === 'pages'),
    {
      related_collection: 'directus_users',
      meta: { one_collection: 'directus_users' },
      schema: { on_delete: 'SET NULL' },
    },
  );
  await service.stop();
});

t.test('a table of the user that is called as one of Directus has another name', async (t) => {
  const url = await createLibrary(server, 'taken');
  const caller = await withSql(url, async (sql) => {
    await sql`create table directus_users (id integer primary key, mine text)`;
    await sql`insert into directus_users values (1, 'own')`;
    await sql`alter table articles add column old integer references directus_users`;
    await sql`update articles set old = 1`;
    await sql`insert into service_collections (collection, note) values ('directus_users', 'of the table')`;
    await sql`create table directus_panels (id integer primary key)`;
    await sql`insert into service_collections (collection, "table") values ('old_panels', 'directus_panels')`;
    await sql`create schema directus`;
    await sql`create table directus.roles (id integer primary key)`;
    const read = { action: 'read', permissions: {} } as const;
    return makeCaller(sql, 'reader', [
      {
        permissions: [
          { ...read, collection: 'directus_users' },
          { ...read, collection: 'tags' },
        ],
      },
    ]);
  });
  const service = await startTestService({
    databaseUrl: url,
    DATABASE_SCHEMAS: 'public,directus',
    DIRECTUS_COMPATIBILITY: 'true',
  });
  const send = (method: string, path: string, body: unknown) =>
    request(service, method, path, { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });

  t.equal((await get(service, '/items/directus_users')).status, 403);
  t.strictSame((await get(service, '/items/public_directus_users')).json, { data: [{ id: 1, mine: 'own' }] });
  t.strictSame((await get(service, '/items/old_panels')).json, { data: [] });
  t.match((await get(service, '/items/directus.roles')).json, {
    errors: [{ message: /would be called "directus_roles", like the table "directus_roles".*another name/ }],
  });
  const collections = dataOf<{ collection: string }[]>(await get(service, '/collections'));
  const names = collections.map(({ collection }) => collection).filter((name) => /users$|panels$|roles$/.test(name));
  t.strictSame(names.sort(), [
    'directus_panels',
    'directus_roles',
    'directus_users',
    'old_panels',
    'public_directus_users',
  ]);
  const named = await send('POST', '/collections', { collection: 'again', meta: { table: 'directus_panels' } });
  t.match(named.json, { data: { meta: { table: 'directus_panels' } } }, 'a table is named as it is in the database');

  t.match((await get(service, '/relations/articles/old')).json, {
    data: { related_collection: 'public_directus_users', schema: { foreign_key_table: 'directus_users' } },
  });
  t.match((await get(service, '/items/articles/1?fields=old.mine')).json, { data: { old: { mine: 'own' } } });
  const items = await send('POST', '/graphql', {
    query: '{ public_directus_users { mine __typename } articles_by_id(id: 1) { old { mine } } }',
  });
  t.strictSame(items.json, {
    data: {
      public_directus_users: [{ mine: 'own', __typename: 'public_directus_users' }],
      articles_by_id: { old: { mine: 'own' } },
    },
  });
  const users = await send('POST', '/graphql/system', { query: '{ users(limit: 1) { __typename email } }' });
  t.match(users.json, { data: { users: [{ __typename: 'directus_users' }] } });
  const { paths } = (await get(service, '/server/specs/oas')).json as { paths: Record<string, unknown> };
  t.ok('/items/public_directus_users' in paths);
  t.notOk('/items/directus_users' in paths);

  await inForce(service, caller, '/items/tags');
  const { token } = caller;
  t.notMatch(
    (await get(service, '/users?fields=email', { token })).text,
    /@/,
    'a permission for the table is none for users',
  );
  t.equal((await get(service, '/items/public_directus_users', { token })).status, 403);

  const same = await send('POST', '/schema/diff', dataOf(await get(service, '/schema/snapshot')));
  t.equal(same.status, 204, same.text);
  await service.stop();
});

interface TakenEntry {
  readonly collection: string;
  readonly field?: string;
}

type Taken = Readonly<Record<'collections' | 'fields' | 'relations', readonly TakenEntry[]>>;

/** As a Directus writes it. */
function fieldOf(field: string, type: string, special: string[] | null, schema: Record<string, unknown>): unknown {
  const column = {
    name: field,
    table: 'pages',
    default_value: null,
    max_length: null,
    is_nullable: true,
    is_generated: false,
  };
  return {
    collection: 'pages',
    field,
    type,
    meta: { collection: 'pages', field, special, hidden: false },
    schema: { ...column, generation_expression: null, is_unique: false, is_primary_key: false, ...schema },
  };
}

t.test('without the option the names are ours', async (t) => {
  const url = await createLibrary(server, 'own');
  const service = await startTestService({ databaseUrl: url });
  t.equal((await get(service, '/collections/directus_users')).status, 403);
  t.match((await get(service, '/fields/service_users/password')).json, { data: { meta: { special: 'hash,conceal' } } });
  const rules = [
    { collection: { _neq: 'directus_users' } },
    { collection: { _nin: ['directus_users'] } },
    { collection: { _nstarts_with: 'directus_' } },
    { collection: { _nistarts_with: 'DIRECTUS_' } },
    { collection: { _neq: 'service_users' } },
  ];
  await withSql(url, async (sql) => {
    await sql`insert into service_comments (collection, item, comment) values ('authors', '1', 'said')`;
    for (const [position, permissions] of rules.entries()) {
      const rule = { collection: 'service_comments', action: 'read', permissions } as const;
      const caller = await makeCaller(sql, `rule${position}`, [
        { permissions: [rule, { ...rule, collection: 'tags', permissions: {} }] },
      ]);
      await inForce(service, caller, '/items/tags');
      const answer = await get(service, '/comments', { token: caller.token });
      const isOurs = position === rules.length - 1;
      t.equal(answer.text.includes('said'), isOurs, `${JSON.stringify(permissions)}: ${answer.text}`);
    }
  });
  await service.stop();
});
