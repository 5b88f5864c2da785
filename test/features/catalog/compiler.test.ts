/**
 * `lateral/compiler` compiles requests to the statements that the service sends, without a service. golden-writes.test.ts compares its
 * writes.
 */
import { execFile } from 'node:child_process';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { packagePath } from '../../../src/base/package-files.js';
import {
  type CallerPermissions,
  createCompiler,
  LateralError,
  NoStatement,
  type Permission,
  type RestRequest,
} from '../../../src/features/catalog/compiler.js';
import { DEFAULT_LIMITS, stageLimits } from '../../../src/features/catalog/limits.js';
import { parseLimits } from '../../../src/server/config/parse-limits.js';
import { makeCaller } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import { compileGolden, equalRecorded } from '../../support/compiled.js';
import { type GoldenRequest, recordRequest } from '../../support/golden.js';
import {
  createLibrary,
  KNOWS_CALLERS,
  makeFolder,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';
import { StatementRecorder } from '../../support/statement-recorder.js';

const run = promisify(execFile);

const RULES = [
  { collection: 'articles', action: 'read', permissions: { status: { _eq: 'published' } }, fields: ['id', 'title'] },
  { collection: 'articles', action: 'read', permissions: { author: { name: { _eq: 'Ada' } } }, fields: ['id', 'body'] },
  { collection: 'articles', action: 'create', validation: { title: { _nempty: true } }, fields: ['title'] },
  {
    collection: 'comments',
    action: 'read',
    permissions: { author: { name: { _eq: '$CURRENT_USER.first_name' } } },
    fields: ['*'],
  },
] as const satisfies readonly Permission[];

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'compiler');
const { administrator, reader } = await withSql(databaseUrl, async (sql) => {
  await sql`create table tokens (id uuid primary key, name text)`;
  await sql`insert into service_fields (collection, field, special) values ('tokens', 'id', 'uuid')`;
  return {
    administrator: await makeCaller(sql, 'administrator', [{ admin_access: true }]),
    reader: await makeCaller(sql, 'reader', [{ permissions: RULES }]),
  };
});
const { output: printed } = await runCommand(['catalog'], { DATABASE_URL: databaseUrl });
const catalog = JSON.parse(printed);
const recorder = await StatementRecorder.open(databaseUrl);
const service = await startTestService({ databaseUrl: recorder.url, WORKERS: '1', ...KNOWS_CALLERS });
for (const { token } of [administrator, reader]) await request(service, 'GET', '/items/articles', { token });
const compiler = await createCompiler(catalog, { newUuid: () => '00000000-0000-0000-0000-00000000000a' });

const ALL: CallerPermissions = { rules: 'all' };
const READER: CallerPermissions = {
  rules: RULES,
  user: reader.user,
  role: reader.role,
  policies: reader.policies,
  client: { ip: '127.0.0.1' },
};

const graphql = (query: string, variables: object = {}): GoldenRequest => ({
  method: 'POST',
  path: '/graphql',
  body: { query, variables },
});
const READS: readonly GoldenRequest[] = [
  { method: 'GET', path: '/items/articles' },
  { method: 'GET', path: '/items/articles/1?fields=title,author.name,comments.body' },
  {
    method: 'GET',
    path: '/items/articles?fields=id,tags.tags_id.name&filter[comments][_some][body][_eq]=Nice!&sort=-author.name',
  },
  { method: 'GET', path: '/items/articles?aggregate[count]=*&aggregate[sum]=views&groupBy=status&sort=-count' },
  {
    method: 'GET',
    path: '/items/authors?fields=id,articles.title&deep[articles][_limit]=3&deep[articles][_sort]=-views',
  },
  { method: 'GET', path: '/items/articles?fields=id&search=hello&meta=*&limit=5&page=2' },
  { method: 'SEARCH', path: '/items/articles', body: { query: { fields: ['id'], filter: { views: { _gt: 5 } } } } },
  { method: 'SEARCH', path: '/items/articles', body: { keys: [1, 2], query: { fields: ['id'] } } },
  graphql('{ articles(limit: 5) { id heading: title author { name } } }'),
  graphql('query ($id: ID!) { articles_by_id(id: $id) { title } tags { name } }', { id: 1 }),
  graphql('{ articles_aggregated(groupBy: ["status"]) { group countAll } }'),
];
const RESTRICTED: readonly GoldenRequest[] = [
  { method: 'GET', path: '/items/articles?fields=*&limit=3' },
  { method: 'GET', path: '/items/comments?fields=id,body,article.title' },
  { method: 'POST', path: '/items/articles?fields=id,title', body: { title: 'Compiled' } },
  graphql('{ articles(limit: 2) { id title body } }'),
  graphql('mutation { create_articles_item(data: { title: "Compiled" }) { id title } }'),
];

for (const [caller, permissions, requests] of [
  [administrator, ALL, READS],
  [reader, READER, RESTRICTED],
] as const)
  for (const golden of requests)
    t.test(
      `${permissions === ALL ? '' : 'restricted '}${golden.path} ${JSON.stringify(golden.body ?? '')}`,
      async (t) => {
        const recorded = await recordRequest(t, { service, recorder }, golden, caller.token);
        equalRecorded(t, await compileGolden(compiler, golden, permissions), recorded);
      },
    );

const REFUSED: readonly RestRequest[] = [
  { method: 'GET', path: '/items/nothing' },
  { method: 'GET', path: '/items/service_users' },
  { method: 'GET', path: '/items/articles', query: 'fields=nothing' },
  { method: 'GET', path: '/items/articles', query: 'fields=views' },
  { method: 'GET', path: '/items/articles', query: 'filter[id][_eq]=x' },
  { method: 'GET', path: '/items/articles', query: 'filter[title][_like]=x' },
  { method: 'GET', path: '/items/articles', query: 'limit=x' },
  { method: 'GET', path: '/items/articles/x' },
  { method: 'SEARCH', path: '/items/articles', body: { nothing: 1 } },
  { method: 'POST', path: '/items/articles', body: { views: 1 } },
  { method: 'POST', path: '/items/articles', body: { title: 7, nothing: 1 } },
  { method: 'POST', path: '/items/articles', body: 'text' },
  { method: 'POST', path: '/items/articles/1', body: {} },
  { method: 'PATCH', path: '/items/articles/1', body: { title: 'x' } },
  { method: 'DELETE', path: '/items/articles', body: [1] },
];

for (const permissions of [ALL, READER])
  t.test(
    `bad requests of ${permissions === ALL ? 'an administrator' : 'a reader'} throw what the service answers`,
    async (t) => {
      const { token } = permissions === ALL ? administrator : reader;
      for (const refused of REFUSED) {
        const { method, path, query = '', body } = refused;
        const text = body === undefined ? '' : JSON.stringify(body);
        const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) };
        const sent = body === undefined ? {} : { body: text, headers };
        const answer = await request(service, method, query === '' ? path : `${path}?${query}`, { token, ...sent });
        const error = await compiler.rest(refused, permissions).then(
          () => null,
          (thrown: unknown) => thrown,
        );
        const name = `${method} ${path}?${query} ${JSON.stringify(body)}`;
        if (answer.status < 400) {
          t.equal(error, null, name);
          continue;
        }
        if (!(error instanceof LateralError)) throw new Error(`${name}: ${answer.text}`, { cause: error });
        const [first] = (answer.json as { errors: { message: string; extensions: { code: string } }[] }).errors;
        t.strictSame(
          [error.status, error.code, error.message],
          [answer.status, first?.extensions.code, first?.message],
          name,
        );
      }
    },
  );

t.test('wrong documents of GraphQL throw an error with all places', async (t) => {
  const wrong = compiler.graphql('{ articles { nothing } }', {}, ALL);
  await t.rejects(wrong, {
    status: 400,
    code: 'INVALID_QUERY',
    extensions: { errors: [{ locations: [{ line: 1 }] }] },
  });
  await t.rejects(compiler.graphql('{ articles_by_id(id: "x") { id } ', {}, ALL), {
    code: 'INVALID_QUERY',
    status: 400,
  });
  await t.rejects(compiler.graphql('{ articles(filter: { id: { _eq: "x" } }) { id } }', {}, ALL), {
    code: 'INVALID_QUERY',
    status: 400,
  });
});

t.test('a request whose statements depend on rows has none', async (t) => {
  const query = { filter: { id: { _gt: 5 } } };
  for (const method of ['PATCH', 'DELETE'] as const)
    await t.rejects(
      compiler.rest({ method, path: '/items/tags', body: { query, ...(method === 'PATCH' && { data: {} }) } }, ALL),
      NoStatement,
    );
  await t.rejects(compiler.graphql('subscription { tags_mutated { key } }', {}, ALL), NoStatement);
  await t.rejects(compiler.graphql('{ __typename }', {}, ALL), NoStatement);
});

t.test('keys that the service makes come from an option', async (t) => {
  const create: RestRequest = { method: 'POST', path: '/items/tokens', body: { name: 'x' } };
  const { parameters } = await compiler.rest(create, ALL);
  t.ok(parameters.join().includes('00000000-0000-0000-0000-00000000000a'), parameters.join());
  const without = await createCompiler(catalog);
  await t.rejects(without.rest(create, ALL), { message: /pass the option "newUuid"/ });
  t.strictSame(
    await without
      .rest({ ...create, body: { id: administrator.user, name: 'x' } }, ALL)
      .then(({ following }) => following),
    [],
  );
});

t.test('the catalog is checked, and stays as it is', async (t) => {
  for (const wrong of [null, {}, { document: {} }, printed])
    await t.rejects(createCompiler(wrong as never), { message: /lateral catalog/ });
  t.equal(JSON.stringify(catalog), JSON.stringify(JSON.parse(printed)));
  t.notOk(printed.includes(administrator.token));
});

t.test('misspelled rules are refused, and a rule that a program changes counts', async (t) => {
  const read = { method: 'GET', path: '/items/articles' } as const;
  const compiled = (permissions: unknown): Promise<unknown> => compiler.rest(read, permissions as CallerPermissions);
  const rule = { collection: 'articles', action: 'read', fields: ['title'] };
  await t.rejects(compiled({ rules: [{ ...rule, permision: { title: { _eq: 'x' } } }] }), /Rules have no "permision"/);
  await t.rejects(compiled({ rules: 'all', usr: 'a' }), /Permissions have no "usr"/);
  for (const wrong of [undefined, {}, { rules: 'foo' }]) await t.rejects(compiled(wrong), /The permissions must be/);
  await t.rejects(compiled({ rules: [{ collection: 'articles', action: 'read' }] }), /A rule must have/);
  const rules: Permission[] = [{ ...rule, action: 'read' }];
  t.strictSame((await compiler.rest(read, { rules })).parameters, []);
  rules[0] = { ...rule, action: 'read', permissions: { title: { _eq: 'x' } } };
  t.match((await compiler.rest(read, { rules })).parameters, ['x']);
});

t.test('the limits are those of the service without options', async (t) => {
  const { parse, plan, document } = stageLimits({});
  const config = readConfig({});
  t.strictSame(parse, parseLimits(config));
  t.strictSame(plan, { defaultLimit: config.QUERY_LIMIT_DEFAULT, maxNodes: config.MAX_QUERY_NODES });
  t.match(document, {
    tokens: config.GRAPHQL_QUERY_TOKEN_LIMIT,
    depth: config.GRAPHQL_QUERY_DEPTH_LIMIT,
    nodes: config.GRAPHQL_QUERY_NODE_LIMIT,
    aliases: config.GRAPHQL_QUERY_ALIAS_LIMIT,
  });
  const page = await readFile(packagePath('docs', 'compiler.md'), 'utf8');
  for (const name of Object.keys(DEFAULT_LIMITS)) t.ok(page.includes(`\`${name}\``), name);
});

/** A program that has the package, and nothing else. */
async function makeProgram(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await makeFolder();
  await mkdir(join(folder, 'node_modules'));
  await symlink(packagePath(), join(folder, 'node_modules', 'lateral'));
  await writeFile(join(folder, 'package.json'), '{"type": "module", "private": true}');
  await writeFile(join(folder, 'catalog.json'), printed);
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  return folder;
}

t.test('a program that imports only the compiler has no socket and no open handle', async (t) => {
  const program = `import { readFileSync } from 'node:fs';
import { createCompiler } from 'lateral/compiler';
const compiler = await createCompiler(JSON.parse(readFileSync('catalog.json', 'utf8')));
const { sql } = await compiler.rest({ method: 'GET', path: '/items/articles/1' }, { rules: 'all' });
await new Promise((resolve) => setTimeout(resolve, 50));
const loaded = process.moduleLoadList.filter((name) => /^NativeModule (net|tls|http|dns|crypto|worker_threads|child_process)$/.test(name));
const handles = process.getActiveResourcesInfo().filter((name) => name !== 'CloseReq');
process.stdout.write(JSON.stringify({ isCompiled: sql.includes('"articles"'), loaded, handles }));
`;
  const folder = await makeProgram({ 'program.js': program });
  const { stdout } = await run(process.execPath, ['program.js'], { cwd: folder, env: {}, timeout: 30_000 });
  t.strictSame(JSON.parse(stdout), { isCompiled: true, loaded: [], handles: [] });
});

t.test('the samples of docs/compiler.md work as they are written', async (t) => {
  const page = await readFile(packagePath('docs', 'compiler.md'), 'utf8');
  const samples = new Map(
    [...page.matchAll(/^```js\n(\/\/ ([\w.]+)\n[\s\S]*?)^```$/gm)].map(([, code = '', file = '']) => [file, code]),
  );
  t.strictSame([...samples.keys()], ['articles.js', 'articles.test.js']);
  const folder = await makeProgram(Object.fromEntries(samples));
  const { stdout } = await run(process.execPath, ['articles.js'], { cwd: folder, env: {} });
  const [, shown = ''] = /^```pgsql\n([\s\S]*?)^```$/m.exec(page) ?? [];
  t.equal(flat(stdout), flat(shown));
  const tested = await run(process.execPath, ['--test', '--test-reporter=tap', 'articles.test.js'], {
    cwd: folder,
    env: {},
  });
  t.match(tested.stdout, /# pass 3\n# fail 0/);
});

/** Line breaks and indentation aside. */
function flat(text: string): string {
  return text.replace(/\s+/g, ' ').replace(/\( /g, '(').replace(/ \)/g, ')').trim();
}
