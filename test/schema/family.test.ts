/** FAMILY_COMPATIBILITY: the schema in the words of Directus, for tools that were made for it. */
import t from 'tap';
import { createLibrary, get, request, startDatabase, startTestService } from '../support/service.js';

const server = await startDatabase();

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

  const field = { field: 'editor', type: 'uuid', meta: { special: ['m2o'], options: { collection: 'service_users' } } };
  t.match((await send('POST', '/fields/articles', field)).json, {
    data: { meta: { special: ['m2o'], options: { collection: 'service_users' } } },
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
    query: '{ fields_by_name(collection: "service_users", field: "password") { meta { special } } }',
  });
  t.match(text, /hash/, 'GraphQL answers as its schema says');
  t.notMatch(text, /errors/);
  await service.stop();
});

t.test('without the option the names are ours', async (t) => {
  const url = await createLibrary(server, 'own');
  const service = await startTestService({ databaseUrl: url });
  t.equal((await get(service, '/collections/directus_users')).status, 403);
  t.match((await get(service, '/fields/service_users/password')).json, { data: { meta: { special: 'hash,conceal' } } });
  await service.stop();
});
