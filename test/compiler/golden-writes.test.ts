/**
 * The SQL of representative writes with its parameters: what the service sends to PostgreSQL for one HTTP request, from begin
 * to commit where there is a transaction.
 */
import t from 'tap';
import { type CallerPermissions, createCompiler, type Permission } from '../../src/features/catalog/compiler.js';
import { makeCaller } from '../support/callers.js';
import { runCommand } from '../support/command.js';
import { CLIENT, compiledOrNone, compileGolden, equalRecorded } from '../support/compiled.js';
import { compareGolden, type GoldenRequest, goldenNames, recordRequest } from '../support/golden.js';
import { createLibrary, KNOWS_CALLERS, request, startDatabase, startTestService, withSql } from '../support/service.js';
import { StatementRecorder } from '../support/statement-recorder.js';

interface Write extends GoldenRequest {
  /** Sent by a caller whose permissions say what they may write. */
  readonly restricted?: boolean;
}

const IDEMPOTENT: Write = {
  method: 'POST',
  path: '/items/tags?fields=id',
  body: { name: 'once' },
  headers: { 'idempotency-key': 'order-4711' },
};

/** In this order: each meets what those before it have left. */
const WRITES: Readonly<Record<string, Write>> = {
  create: { method: 'POST', path: '/items/articles?fields=id,title', body: { title: 'New', rating: '4.50' } },
  'create-with-related': {
    method: 'POST',
    path: '/items/articles?fields=id,author.name,comments.body,tags.tags_id.name',
    body: { title: 'Related', author: 1 },
  },
  'create-many': {
    method: 'POST',
    path: '/items/authors?fields=id',
    body: [{ name: 'One' }, { name: 'Two', born: '1912-06-23' }],
  },
  'create-nested': {
    method: 'POST',
    path: '/items/articles?fields=id,author.name,comments.body,tags.tags_id.name',
    body: {
      title: 'Nested',
      author: { name: 'Somebody New' },
      comments: [{ body: 'First!', author: 2 }],
      tags: [{ tags_id: 1 }, { tags_id: { name: 'fresh' } }],
      blocks: [{ collection: 'block_text', item: { text: 'Intro' } }],
    },
  },
  'create-with-key': { method: 'POST', path: '/items/tags?fields=id', body: { id: 50, name: 'fifty' } },
  'create-idempotent': IDEMPOTENT,
  'create-idempotent-repeated': IDEMPOTENT,
  'create-without-activity-log': { method: 'POST', path: '/items/notes?fields=id', body: { text: 'unrecorded' } },
  'activity-log': {
    method: 'PATCH',
    path: '/items/tags/1?fields=id',
    body: { name: 'recorded' },
    headers: { 'user-agent': 'Browser/1.0', origin: 'https://example.com' },
  },
  'update-by-key': {
    method: 'PATCH',
    path: '/items/articles/1?fields=title',
    body: { title: 'Changed', author: null },
  },
  'update-by-keys': { method: 'PATCH', path: '/items/tags?fields=id', body: { keys: [1, 2], data: { name: 'same' } } },
  'update-by-query': {
    method: 'PATCH',
    path: '/items/articles?fields=id',
    body: { query: { filter: { author: { name: { _eq: 'Alan Turing' } } } }, data: { views: 0 } },
  },
  'update-each': {
    method: 'PATCH',
    path: '/items/articles?fields=id',
    body: [
      { id: 2, views: 1 },
      { id: 3, title: 'Third' },
    ],
  },
  'update-singleton': { method: 'PATCH', path: '/items/preferences?fields=title', body: { title: 'Titled' } },
  'upsert-nested': {
    method: 'PATCH',
    path: '/items/articles/2?fields=id',
    body: { author: { id: 70, name: 'Seventy' }, comments: [4, { id: 80, body: 'Eighty' }] },
  },
  'upsert-import': {
    method: 'POST',
    path: '/utils/import/tags',
    body: [{ id: 3, name: 'replaced' }, { name: 'imported' }],
  },
  'on-conflict-merge': {
    method: 'POST',
    path: '/items/licences?fields=id,number&on_conflict=author',
    body: [{ author: 1, number: 'A0' }, { author: 2 }],
  },
  'on-conflict-one': {
    method: 'POST',
    path: '/items/licences?fields=id,number&on_conflict=author',
    body: { author: 1, number: 'A3' },
  },
  'on-conflict-key': { method: 'POST', path: '/items/tags?on_conflict=id', body: { id: 3, name: 'merged' } },
  'on-conflict-ignore': {
    method: 'POST',
    path: '/items/licences?fields=id&on_conflict=author&resolution=ignore',
    body: [
      { author: 2, number: 'B1' },
      { author: 3, number: 'C1' },
    ],
  },
  'on-conflict-restricted': {
    method: 'POST',
    path: '/items/licences?fields=id,number&on_conflict=author',
    body: [
      { author: 2, number: 'B2' },
      { author: 1, number: 'A1' },
    ],
    restricted: true,
  },
  'unlink-nullify': { method: 'PATCH', path: '/items/articles/1?fields=id', body: { comments: { delete: [1] } } },
  'unlink-delete': { method: 'PATCH', path: '/items/articles/1?fields=id', body: { tags: [1] } },
  'replace-one-to-one': { method: 'PATCH', path: '/items/authors/1?fields=id', body: { licence: { number: 'A2' } } },
  sort: { method: 'POST', path: '/utils/sort/articles_tags', body: { item: 3, to: 4 } },
  'graphql-mutation': {
    method: 'POST',
    path: '/graphql',
    body: {
      query:
        'mutation { create_tags_item(data: { name: "made" }) { id } update_tags_item(id: 2, data: { name: "changed" }) { name } }',
    },
  },
  'restricted-update': {
    method: 'PATCH',
    path: '/items/articles/8?fields=id',
    body: { title: 'Changed', comments: { create: [{ body: 'New' }] } },
    restricted: true,
  },
  'update-matched': {
    method: 'PATCH',
    path: '/items/tags/2?fields=name',
    body: { name: 'matched' },
    headers: { 'if-match': '"1.a.b", "2.a.b"' },
  },
  'update-matched-nested': {
    method: 'PATCH',
    path: '/items/articles/8?fields=id',
    body: { title: 'Matched', comments: { create: [{ body: 'Matched' }] } },
    headers: { 'if-match': '"1.a.b"' },
    restricted: true,
  },
  'delete-matched': { method: 'DELETE', path: '/items/comments/2', headers: { 'if-match': '"1.a.b"' } },
  'restricted-delete': { method: 'DELETE', path: '/items/comments', body: [3], restricted: true },
  'delete-by-key': { method: 'DELETE', path: '/items/comments/2' },
  'delete-by-keys': { method: 'DELETE', path: '/items/comments', body: [5, 6] },
  'delete-by-query': {
    method: 'DELETE',
    path: '/items/comments',
    body: { query: { filter: { article: { title: { _eq: 'Beta' } } } } },
  },
  'operator-by-key': {
    method: 'PATCH',
    path: '/items/articles/1?fields=views,meta',
    body: { views: { _increment: 1 }, meta: { _merge: { seen: true } } },
  },
  'operator-each': {
    method: 'PATCH',
    path: '/items/articles?fields=id',
    body: [
      { id: 2, views: { _increment: 1 } },
      { id: 3, views: { _decrement: 1 }, slug: { _append: '-new' } },
      { id: 4, views: 7 },
    ],
  },
  'operator-restricted': {
    method: 'PATCH',
    path: '/items/articles/8?fields=title',
    body: { title: { _append: '!' } },
    restricted: true,
  },
  'operator-on-conflict': {
    method: 'POST',
    path: '/items/licences?fields=id&on_conflict=author',
    body: { author: 1, number: { _append: '+' } },
  },
  'create-list': {
    method: 'POST',
    path: '/items/authors?fields=id,name',
    body: [
      { name: 'One of two', born: '1912-06-23' },
      { name: 'Two of two', born: null },
    ],
  },
};

/** Requests whose statements depend on rows, and those of other routes. */
const NOT_COMPILED: readonly string[] = [
  'delete-by-query',
  'sort',
  'update-by-query',
  'update-singleton',
  'upsert-import',
];

const ADMINISTRATOR = '00000000-0000-0000-0000-000000000001';
const EDITOR = '00000000-0000-0000-0000-000000000002';

const RULES = [
  { collection: 'articles', action: 'read', fields: ['*'] },
  {
    collection: 'articles',
    action: 'update',
    fields: ['title', 'comments'],
    permissions: { author: { name: { _eq: '$CURRENT_USER.first_name' } } },
    validation: { title: { _nempty: true } },
    presets: { status: 'draft' },
  },
  { collection: 'licences', action: 'read', fields: ['*'] },
  { collection: 'licences', action: 'create', validation: { number: { _nempty: true } }, fields: ['*'] },
  { collection: 'licences', action: 'update', permissions: { author: { _neq: 5 } }, fields: ['number'] },
  { collection: 'comments', action: 'create', fields: ['*'] },
  { collection: 'comments', action: 'delete', permissions: { author: { _null: true } }, fields: ['*'] },
] as const satisfies readonly Permission[];

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'golden_writes');
const { administrator, editor } = await withSql(databaseUrl, async (sql) => {
  await sql`create table licences (id serial primary key, author integer unique references authors, number text)`;
  await sql`insert into service_fields (collection, field, special) values ('authors', 'licence', 'o2o')`;
  await sql`
    insert into service_relations (many_collection, many_field, one_collection, one_field)
    values ('licences', 'author', 'authors', 'licence')`;
  await sql`create table notes (id serial primary key, text text)`;
  await sql`create table preferences (id serial primary key, title text)`;
  await sql`
    insert into service_collections (collection, singleton, accountability)
    values ('notes', false, null), ('preferences', true, 'all')`;
  await sql`update service_collections set sort_field = 'sort' where collection = 'articles_tags'`;
  return {
    administrator: await makeCaller(sql, 'administrator', [{ admin_access: true }], {
      user: ADMINISTRATOR,
    }),
    editor: await makeCaller(sql, 'editor', [{ permissions: RULES }], { user: EDITOR, name: 'Ada Lovelace' }),
  };
});
const recorder = await StatementRecorder.open(databaseUrl);
/** Without the option, the limit of rows depends on the heap of the process. */
const service = await startTestService({
  databaseUrl: recorder.url,
  WORKERS: '1',
  MAX_BATCH_MUTATION: '100000',
  ...KNOWS_CALLERS,
});
// The first request of a caller asks PostgreSQL who that is.
for (const { token } of [administrator, editor]) await request(service, 'GET', '/items/articles', { token });

const { output: catalog } = await runCommand(['catalog'], { DATABASE_URL: databaseUrl });
const compiler = await createCompiler(JSON.parse(catalog));
const roles = (caller: typeof editor): Pick<CallerPermissions, 'role' | 'policies'> => ({
  role: caller.role,
  policies: caller.policies,
});
const PERMISSIONS: Readonly<Record<'restricted' | 'all', CallerPermissions>> = {
  restricted: { rules: RULES, user: EDITOR, ...roles(editor), client: CLIENT },
  all: { rules: 'all', user: ADMINISTRATOR, ...roles(administrator), client: CLIENT },
};
const withoutStatement: string[] = [];

for (const [name, { restricted = false, ...write }] of Object.entries(WRITES)) {
  t.test(name, async (t) => {
    const { token } = restricted ? editor : administrator;
    const recorded = await recordRequest(t, { service, recorder }, write, token);
    await compareGolden(t, 'writes', name, recorded);
    // The compiler takes no headers, and the requests of items alone.
    if (write.headers) return;
    const isOfItems = write.path.startsWith('/items/') || write.path === '/graphql';
    const permissions = PERMISSIONS[restricted ? 'restricted' : 'all'];
    const compiled = isOfItems ? await compiledOrNone(compileGolden(compiler, write, permissions)) : null;
    if (compiled) equalRecorded(t, compiled, recorded);
    else withoutStatement.push(name);
  });
}

t.test('requests whose statements do not depend on rows are compiled without the service', async (t) => {
  t.strictSame(withoutStatement.sort(), NOT_COMPILED);
});

t.test('no file is left over', async (t) => {
  t.strictSame(await goldenNames('writes'), Object.keys(WRITES).sort());
});
