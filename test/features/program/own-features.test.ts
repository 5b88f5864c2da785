/** `createLateral(options, { features })`: a service with the features that a program names, and with its own. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { createLateral, type Feature, jsonText, loadFeature, option } from '../../../src/index.js';
import type { ConfigWith } from '../../../src/server/config/config.js';
import { ADMIN_TOKEN, connectSql, createLibrary, makeFolder, startDatabase } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'own_features');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const folder = await makeFolder();
const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' };
const base = { databaseUrl, port: 0, logLevel: 'silent', adminToken: ADMIN_TOKEN };

const OPTIONS = { NOTES_LIMIT: option.integer('3', 1, 10, 'Notes of one author') };

/** With a table, an option, a route and a command. */
const notes: Feature<unknown, typeof OPTIONS> = {
  name: 'notes',
  options: OPTIONS,
  topic: 'Notes',
  tables: {
    folder,
    migrations: ['100_notes.sql'],
    resources: [{ name: 'notes', kind: 'write', sdk: false }],
    appPermissions: [],
  },
  commands: {
    notes: { topic: 'Serve', about: 'prints nothing', load: async () => ({ help: '', run: async () => {} }) },
  },
  open: async ({ config }) => ({ routes: [limitRoute(config)] }),
};

function limitRoute({ NOTES_LIMIT }: ConfigWith<typeof OPTIONS>) {
  return { method: 'GET', path: '/notes-limit', handle: () => jsonText(JSON.stringify({ data: NOTES_LIMIT })) };
}

await writeFile(
  join(folder, '100_notes.sql'),
  `create table service_notes (id serial primary key, body text);
   insert into service_collections (collection, hidden, accountability, note) values ('service_notes', true, null, 'Notes');`,
);

t.test('a program has features of its own, and those of the product that it names', async (t) => {
  const lateral = createLateral({ ...base, NOTES_LIMIT: 5 }, { features: [notes, 'openapi'] });
  await lateral.start();
  t.teardown(() => lateral.stop());
  const send = async (path: string, init: RequestInit = {}): Promise<{ status: number; json: unknown }> => {
    const response = await fetch(lateral.url + path, { headers, ...init });
    return { status: response.status, json: await response.json() };
  };
  t.match(await send('/notes-limit'), { status: 200, json: { data: 5 } });
  t.match(await send('/notes', { method: 'POST', body: '{"body":"first"}' }), { status: 200 });
  t.match(await send('/notes'), { json: { data: [{ id: 1, body: 'first' }] } });
  t.match(await send('/items/service_notes'), { status: 403 });
  t.match(await send('/items/articles?limit=1'), { status: 200 });
  const { json } = await send('/server/specs/oas');
  const { paths } = json as { readonly paths: object };
  t.ok(Object.hasOwn(paths, '/notes'));
  t.notOk(Object.hasOwn(paths, '/webhooks'), 'others are left out');
  t.match(await send('/webhooks'), { status: 404 });
  t.match(await send('/graphql/system', { method: 'POST', body: '{"query":"{ notes { body } }"}' }), {
    json: { data: { notes: [{ body: 'first' }] } },
  });
});

t.test('a service with all features of the product hides the table', async (t) => {
  const lateral = createLateral({ ...base, WORKERS: 1 });
  const kinds: object[] = [];
  lateral.on('log', (event) => kinds.push(event));
  await lateral.start({ listen: false });
  t.teardown(() => lateral.stop());
  const { status } = await lateral.fetch(new Request('http://lateral/items/service_notes', { headers }));
  t.equal(status, 403);
  t.equal((await lateral.fetch(new Request('http://lateral/notes', { headers }))).status, 404);
  t.match(
    kinds.find((event) => 'kind' in event && event.kind === 'tables-left'),
    { tables: ['service_notes'], triggers: 0 },
  );
});

t.test('several threads import a feature', async (t) => {
  const path = join(folder, 'hello.mjs');
  const route = "{ method: 'GET', path: '/hello', handle: () => ({ status: 200, type: 'text/plain', body: 'hello' }) }";
  await writeFile(path, `export default { name: 'hello', open: async () => ({ routes: [${route}] }) };`);
  const hello = await loadFeature(pathToFileURL(path));
  const lateral = createLateral({ ...base, WORKERS: 2 }, { features: [hello] });
  await lateral.start();
  t.teardown(() => lateral.stop());
  t.equal(await (await fetch(`${lateral.url}/hello`)).text(), 'hello');
  await t.rejects(createLateral({ ...base, WORKERS: 2 }, { features: [notes] }).start(), {
    message: /WORKERS must be 1 for the feature "notes"/,
  });
});

t.test('options of other features and unknown names are refused', async (t) => {
  t.throws(() => createLateral({ ...base, FILES_MAX_UPLOAD_SIZE: '1mb' }, { features: ['openapi'] }), {
    message: /unknown option "FILES_MAX_UPLOAD_SIZE"/,
  });
  t.throws(() => createLateral(base, { features: ['nothing'] }), {
    message: /there is no feature "nothing": there are adopt/,
  });
  await t.rejects(loadFeature(join(folder, 'missing.mjs')), { message: /could not be loaded/ });
});
