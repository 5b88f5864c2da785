/** Dry runs of schema changes, several creations in one transaction, indexes, and checks. */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'preview');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl });

async function send(method: string, path: string, body?: unknown): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, body === undefined ? {} : { headers, body: JSON.stringify(body) });
}

/** The data of an answer that has to be 200. */
async function ask<Data>(method: string, path: string, body?: unknown): Promise<Data> {
  const answer = await send(method, path, body);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
  return (answer.json as { data: Data }).data;
}

async function refusal(method: string, path: string, body?: unknown): Promise<string> {
  const answer = await send(method, path, body);
  const { errors } = answer.json as { errors: [{ extensions: { code: string } }] };
  return `${answer.status} ${errors[0].extensions.code}`;
}

async function version(): Promise<unknown> {
  const [row] = await sql`select version from service_schema`;
  return row?.['version'];
}

const JUNCTION = {
  collections: [
    {
      collection: 'articles_readers',
      schema: {},
      fields: [
        { field: 'article_id', type: 'integer' },
        { field: 'user_id', type: 'uuid' },
      ],
    },
  ],
  fields: [{ collection: 'articles', field: 'read_by', type: 'alias', meta: { special: ['m2m'] } }],
  relations: [
    {
      collection: 'articles_readers',
      field: 'article_id',
      related_collection: 'articles',
      schema: { on_delete: 'CASCADE' },
      meta: { one_field: 'read_by', junction_field: 'user_id' },
    },
    { collection: 'articles_readers', field: 'user_id', related_collection: 'service_users', schema: {} },
  ],
};

interface DryRun {
  readonly statements: readonly { readonly sql: string; readonly parameters: readonly unknown[] }[];
}

t.test('a dry run returns the statements of a change and changes nothing', async (t) => {
  const before = await version();
  const field = { field: 'subtitle', type: 'string', schema: { is_unique: true } };
  const { statements } = await ask<DryRun>('POST', '/fields/articles?dry_run=true', field);
  t.match(statements, [
    { sql: 'alter table "public"."articles" add column "subtitle" varchar', parameters: [] },
    { sql: /add constraint "articles_subtitle_unique" unique \("subtitle"\)$/, parameters: [] },
  ]);
  const dropped = await ask<DryRun>('DELETE', '/collections/articles?dry_run=true');
  t.ok(dropped.statements.some(({ sql }) => sql === 'drop table "public"."articles"'));
  const changed = await ask<DryRun>('PATCH', '/fields/articles/title?dry_run=true', { meta: { note: "It's" } });
  t.match(changed.statements, [{ sql: /insert into "public"."service_fields"/, parameters: [/"note":"It's"/] }]);
  t.strictSame((await ask<DryRun>('PATCH', '/fields/articles/title?dry_run=true', {})).statements, []);
  // PostgreSQL has seen the rows.
  const unfit = { type: 'integer' };
  t.equal(await refusal('PATCH', '/fields/articles/title?dry_run=true', unfit), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/fields/articles?dry_run=maybe', field), '400 INVALID_QUERY');
  const anyone = await request(service, 'DELETE', '/collections/articles?dry_run=true', { token: null });
  t.equal(anyone.status, 403);
  t.equal(await version(), before, 'no change was announced');
  t.equal((await send('GET', '/fields/articles/subtitle')).status, 403);
  t.equal((await sql`select from pg_attribute where attname = 'subtitle'`).length, 0);
});

t.test('the tables, fields and relations of one request are created together or not at all', async (t) => {
  const { statements } = await ask<DryRun>('POST', '/schema/changes?dry_run=true', JUNCTION);
  t.match(
    statements.filter(({ parameters }) => parameters.length === 0).map(({ sql }) => sql.replaceAll(/\s+/g, ' ')),
    [
      /^create table "public"."articles_readers" \("id" serial not null primary key, "article_id" integer, "user_id" uuid\)$/,
      /foreign key \("article_id"\) references "public"."articles" \("id"\) on delete cascade/,
      /foreign key \("user_id"\) references "public"."service_users" \("id"\)/,
    ],
  );
  const before = await version();
  for (const [body, code] of [
    [{ ...JUNCTION, relations: [...JUNCTION.relations, { collection: 'nowhere', field: 'x' }] }, 'INVALID_PAYLOAD'],
    [{ ...JUNCTION, fields: [{ field: 'read_by', type: 'alias' }] }, 'INVALID_PAYLOAD'],
    [{ ...JUNCTION, more: [] }, 'INVALID_PAYLOAD'],
    [{ fields: {} }, 'INVALID_PAYLOAD'],
    [{}, 'INVALID_PAYLOAD'],
    [[], 'INVALID_PAYLOAD'],
  ] as const)
    t.equal(await refusal('POST', '/schema/changes', body), `400 ${code}`);
  t.equal(await version(), before);
  t.match(await sql`select to_regclass('articles_readers')::text as name`, [{ name: null }]);
  const created = await ask('POST', '/schema/changes', JUNCTION);
  t.match(created, {
    collections: [{ collection: 'articles_readers' }],
    fields: [{ collection: 'articles', field: 'read_by', type: 'alias' }],
    relations: [{ field: 'article_id' }, { related_collection: 'service_users' }],
  });
  const [user] = await ask<readonly { id: string }[]>('GET', '/users?limit=1&fields=id');
  const path = '/items/articles/1?fields=read_by.user_id.email';
  await ask('PATCH', path, { read_by: [{ user_id: user?.id }] });
  t.match(await ask('GET', path), { read_by: [{ user_id: { email: /@/ } }] });
  await send('DELETE', '/collections/articles_readers');
});

t.test('indexes are listed with size and use, created, and dropped', async (t) => {
  const created = await ask('POST', '/indexes/articles', { fields: ['status', 'views'] });
  t.match(created, { collection: 'articles', fields: ['status', 'views'], is_unique: false, size: Number, scans: 0 });
  const { name } = created as { name: string };
  t.match(await sql`select pg_get_indexdef(${name}::regclass) as said`, [{ said: /btree \(status, views\)$/ }]);
  const dry = await ask<DryRun>('POST', '/indexes/articles?dry_run=true', { fields: ['title'] });
  t.match(dry.statements, [{ sql: /^create index "articles_title_index" on "public"."articles" \("title"\)$/ }]);
  const listed = await ask<readonly { name: string; is_primary_key: boolean }[]>('GET', '/indexes/articles');
  t.ok(listed.some((index) => index.name === name));
  t.notOk(
    listed.some((index) => index.name === 'articles_title_index'),
    'a dry run creates none',
  );
  const all = await ask<readonly { collection: string }[]>('GET', '/indexes');
  t.ok(all.some(({ collection }) => collection === 'authors') && all.length > listed.length);
  const unique = await ask<{ name: string }>('POST', '/indexes/tags', { fields: ['id', 'name'], is_unique: true });
  const key = listed.find((index) => index.is_primary_key)?.name ?? '';
  for (const [method, path, body, said] of [
    ['POST', '/indexes/articles', { fields: [] }, '400 INVALID_PAYLOAD'],
    ['POST', '/indexes/articles', { fields: ['nothing'] }, '400 INVALID_PAYLOAD'],
    ['POST', '/indexes/articles', { fields: ['comments'] }, '400 INVALID_PAYLOAD'],
    ['POST', '/indexes/articles', { fields: ['title'], method: 'gin' }, '400 INVALID_PAYLOAD'],
    ['POST', '/indexes/nothing', { fields: ['title'] }, '403 FORBIDDEN'],
    ['DELETE', `/indexes/articles/${key}`, undefined, '400 INVALID_PAYLOAD'],
    ['DELETE', '/indexes/articles/nothing', undefined, '403 FORBIDDEN'],
    ['DELETE', `/indexes/authors/${name}`, undefined, '403 FORBIDDEN'],
  ] as const)
    t.equal(await refusal(method, path, body), said, `${method} ${path}`);
  t.equal((await request(service, 'GET', '/indexes', { token: null })).status, 403);
  t.equal((await send('DELETE', `/indexes/articles/${name}`)).status, 204);
  t.equal((await send('DELETE', `/indexes/tags/${unique.name}`)).status, 204);
  t.equal((await sql`select from pg_class where relname in (${name}, ${unique.name})`).length, 0);
});

t.test('functions that can be made callable are listed', async (t) => {
  await sql`create function offered(at_least int default 3, out low int, out high int) language sql stable as 'select 1, 2'`;
  await sql`comment on function offered is 'Two numbers'`;
  for (const [name, takes, returns] of [
    ['unnamed', 'int', 'int'],
    ['polymorphic', 'any_value anyelement', 'anyelement'],
  ] as const)
    await sql.unsafe(`create function ${name}(${takes}) returns ${returns} language sql as 'select $1'`);
  await sql`create function triggered() returns trigger language plpgsql as 'begin return new; end'`;
  await sql`create procedure proceeding() language sql as 'select 1'`;
  const listed = await ask<readonly { name: string }[]>('GET', '/schema/functions');
  t.strictSame(
    listed.filter(({ name }) => name === 'offered'),
    [
      {
        name: 'offered',
        schema: null,
        arguments: 'at_least integer DEFAULT 3, OUT low integer, OUT high integer',
        returns: 'record',
        writes: false,
        note: 'Two numbers',
      },
    ],
  );
  for (const name of ['unnamed', 'polymorphic', 'triggered', 'proceeding', 'service_raise', 'service_estimate'])
    t.notOk(
      listed.some((each) => each.name === name),
      `${name} is not offered`,
    );
  t.equal((await request(service, 'GET', '/schema/functions', { token: null })).status, 403);
});

t.test('checks are listed, created, applied to writes, and dropped', async (t) => {
  const expression = "views >= -1000 and status <> 'forbidden'";
  const dry = await ask<DryRun>('POST', '/checks/articles?dry_run=true', { expression });
  t.strictSame(
    dry.statements.map((each) => each.sql),
    [`alter table "public"."articles" add constraint "articles_status_views_check" check (${expression})`],
  );
  t.equal((await sql`select from pg_constraint where conname = 'articles_status_views_check'`).length, 0, 'a dry run');
  const created = await ask<{ name: string }>('POST', '/checks/articles', { expression });
  t.match(created, {
    collection: 'articles',
    fields: ['status', 'views'],
    expression: /views >= '?-1000/,
    is_valid: true,
  });
  const second = await ask<{ name: string }>('POST', '/checks/articles', { expression: 'id < 1000000000' });
  const third = await ask<{ name: string }>('POST', '/checks/articles', { expression: 'id <> 7777777' });
  t.not(second.name, third.name, 'each has a name of its own');
  await ask('POST', '/checks/tags', { expression: "name <> ''", name: 'named tags' });
  t.match(await sql`select conname from pg_constraint where conname = 'named tags' and contype = 'c'`, [
    { conname: 'named tags' },
  ]);
  t.equal(await refusal('PATCH', '/items/articles/1', { views: -1001 }), '400 FAILED_VALIDATION');
  for (const [method, path, body, said] of [
    ['POST', '/checks/articles', {}, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/articles', { expression: ' ' }, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/articles', { expression: 'views > 0', fields: [] }, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/articles', { expression: 'views > 0', name: '' }, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/articles', { expression: 'nothing > 0' }, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/articles', { expression: 'views' }, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/articles', { expression: 'true); drop table articles; --' }, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/articles', { expression: 'exists (select 1)' }, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/articles', { expression: 'pg_sleep(10) is null' }, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/articles', { expression: 'views > 0', name: created.name }, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/articles', { expression: 'id < 0' }, '400 FAILED_VALIDATION'],
    ['POST', '/checks/service_users', { expression: "email <> ''" }, '400 INVALID_PAYLOAD'],
    ['POST', '/checks/nothing', { expression: 'true' }, '403 FORBIDDEN'],
    ['DELETE', '/checks/articles/nothing', undefined, '403 FORBIDDEN'],
    ['DELETE', `/checks/authors/${created.name}`, undefined, '403 FORBIDDEN'],
  ] as const)
    t.equal(await refusal(method, path, body), said, `${method} ${path} ${JSON.stringify(body)}`);
  for (const path of ['/checks', '/checks/articles'])
    t.equal((await request(service, 'GET', path, { token: null })).status, 403);
  const all = await ask<readonly { collection: string; name: string }[]>('GET', '/checks');
  t.ok(all.some(({ collection, name }) => collection === 'tags' && name === 'named tags'));
  for (const { name } of [created, second, third])
    t.equal((await send('DELETE', `/checks/articles/${name}`)).status, 204);
  t.equal((await send('DELETE', '/checks/tags/named%20tags')).status, 204);
  const left = await ask<readonly { name: string }[]>('GET', '/checks/articles');
  t.notOk(left.some(({ name }) => name === created.name));
});
