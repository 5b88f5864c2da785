/**
 * Tools that others made for Directus, unmodified, in exact versions from npm, against a service with DIRECTUS_COMPATIBILITY. They are
 * downloaded into a temporary folder, so it is no part of `npm test`; without a registry nothing is tested, and it says so.
 */
import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { packagePath } from '../../src/base/package-files.js';
import { findRegistry, installPackages } from '../support/registry.js';
import { ADMIN_TOKEN, createLibrary, request, startDatabase, startTestService } from '../support/service.js';

t.setTimeout(900_000);
const run = promisify(execFile);

/** The provider's peers stand beside it: React is theirs to choose. */
const TOOLS = [
  'directus-typescript-gen@1.0.0',
  'directus-sdk-typegen@0.2.1',
  'directus-typeforge@0.19.2',
  'directus-sync@3.4.1',
  '@tspvivek/refine-directus@1.0.38',
  'react@18.3.1',
  'react-dom@18.3.1',
] as const;

const LOGIN = { email: 'admin@example.com', password: 'the-password-of-the-tools' };

const missing = await findRegistry(TOOLS[0]);
t.test('tools for Directus work as they are', { skip: missing }, async (t) => {
  const folder = await installPackages(TOOLS);
  const server = await startDatabase();
  const service = await startTestService({
    databaseUrl: await createLibrary(server, 'tools'),
    DIRECTUS_COMPATIBILITY: 'true',
  });
  const send = (method: string, path: string, body: unknown) =>
    request(service, method, path, { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  t.equal((await send('PATCH', '/users/me', LOGIN)).status, 200);
  const tool = async (name: string, ...args: readonly string[]): Promise<string> => {
    const { stdout, stderr } = await run(join(folder, 'node_modules', '.bin', name), args, {
      cwd: folder,
      timeout: 120_000,
      maxBuffer: 2 ** 26,
    });
    return stdout + stderr;
  };
  const written = (name: string): Promise<string> => readFile(join(folder, name), 'utf8');
  /** What a generator wrote is code that compiles. */
  const compiles = async (name: string): Promise<string> => {
    const options = ['--noEmit', '--strict', '--skipLibCheck', '--ignoreConfig', '--types', ''];
    const output = await run(packagePath('node_modules', '.bin', 'tsc'), [...options, join(folder, name)]).then(
      () => '',
      ({ stdout }: { stdout: string }) => stdout,
    );
    return output;
  };

  await t.test('directus-typescript-gen', async (t) => {
    const login = ['--email', LOGIN.email, '--password', LOGIN.password];
    await tool('directus-typescript-gen', '--host', service.url, ...login, '-o', 'openapi.ts');
    const text = await written('openapi.ts');
    t.match(text, /^ {2}articles: components\["schemas"\]\["ItemsArticles"\]\[\];$/m);
    t.match(text, /^ {4}Users: \{/m);
    t.equal(await compiles('openapi.ts'), '');
  });

  await t.test('directus-sdk-typegen', async (t) => {
    await tool('directus-sdk-typegen', '--url', service.url, '--token', ADMIN_TOKEN, '--output', 'typegen.ts');
    const text = await written('typegen.ts');
    t.match(text, /interface DirectusUser /);
    t.match(text, /directus_users: DirectusUser\[\]/);
    t.match(text, /author\??: .*Author/, 'relations are items');
    t.equal(await compiles('typegen.ts'), '');
  });

  await t.test('directus-typeforge', async (t) => {
    await tool('directus-typeforge', '--host', service.url, '--token', ADMIN_TOKEN, '--outFile', 'forge.ts');
    const text = await written('forge.ts');
    t.match(text, /articles: Article\[\]/);
    t.match(text, /interface DirectusUser /);
    t.equal(await compiles('forge.ts'), '');
  });

  await t.test('directus-sync takes a snapshot and descriptions, and compares it', async (t) => {
    const sync = (command: string): Promise<string> =>
      tool('directus-sync', '-u', service.url, '-t', ADMIN_TOKEN, command, '--dump-path', 'dump', '--no-collections');
    t.match(await sync('pull'), /Done!/);
    t.match(JSON.parse(await written('dump/snapshot/collections/articles.json')), { collection: 'articles' });
    t.match(await written('dump/specs/system.graphql'), /type directus_users /);
    t.notMatch(await sync('diff'), /Found \d/, 'nothing has changed');
    const bare = { field: 'bare', type: 'string', schema: {} };
    t.equal((await send('POST', '/fields/articles', bare)).status, 200);
    t.notMatch(await sync('diff'), /Found \d/, 'a column without metadata would be in no snapshot of Directus');
    const added = { field: 'added', type: 'string', meta: { note: 'after the snapshot' }, schema: {} };
    t.equal((await send('POST', '/fields/articles', added)).status, 200);
    t.equal((await send('PATCH', '/fields/articles/title', { meta: { note: 'changed' } })).status, 200);
    t.match(await sync('diff'), /Found 2 changes in fields/, 'one was added, one was changed');
  });

  await t.test('@tspvivek/refine-directus reads and writes', async (t) => {
    await writeFile(join(folder, 'provider.cjs'), PROVIDER);
    const { stdout } = await run('node', ['provider.cjs', service.url, ADMIN_TOKEN], { cwd: folder, timeout: 60_000 });
    t.match(JSON.parse(stdout), {
      list: { total: 2, names: [/./] },
      created: { name: 'made' },
      one: { name: 'made' },
      many: [{ name: 'made' }],
      updated: { name: 'changed' },
      updatedMany: [{ name: 'both' }],
      role: { name: 'Readers' },
      users: ['admin@example.com'],
    });
  });
});

/** As an application would call it; `createMany` sends an object in the place of a list, whatever the server. */
const PROVIDER = `
const { dataProvider } = require('@tspvivek/refine-directus');
const { createDirectus, rest, staticToken } = require('@directus/sdk');
const [, , url, token] = process.argv;
const provider = dataProvider(createDirectus(url).with(staticToken(token)).with(rest()));
(async () => {
  const resource = 'tags';
  const pagination = { current: 1, pageSize: 1 };
  const sorters = [{ field: 'id', order: 'asc' }];
  const filters = [{ field: 'id', operator: 'lt', value: 3 }];
  const list = await provider.getList({ resource: 'articles', pagination, sorters, filters });
  const created = (await provider.create({ resource, variables: { name: 'made' } })).data;
  const { id } = created;
  const one = (await provider.getOne({ resource, id })).data;
  const many = (await provider.getMany({ resource, ids: [id] })).data;
  const updated = (await provider.update({ resource, id, variables: { name: 'changed' } })).data;
  const updatedMany = (await provider.updateMany({ resource, ids: [id], variables: { name: 'both' } })).data;
  await provider.deleteOne({ resource, id });
  const role = (await provider.create({ resource: 'directus_roles', variables: { name: 'Readers' } })).data;
  const users = await provider.getList({ resource: 'directus_users', pagination });
  const names = list.data.map(({ title }) => title);
  console.log(JSON.stringify({
    list: { total: list.total, names }, created, one, many, updated, updatedMany, role,
    users: users.data.map(({ email }) => email),
  }));
})();
`;
