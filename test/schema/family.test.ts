/** FAMILY_COMPATIBILITY: the schema in the words of Directus, for tools that were made for it. */
import t from 'tap';
import { createLibrary, get, request, startDatabase, startTestService, withSql } from '../support/service.js';

const server = await startDatabase();

function dataOf<Data = unknown>({ json }: { readonly json: unknown }): Data {
  return (json as { data: Data }).data;
}

t.test('system tables have the names of Directus, in both directions', async (t) => {
  const url = await createLibrary(server, 'family');
  const service = await startTestService({ databaseUrl: url, FAMILY_COMPATIBILITY: 'true' });
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
  const service = await startTestService({ databaseUrl: url, FAMILY_COMPATIBILITY: 'true' });
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
  t.match(stored, { collection: 'service_presets', rule: /service_users.*service_roles/ }, 'stored as ours');

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

t.test('without the option the names are ours', async (t) => {
  const url = await createLibrary(server, 'own');
  const service = await startTestService({ databaseUrl: url });
  t.equal((await get(service, '/collections/directus_users')).status, 403);
  t.match((await get(service, '/fields/service_users/password')).json, { data: { meta: { special: 'hash,conceal' } } });
  await service.stop();
});
