/**
 * Every command that the Directus SDK exports, run against one service: those that docs/directus-differences.md excludes are 404,
 * all others do what they promise. A new version of the SDK with more commands fails here until they are known.
 */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import * as sdk from '@directus/sdk';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { inForce, makeCaller } from '../../support/callers.js';
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
import { type Row, resourcesOf, shownAs } from './sdk-commands/resources.js';

type Command = sdk.RestCommand<unknown, object>;
type Key = string | number;

/** What it exports beside commands: clients, their parts, and helpers for them. */
const NO_COMMANDS: ReadonlySet<string> = new Set([
  'auth',
  'authentication',
  'createDirectus',
  'formatFields',
  'generateUid',
  'getAuthEndpoint',
  'graphql',
  'isDirectusError',
  'memoryStorage',
  'messageCallback',
  'pong',
  'queryToParams',
  'realtime',
  'rest',
  'sleep',
  'staticToken',
  'throwIfCoreCollection',
  'throwIfEmpty',
]);
const exported = Object.entries(sdk).flatMap(([name, value]) => (typeof value === 'function' ? [name] : []));
const commands = exported.filter((name) => !NO_COMMANDS.has(name));
const notOffered = await readNotOffered();
const done = new Set<string>();

const PASSWORD = 'a long enough password';
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'sdk_commands');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table site (id serial primary key, title text);
  alter table tags add column sort integer;
  insert into service_collections (collection, singleton) values ('site', true);
  update service_collections set sort_field = 'sort' where collection = 'tags';
  update service_collections set versioning = true where collection = 'articles';`);
const grants = (['read', 'update'] as const).map((action) => ({ collection: 'articles', action }));
const reader = await makeCaller(sql, 'reader', [{ app_access: true, permissions: grants }]);
const [administrator] = await sql<{ id: string }[]>`select id from service_users where email = 'admin@example.com'`;
const [dashboard] = await sql<
  { id: string }[]
>`insert into service_dashboards (name) values ('Of panels') returning id`;
const mails = await mailbox();
const remote = await startRemote();
const options: TestOptions & Record<string, string> = {
  databaseUrl,
  EMAIL_TRANSPORT: mails.transport,
  LOGIN_STALL_TIME: '0',
  REGISTER_STALL_TIME: '0',
  STORAGE_LOCAL_ROOT: await makeFolder(),
  FILES_IMPORT_ALLOW_LIST: remote,
};
const service = await startTestService(options);
const client = sdk.createDirectus(service.url).with(sdk.staticToken(ADMIN_TOKEN)).with(sdk.rest()).with(sdk.graphql());
const stranger = sdk.createDirectus(service.url).with(sdk.rest());

/** They differ in what they take, which the SDK types by a schema that this test does not have. */
function command(name: string, ...words: unknown[]): Command {
  return (sdk as unknown as Record<string, (...words: unknown[]) => Command>)[name]?.(...words) as Command;
}

async function run<Answer = Row>(name: string, ...words: unknown[]): Promise<Answer> {
  return runAs(client, name, ...words);
}

async function runAs<Answer = Row>(
  who: { request(command: Command): Promise<unknown> },
  name: string,
  ...words: unknown[]
): Promise<Answer> {
  const answer = (await who.request(command(name, ...words))) as Answer;
  done.add(name);
  return answer;
}

t.test('rows by nine commands each', async (t) => {
  const given = {
    administrator: administrator?.id ?? '',
    reader: reader.user,
    role: reader.role ?? '',
    policy: reader.policies[0] ?? '',
    dashboard: dashboard?.id ?? '',
  };
  await Promise.all(
    resourcesOf(given).map(({ one, many, samples, changed, filled }) =>
      t.test(many, async (t) => {
        const [first, second, third] = samples;
        const created = await run<Row & { id: Key }>(`create${one}`, first);
        t.match(created, { ...filled, ...shownAs(first) });
        const more = await run<{ id: Key }[]>(`create${many}`, [second, third], { fields: ['id'] });
        const keys = [created.id, ...more.map(({ id }) => id)];
        t.equal(keys.length, 3);
        t.match(await run(`read${one}`, created.id), { ...filled, ...shownAs(first) });
        const list = { filter: { id: { _in: keys } }, sort: ['-id'], fields: ['id'] };
        const sorted = [...keys].sort((left, right) => (left < right ? 1 : -1));
        t.strictSame(
          await run(`read${many}`, list),
          sorted.map((id) => ({ id })),
        );
        t.match(await run(`update${one}`, created.id, changed), { id: created.id, ...changed });
        t.match(await run(`update${many}`, keys.slice(0, 2), changed, { fields: ['*'] }), [changed, changed]);
        t.match(await run(`update${many}Batch`, [{ id: keys[2], ...changed }]), [{ id: keys[2], ...changed }]);
        t.equal(await run(`delete${one}`, created.id), null);
        await t.rejects(run(`read${one}`, created.id), { errors: [{ extensions: { code: 'FORBIDDEN' } }] });
        t.equal(await run(`delete${many}`, keys.slice(1)), null);
        t.strictSame(await run(`read${many}`, list), []);
      }),
    ),
  );
});

t.test('items', async (t) => {
  const made = await run('createItem', 'articles', { title: 'New', author: 1 }, { fields: ['id', 'author.name'] });
  t.match(made, { id: Number, author: { name: 'Ada Lovelace' } });
  const list = await run<{ id: number }[]>('createItems', 'tags', [{ name: 'x' }, { name: 'y' }]);
  const keys = list.map(({ id }) => id);
  const query = { filter: { id: { _in: keys } }, fields: ['name'], sort: ['id'] };
  t.strictSame(await run('readItems', 'tags', query), [{ name: 'x' }, { name: 'y' }]);
  const sent: string[] = [];
  const searched = command('withSearch', command('readItems', 'tags', query));
  const noted = command('withOptions', searched, (options: RequestInit) => {
    sent.push(String(options.method));
    return options;
  });
  t.strictSame(await client.request(noted), [{ name: 'x' }, { name: 'y' }]);
  t.strictSame(sent, ['SEARCH']);
  for (const name of ['withSearch', 'withOptions']) done.add(name);
  t.match(await run('readItem', 'articles', made['id'], { fields: ['title'] }), { title: 'New' });
  t.match(await run('updateItem', 'articles', made['id'], { title: 'Changed' }), { title: 'Changed' });
  t.match(await run('updateItems', 'tags', keys, { name: 'both' }), [{ name: 'both' }, { name: 'both' }]);
  t.match(await run('updateItemsBatch', 'tags', [{ id: keys[0], name: 'batch' }]), [{ name: 'batch' }]);
  const count = { aggregate: { count: '*' }, query: { filter: { id: { _in: keys } } } };
  t.match(await run('aggregate', 'tags', count), [{ count: /^2$/ }]);
  t.match(await run('updateSingleton', 'site', { title: 'Magazine' }), { title: 'Magazine' });
  t.match(await run('readSingleton', 'site'), { title: 'Magazine' });
  await run('utilitySort', 'tags', keys[1], keys[0]);
  t.equal(await run('deleteItem', 'articles', made['id']), null);
  t.equal(await run('deleteItems', 'tags', keys), null);
  t.strictSame(await run('readItems', 'tags', query), []);
  t.strictSame(await run('customEndpoint', { path: '/items/tags/1?fields=id', method: 'GET' }), { id: 1 });
  const [activity] = await run<Row[]>('readActivities', { sort: ['-id'], limit: 1 });
  t.match(await run('readActivity', activity?.['id']), { action: 'delete', collection: 'tags' });
  const [revision] = await run<Row[]>('readRevisions', { filter: { item: { _eq: made['id'] } }, sort: ['-id'] });
  t.match(await run('readRevision', revision?.['id']), { collection: 'articles', delta: { title: 'Changed' } });
});

t.test('structure', async (t) => {
  const key = { field: 'id', type: 'integer', schema: { is_primary_key: true, has_auto_increment: true } };
  const bill = { field: 'bill', type: 'integer', meta: { special: ['m2o'] } };
  t.match(await run('createCollection', { collection: 's_bills', schema: {}, fields: [key] }), { schema: {} });
  await run('createCollection', { collection: 's_lines', schema: {}, fields: [key] });
  t.match(await run('createField', 's_lines', bill), { field: 'bill', type: 'integer' });
  const relation = { collection: 's_lines', field: 'bill', related_collection: 's_bills' };
  t.match(await run('createRelation', { ...relation, meta: { one_field: 'lines' } }), relation);
  const collections = await run<Row[]>('readCollections');
  t.ok(collections.some(({ collection }) => collection === 's_lines'));
  t.match(await run('readCollection', 's_lines'), { collection: 's_lines' });
  t.match(await run('updateCollection', 's_lines', { meta: { note: 'Lines' } }), { meta: { note: 'Lines' } });
  await run('updateCollectionsBatch', [{ collection: 's_lines', meta: { icon: 'line' } }]);
  t.ok((await run<Row[]>('readFields')).length > 50);
  t.equal((await run<Row[]>('readFieldsByCollection', 's_lines')).length, 2);
  t.match(await run('readField', 's_lines', 'bill'), { type: 'integer' });
  t.match(await run('updateField', 's_lines', 'bill', { meta: { note: 'x' } }), { meta: { note: 'x' } });
  t.match(await run('updateFields', 's_lines', [{ field: 'bill', meta: { note: 'y' } }]), [{ meta: { note: 'y' } }]);
  t.ok((await run<Row[]>('readRelations')).length > 5);
  t.match(await run('readRelationByCollection', 's_lines'), [relation]);
  t.match(await run('readRelation', 's_lines', 'bill'), { ...relation, meta: { one_field: 'lines' } });
  const cascade = { schema: { on_delete: 'CASCADE' } };
  t.match(await run('updateRelation', 's_lines', 'bill', cascade), cascade);
  const snapshot = await run('schemaSnapshot');
  t.equal(await run('deleteRelation', 's_lines', 'bill'), null);
  t.equal(await run('deleteField', 's_lines', 'bill'), null);
  t.equal(await run('deleteCollection', 's_lines'), null);
  await run('schemaApply', await run('schemaDiff', snapshot));
  t.match(await run('readRelation', 's_lines', 'bill'), { ...relation, ...cascade });
  t.equal(await run('schemaDiff', snapshot), null, 'nothing differs');
});

t.test('accounts', async (t) => {
  const tokenIn = (link: string): string => new URL(link).searchParams.get('token') ?? '';
  const email = 'guest@example.com';
  await run('inviteUser', email, reader.role);
  await runAs(stranger, 'acceptUserInvite', tokenIn(await mails.link(email)), PASSWORD);
  const tokens = await runAs(stranger, 'login', { email, password: PASSWORD }, { mode: 'json' });
  t.match(tokens, { access_token: String, refresh_token: String, expires: Number });
  const { access_token, refresh_token } = await runAs(stranger, 'refresh', {
    mode: 'json',
    refresh_token: tokens['refresh_token'],
  });
  t.match(await runAs(stranger, 'withToken', access_token, command('readMe', { fields: ['email'] })), { email });
  const guest = sdk
    .createDirectus(service.url)
    .with(sdk.staticToken(String(access_token)))
    .with(sdk.rest());
  t.match(await runAs(guest, 'readMe'), { role: reader.role });
  t.match(await runAs(guest, 'updateMe', { first_name: 'Guest' }), { first_name: 'Guest' });
  t.match(await runAs(guest, 'readRolesMe'), [{ id: reader.role }]);
  t.match(await runAs(guest, 'readPolicyGlobals'), { app_access: true, admin_access: false });
  t.match(await runAs(guest, 'readUserPermissions'), { articles: { read: { access: 'full' } } });
  t.match(await runAs(guest, 'readItemPermissions', 'articles', 1), { update: { access: true } });
  const { secret } = await runAs<{ secret: string }>(guest, 'generateTwoFactorSecret', PASSWORD);
  await runAs(guest, 'enableTwoFactor', secret, codeOf(secret));
  await runAs(guest, 'disableTwoFactor', codeOf(secret, 1));
  await runAs(stranger, 'logout', { mode: 'json', refresh_token });
  await t.rejects(runAs(stranger, 'refresh', { mode: 'json', refresh_token }), {
    errors: [{ extensions: { code: 'INVALID_CREDENTIALS' } }],
  });
  await runAs(stranger, 'passwordRequest', email);
  await runAs(stranger, 'passwordReset', tokenIn(await mails.link(email)), `${PASSWORD}!`);
  t.ok(await runAs(stranger, 'login', { email, password: `${PASSWORD}!` }, { mode: 'json' }));
  t.match(await run('updateSettings', { public_registration: true }), { public_registration: true });
  t.match(await run('readSettings'), { public_registration: true });
  await runAs(stranger, 'registerUser', 'new@example.com', PASSWORD, { first_name: 'New' });
  await runAs(stranger, 'registerUserVerify', tokenIn(await mails.link('new@example.com')));
  t.match(await run('readUsers', { filter: { email: { _eq: 'new@example.com' } } }), [{ status: 'active' }]);
  t.strictSame(await runAs(stranger, 'readProviders'), []);
});

t.test('content versions', async (t) => {
  const { id } = await run('createContentVersion', { collection: 'articles', item: '3', key: 'sdk' });
  t.match(await run('saveToContentVersion', id, { title: 'Revised' }), { id: 3, title: 'Revised' });
  t.match(await run('readItem', 'articles', 3, { version: 'sdk', fields: ['title'] }), { title: 'Revised' });
  const { mainHash, ...compared } = await run('compareContentVersion', id);
  t.match(compared, { outdated: false, current: { title: 'Revised' }, main: { id: 3 } });
  t.equal(await run('promoteContentVersion', id, mainHash), '3');
  t.match(await run('readItem', 'articles', 3, { fields: ['title'] }), { title: 'Revised' });
});

t.test('shares', async (t) => {
  await inForce(service, reader, '/items/articles/1');
  const share = { collection: 'articles', item: '1', role: reader.role, password: PASSWORD };
  const { id } = await run('createShare', share);
  t.match(await runAs(stranger, 'readShareInfo', id), { id, collection: 'articles', item: '1' });
  await run('inviteShare', id, ['friend@example.com']);
  t.match(await mails.link('friend@example.com'), new RegExp(`/shared/${String(id)}$`));
  const { access_token } = await runAs(stranger, 'authenticateShare', id, PASSWORD, 'json');
  const shared = sdk.withToken(String(access_token), command('readItems', 'articles', { fields: ['id'] }));
  t.strictSame(await stranger.request(shared), [{ id: 1 }]);
});

t.test('files and assets', async (t) => {
  const form = new FormData();
  form.append('title', 'A text');
  form.append('file', new Blob(['Hello'], { type: 'application/octet-stream' }), 'hello.bin');
  const { id } = await run<{ id: string }>('uploadFiles', form);
  t.match(await run('readFile', id), { title: 'A text', filesize: '5', type: 'application/octet-stream' });
  t.equal(await textOf(await run<ReadableStream>('readAssetRaw', id)), 'Hello');
  t.equal(await (await run<Blob>('readAssetBlob', id)).text(), 'Hello');
  t.equal(Buffer.from(await run<ArrayBuffer>('readAssetArrayBuffer', id)).toString(), 'Hello');
  t.match(await run('updateFile', id, { title: 'Changed' }), { title: 'Changed' });
  t.match(await run('updateFiles', [id], { description: 'Both' }), [{ description: 'Both' }]);
  t.match(await run('updateFilesBatch', [{ id, description: 'Batch' }]), [{ description: 'Batch' }]);
  t.match(await run('readFiles', { filter: { title: { _eq: 'Changed' } } }), [{ id, description: 'Batch' }]);
  const imported = await run('importFile', `${remote}/far.bin`, { title: 'From afar' });
  t.match(await run('readFile', imported['id']), { title: 'From afar', filesize: '4' });
  t.equal(await run('deleteFile', id), null);
  const again = await run('uploadFiles', form);
  t.equal(await run('deleteFiles', [again['id'], imported['id']]), null);
  t.strictSame(await run('readFiles'), []);
});

t.test('the server and utilities', async (t) => {
  t.equal(await run('serverPing'), 'pong');
  t.match(await run('serverInfo'), { project: { project_name: 'Lateral' } });
  t.match(await run('serverHealth'), { status: 'ok' });
  t.match(await run('readOpenApiSpec'), { openapi: /^3/, paths: {} });
  t.match(await run('readGraphqlSdl', 'item'), /type articles/);
  t.match(await run('randomString', 12), /^[\w-]{12}$/);
  await run('clearCache', true);
  const list = new FormData();
  list.append('file', new Blob(['name\nimported\n'], { type: 'text/csv' }), 'tags.csv');
  await run('utilsImport', 'tags', list);
  const query = { filter: { name: { _eq: 'imported' } }, fields: ['name'] };
  t.equal(await run('utilsExport', 'tags', 'csv', query, { title: 'Tags' }), null);
  const exported = () => run<unknown[]>('readFiles', { filter: { title: { _eq: 'Tags' } } });
  await waitFor(async () => (await exported()).length === 1, 10_000);
});

t.test('the system schema of GraphQL has the same', async (t) => {
  const created = await client.query<Record<string, unknown>>(
    `mutation {
      create_dashboards_item(data: { name: "G", panels: [{ type: "list", position_x: 1, position_y: 1, width: 2, height: 2 }] }) { id panels { type } }
      create_presets_items(data: [{ bookmark: "G", filter: { a: 1 } }]) { id filter }
    }`,
    {},
    'system',
  );
  t.match(created, {
    create_dashboards_item: { panels: [{ type: 'list' }] },
    create_presets_items: [{ filter: { a: 1 } }],
  });
  const { id } = created['create_dashboards_item'] as { id: string };
  const read = await client.query(
    `{ dashboards_by_id(id: "${id}") { name user_created { email } }
       presets(filter: { bookmark: { _eq: "G" } }) { icon user { id } }
       panels_aggregated(filter: { dashboard: { id: { _eq: "${id}" } } }) { countAll } comments { id } notifications { id } translations { id } folders { id } }`,
    {},
    'system',
  );
  t.match(read, {
    dashboards_by_id: { name: 'G', user_created: { email: 'admin@example.com' } },
    presets: [{ icon: 'bookmark', user: null }],
    panels_aggregated: [{ countAll: 1 }],
  });
  const gone = await client.query(`mutation { delete_dashboards_item(id: "${id}") { id } }`, {}, 'system');
  t.strictSame(gone, { delete_dashboards_item: { id } });
  t.strictSame(await client.query(`{ panels(filter: { type: { _eq: "list" } }) { id } }`, {}, 'system'), {
    panels: [],
  });
});

t.test('a missing feature is 404, and the document names it', async (t) => {
  const refused = { errors: [{ extensions: { code: 'ROUTE_NOT_FOUND' } }], response: { status: 404 } };
  for (const name of notOffered) await t.rejects(client.request(command(name, ...wordsFor(name))), refused, name);
});

t.test('every command was carried out', async (t) => {
  t.strictSame(
    [...NO_COMMANDS].filter((name) => !exported.includes(name)),
    [],
    'all of these are exported',
  );
  t.strictSame(
    notOffered.filter((name) => !commands.includes(name)),
    [],
    'all that the document names are commands',
  );
  const known = new Set([...done, ...notOffered]);
  t.strictSame(
    commands.filter((name) => !known.has(name)),
    [],
  );
  t.strictSame(
    notOffered.filter((name) => done.has(name)),
    [],
  );
  t.comment(`${commands.length} commands, ${done.size} carried out, ${notOffered.length} not offered`);
});

/** A server with a file. */
async function startRemote(): Promise<string> {
  const far = createServer((_, response) => {
    response.setHeader('content-type', 'application/octet-stream').end('afar');
  });
  await once(far.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => far.close());
  return `http://127.0.0.1:${(far.address() as AddressInfo).port}`;
}

async function readNotOffered(): Promise<string[]> {
  const text = await readFile(packagePath('docs', 'directus-differences.md'), 'utf8');
  const [, section = ''] = text.split('## SDK commands\n');
  return [...(section.split('\n## ')[0] ?? '').matchAll(/`([a-z]\w+)`/g)].map(([, name = '']) => name);
}

/** Commands name what they are about by one key or two, and take a query; or they take a query alone. */
function wordsFor(name: string): unknown[] {
  if (name === 'triggerFlow') return ['POST', 'some-key'];
  if (
    /^(cancelDeployment|installRegistryExtension|readDeployment(Project|Run|RunStats|Runs)|triggerDeployment)$/.test(
      name,
    )
  )
    return ['some-key', 'another', {}];
  if (/^read(Deployments|Flows|Operations|RegistryExtensions)$/.test(name)) return [{}];
  return ['some-key', {}];
}

function textOf(stream: ReadableStream): Promise<string> {
  return new Response(stream).text();
}
