/**
 * Collections and relations over HTTP: tables with all their fields, folders, relations of every kind up to the items they
 * lead to, and nothing left behind when they go.
 */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

t.setTimeout(110_000);

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'relations');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl });

async function send(method: string, path: string, body?: unknown): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, body === undefined ? {} : { headers, body: JSON.stringify(body) });
}

/** The data of an answer that has to be 200. */
async function ask<Data = unknown>(method: string, path: string, body?: unknown): Promise<Data> {
  const answer = await send(method, path, body);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
  return (answer.json as { data: Data }).data;
}

async function refusal(method: string, path: string, body?: unknown): Promise<string> {
  const answer = await send(method, path, body);
  const { errors } = answer.json as { errors: [{ extensions: { code: string; type?: string } }] };
  const { code, type } = errors[0].extensions;
  return `${answer.status} ${code}${type ? ` ${type}` : ''}`;
}

/** Everything the database and the metadata hold about names that begin alike. */
async function traces(prefix: string): Promise<string[]> {
  const rows = await sql<{ trace: string }[]>`
    select 'relation ' || relname as trace from pg_class where relnamespace = 'public'::regnamespace and starts_with(relname, ${prefix})
    union all select 'constraint ' || conname from pg_constraint where starts_with(conname, ${prefix})
    union all select 'collection ' || collection from service_collections where starts_with(collection, ${prefix})
    union all select 'field ' || collection || '.' || field from service_fields where starts_with(collection, ${prefix}) or starts_with(field, ${prefix})
    union all select 'relation row ' || many_collection || '.' || many_field from service_relations
      where starts_with(many_collection, ${prefix}) or starts_with(one_collection, ${prefix}) or one_allowed_collections like ${`%${prefix}%`}
    union all select 'permission ' || collection from service_permissions where starts_with(collection, ${prefix}) or fields like ${`%${prefix}%`}`;
  return rows.map(({ trace }) => trace);
}

t.test('a collection with its fields, and everything about them, is made and goes in one piece', async (t) => {
  const made = await ask('POST', '/collections', {
    collection: 'rooms',
    schema: { comment: 'Where things happen' },
    meta: { icon: 'door', note: 'Rooms', singleton: false, sort_field: 'rank', translations: [{ language: 'de-DE' }] },
    fields: [
      { field: 'code', type: 'string', schema: { is_primary_key: true, max_length: 12 }, meta: { interface: 'input' } },
      { field: 'name', type: 'string', schema: { is_unique: true, is_nullable: false, comment: 'As on the door' } },
      { field: 'rank', type: 'integer', schema: { default_value: 0, is_indexed: true }, meta: { group: 'details' } },
      { field: 'label', type: 'text', schema: { generation_expression: "code || ': ' || name" }, meta: {} },
      { field: 'details', type: 'alias', meta: { special: ['alias', 'no-data', 'group'] } },
      { field: 'secret', type: 'hash' },
    ],
  });
  t.match(made, {
    collection: 'rooms',
    meta: { collection: 'rooms', icon: 'door', note: 'Rooms', sort_field: 'rank', accountability: 'all' },
    schema: { schema: 'public', name: 'rooms', comment: 'Where things happen' },
  });
  const fields = await ask<{ field: string; meta: { sort: number } | null }[]>('GET', '/fields/rooms');
  t.match(fields, [
    { field: 'code', meta: { sort: 1 }, schema: { is_primary_key: true, max_length: 12, is_nullable: false } },
    { field: 'name', meta: null, schema: { is_unique: true, is_nullable: false, comment: 'As on the door' } },
    { field: 'rank', meta: { sort: 1, group: 'details' }, schema: { is_indexed: true, default_value: 0 } },
    { field: 'label', meta: { sort: 3 }, schema: { is_generated: true } },
    { field: 'secret', type: 'hash', meta: { special: 'hash' } },
    { field: 'details', type: 'alias', schema: null },
  ]);
  t.match(await ask('POST', '/items/rooms', { code: 'A1', name: 'Hall' }), { code: 'A1', label: 'A1: Hall', rank: 0 });
  await sql`insert into service_permissions (policy, collection, action, fields)
    select id, 'rooms', 'read', 'code,name' from service_policies limit 1`;
  t.equal((await send('DELETE', '/collections/rooms')).status, 204);
  t.strictSame(await traces('rooms'), []);
  t.equal(await refusal('GET', '/collections/rooms'), '403 FORBIDDEN');
  t.equal(await refusal('GET', '/items/rooms'), '403 FORBIDDEN');
});

t.test('several collections are made together or not at all', async (t) => {
  const names = ['many_one', 'many_two'];
  const made = await ask(
    'POST',
    '/collections',
    names.map((collection) => ({ collection, schema: {} })),
  );
  t.match(
    made,
    names.map((collection) => ({ collection, meta: null, schema: { name: collection } })),
  );
  const bad = [
    { collection: 'many_three', schema: {} },
    { collection: 'many_one', schema: {} },
  ];
  t.equal(await refusal('POST', '/collections', bad), '400 INVALID_PAYLOAD');
  t.equal(await refusal('GET', '/collections/many_three'), '403 FORBIDDEN');
  const changed = await ask(
    'PATCH',
    '/collections',
    names.map((collection) => ({ collection, meta: { icon: 'pair' } })),
  );
  t.match(
    changed,
    names.map((collection) => ({ collection, meta: { icon: 'pair' } })),
  );
  const half = [
    { collection: 'many_one', meta: { icon: 'lost' } },
    { collection: 'nothing', meta: {} },
  ];
  t.equal(await refusal('PATCH', '/collections', half), '403 FORBIDDEN');
  t.match(await ask('GET', '/collections/many_one'), { meta: { icon: 'pair' } });
  const found = await request(service, 'SEARCH', '/collections', {
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ keys: names }),
  });
  t.match(found.json, { data: names.map((collection) => ({ collection })) });
  for (const name of names) await send('DELETE', `/collections/${name}`);
  t.strictSame(await traces('many_'), []);
});

t.test('folders group collections and leave them when they go', async (t) => {
  t.match(await ask('POST', '/collections', { collection: 'folder', meta: { icon: 'folder' } }), { schema: null });
  await ask('POST', '/collections', { collection: 'inside', schema: {}, meta: { group: 'folder' } });
  t.match(await ask('GET', '/collections'), [{}]);
  const listed = await ask<{ collection: string; schema: unknown }[]>('GET', '/collections');
  t.equal(listed.find(({ collection }) => collection === 'folder')?.schema, null);
  t.ok(listed.some(({ collection }) => collection === 'service_users'));
  t.strictSame(await ask('GET', '/fields/folder'), []);
  t.equal(await refusal('POST', '/fields/folder', { field: 'a', type: 'string' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/collections', { collection: 'folder', schema: {} }), '400 INVALID_PAYLOAD');
  t.equal(
    await refusal('POST', '/collections', { collection: 'x', fields: [{ field: 'a', type: 'string' }] }),
    '400 INVALID_PAYLOAD',
  );
  t.equal(
    await refusal('PATCH', '/collections/inside', { meta: { group: 'nowhere' } }),
    '400 FAILED_VALIDATION foreign_key',
  );
  t.equal((await send('DELETE', '/collections/folder')).status, 204);
  t.match(await ask('GET', '/collections/inside'), { meta: { group: null } });
  await send('DELETE', '/collections/inside');
});

t.test('objects of the service cannot be changed', async (t) => {
  t.equal(await refusal('DELETE', '/collections/service_users'), '403 FORBIDDEN');
  t.equal(await refusal('PATCH', '/collections/service_settings', { meta: { singleton: false } }), '403 FORBIDDEN');
  t.equal(await refusal('DELETE', '/fields/service_users/email'), '403 FORBIDDEN');
  t.equal(await refusal('DELETE', '/fields/service_roles/users'), '403 FORBIDDEN');
  t.equal(await refusal('PATCH', '/fields/service_users/email', { type: 'text' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('PATCH', '/fields/service_users/email', { meta: { note: 'x' } }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('DELETE', '/relations/service_users/role'), '403 FORBIDDEN');
  t.equal(
    await refusal('PATCH', '/relations/service_users/role', { schema: { on_delete: 'CASCADE' } }),
    '403 FORBIDDEN',
  );
  const indexed = await ask('PATCH', '/fields/service_users/last_name', { schema: { is_indexed: true } });
  t.match(indexed, { schema: { is_indexed: true } });
  await ask('PATCH', '/fields/service_users/last_name', { schema: { is_indexed: false } });
  const own = await ask('POST', '/fields/service_users', { field: 'nickname', type: 'string', meta: { note: 'ours' } });
  t.match(own, { collection: 'service_users', field: 'nickname' });
  await ask('PATCH', '/fields/service_users/nickname', { type: 'text' });
  t.equal((await send('DELETE', '/fields/service_users/nickname')).status, 204);
});

t.test('many-to-one and its list on the other side', async (t) => {
  await ask('POST', '/collections', { collection: 'notes', schema: {}, fields: [{ field: 'text', type: 'text' }] });
  await ask('POST', '/fields/notes', { field: 'article', type: 'integer', meta: { special: ['m2o'] } });
  await ask('POST', '/fields/articles', { field: 'notes', type: 'o2m' });
  const relation = await ask('POST', '/relations', {
    collection: 'notes',
    field: 'article',
    related_collection: 'articles',
    schema: { on_delete: 'CASCADE' },
    meta: { one_field: 'notes' },
  });
  t.match(relation, {
    collection: 'notes',
    field: 'article',
    related_collection: 'articles',
    schema: {
      constraint_name: 'notes_article_foreign',
      foreign_key_column: 'id',
      on_delete: 'CASCADE',
      on_update: 'NO ACTION',
    },
    meta: { many_collection: 'notes', one_collection: 'articles', one_field: 'notes', one_deselect_action: 'nullify' },
  });
  t.strictSame(await ask('GET', '/relations/notes'), [relation]);
  const { id } = await ask<{ id: number }>('POST', '/items/articles', {
    title: 'With notes',
    notes: [{ text: 'one' }],
  });
  t.strictSame(await ask('GET', `/items/articles/${id}?fields=notes.text`), { notes: [{ text: 'one' }] });
  for (const on_delete of ['NO ACTION', 'RESTRICT', 'SET NULL', 'SET DEFAULT', 'CASCADE']) {
    t.match(await ask('PATCH', '/relations/notes/article', { schema: { on_delete } }), { schema: { on_delete } });
  }
  const changed = await ask('PATCH', '/relations/notes/article', {
    schema: { on_update: 'CASCADE' },
    meta: { one_deselect_action: 'delete' },
  });
  t.match(changed, { schema: { on_update: 'CASCADE', on_delete: 'CASCADE' }, meta: { one_deselect_action: 'delete' } });
  await send('DELETE', `/items/articles/${id}`);
  t.strictSame(await ask('GET', '/items/notes'), [], 'the database cascades');
  await ask('POST', '/items/notes', { text: 'stray' });
  await sql`update notes set article = null`;
  t.equal((await send('DELETE', '/relations/notes/article')).status, 204);
  t.equal(await refusal('GET', '/relations/notes/article'), '403 FORBIDDEN');
  t.equal(await refusal('DELETE', '/relations/notes/article'), '403 FORBIDDEN');
  t.match(await ask('GET', '/fields/notes/article'), { type: 'integer', schema: { foreign_key_table: null } });
  await sql`update notes set article = 999999`;
  const again = { collection: 'notes', field: 'article', related_collection: 'articles' };
  t.equal(await refusal('POST', '/relations', again), '400 FAILED_VALIDATION foreign_key');
  t.match(await ask('POST', '/relations', { ...again, schema: null }), {
    schema: null,
    related_collection: 'articles',
  });
  t.equal(await refusal('POST', '/relations', again), '400 INVALID_PAYLOAD');
});

t.test('a field that leaves takes its relation and every mention of it along', async (t) => {
  await sql`update notes set article = null`;
  await ask('PATCH', '/relations/notes/article', { schema: {}, meta: { one_field: 'notes', sort_field: null } });
  await ask('POST', '/fields/notes', { field: 'rank', type: 'integer' });
  await ask('PATCH', '/relations/notes/article', { meta: { sort_field: 'rank' } });
  await ask('PATCH', '/collections/notes', {
    meta: { sort_field: 'rank', archive_field: 'rank', item_duplication_fields: ['text', 'rank'] },
  });
  await ask('PATCH', '/fields/notes/text', { meta: { group: 'rank' } });
  await sql`insert into service_permissions (policy, collection, action, fields)
    select id, 'notes', action, fields from service_policies, (values ('read', 'text,rank'), ('update', 'rank')) v (action, fields)
    where admin_access`;
  t.equal((await send('DELETE', '/fields/notes/rank')).status, 204);
  t.match(await ask('GET', '/collections/notes'), {
    meta: { sort_field: null, archive_field: null, item_duplication_fields: ['text'] },
  });
  t.match(await ask('GET', '/fields/notes/text'), { meta: { group: null } });
  t.match(await ask('GET', '/relations/notes/article'), { meta: { sort_field: null } });
  const permissions =
    await sql`select action, fields from service_permissions where collection = 'notes' order by action`;
  t.strictSame(
    [...permissions].map((row) => ({ ...row })),
    [
      { action: 'read', fields: 'text' },
      { action: 'update', fields: null },
    ],
  );
  t.equal((await send('DELETE', '/fields/articles/notes')).status, 204);
  t.match(await ask('GET', '/relations/notes/article'), { meta: { one_field: null } });
  await ask('POST', '/fields/articles', { field: 'notes', type: 'o2m' });
  await ask('PATCH', '/relations/notes/article', { meta: { one_field: 'notes' } });
  t.equal((await send('DELETE', '/fields/notes/article')).status, 204);
  t.equal(await refusal('GET', '/fields/articles/notes'), '403 FORBIDDEN', 'the list on the other side');
  t.strictSame(await ask('GET', '/relations/notes'), []);
  await send('DELETE', '/collections/notes');
  t.strictSame(await traces('notes'), []);
});

t.test('many-to-many and many-to-any over junctions', async (t) => {
  const key = (field: string) => ({ field, type: 'integer' });
  await ask('POST', '/collections', [
    {
      collection: 'j_people',
      schema: {},
      fields: [
        { field: 'name', type: 'string' },
        { field: 'clubs', type: 'm2m' },
        { field: 'things', type: 'm2a' },
      ],
    },
    {
      collection: 'j_clubs',
      schema: {},
      fields: [
        { field: 'title', type: 'string' },
        { field: 'people', type: 'm2m' },
      ],
    },
    { collection: 'j_members', schema: {}, meta: { hidden: true }, fields: [key('person'), key('club'), key('sort')] },
    {
      collection: 'j_things',
      schema: {},
      fields: [key('person'), { field: 'item', type: 'string' }, { field: 'collection', type: 'string' }],
    },
  ]);
  const relations = [
    {
      collection: 'j_members',
      field: 'person',
      related_collection: 'j_people',
      meta: { one_field: 'clubs', junction_field: 'club', sort_field: 'sort' },
    },
    {
      collection: 'j_members',
      field: 'club',
      related_collection: 'j_clubs',
      meta: { one_field: 'people', junction_field: 'person' },
    },
    {
      collection: 'j_things',
      field: 'person',
      related_collection: 'j_people',
      schema: { on_delete: 'CASCADE' },
      meta: { one_field: 'things', junction_field: 'item' },
    },
    {
      collection: 'j_things',
      field: 'item',
      related_collection: null,
      meta: {
        one_collection_field: 'collection',
        one_allowed_collections: ['j_clubs', 'tags'],
        junction_field: 'person',
      },
    },
  ];
  for (const relation of relations) await ask('POST', '/relations', relation);
  t.match(await ask('GET', '/relations/j_things/item'), {
    related_collection: null,
    schema: null,
    meta: { one_allowed_collections: ['j_clubs', 'tags'], one_collection_field: 'collection' },
  });
  const made = await ask(
    'POST',
    '/items/j_people?fields=name,clubs.club.title,things.collection,things.item:j_clubs.title',
    {
      name: 'Ada',
      clubs: [{ club: { title: 'Chess' } }],
      things: [{ collection: 'j_clubs', item: { title: 'Go' } }],
    },
  );
  t.strictSame(made, {
    name: 'Ada',
    clubs: [{ club: { title: 'Chess' } }],
    things: [{ collection: 'j_clubs', item: { title: 'Go' } }],
  });
  t.equal((await send('DELETE', '/collections/j_clubs')).status, 204);
  t.equal(await refusal('GET', '/fields/j_members/club'), '403 FORBIDDEN', 'fields that led there go');
  t.match(await ask('GET', '/relations/j_members/person'), { meta: { one_field: 'clubs', junction_field: null } });
  t.match(await ask('GET', '/relations/j_things/item'), { meta: { one_allowed_collections: ['tags'] } });
  for (const name of ['j_things', 'j_members', 'j_people'])
    t.equal((await send('DELETE', `/collections/${name}`)).status, 204);
  t.strictSame(await traces('j_'), []);
});

t.test('relations that cannot be are refused', async (t) => {
  const place = { collection: 'articles', field: 'views', related_collection: 'authors' };
  t.equal(await refusal('POST', '/relations', { ...place, collection: 'nothing' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/relations', { ...place, field: 'nothing' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/relations', { ...place, related_collection: 'nothing' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/relations', { ...place, field: 'id' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/relations', { ...place, field: 'author' }), '400 INVALID_PAYLOAD');
  t.equal(
    await refusal('POST', '/relations', { ...place, field: 'title' }),
    '400 INVALID_PAYLOAD',
    'types that do not match',
  );
  t.equal(await refusal('POST', '/relations', { ...place, schema: { on_delete: 'EXPLODE' } }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/relations', { ...place, meta: { one_field: 'name' } }), '400 INVALID_PAYLOAD');
  const names = ['', ' ', 'a b', 'a"b', '%x', '__x', '1x', 'é', 'x'.repeat(64), 'articles'];
  for (const one_field of names)
    t.equal(await refusal('POST', '/relations', { ...place, meta: { one_field } }), '400 INVALID_PAYLOAD', one_field);
  for (const one_field of [...names.slice(0, -1), 'name'])
    t.equal(
      await refusal('PATCH', '/relations/articles/author', { meta: { one_field } }),
      '400 INVALID_PAYLOAD',
      one_field,
    );
  t.match(await ask('PATCH', '/relations/articles/author', { meta: { one_field: 'articles' } }), {
    meta: { one_field: 'articles' },
  });
  t.equal(await refusal('POST', '/relations', { ...place, meta: { sort_field: 'nothing' } }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/relations', { collection: 'articles', field: 'views' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/relations', { collection: 'articles' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('PATCH', '/relations/articles/views', { meta: {} }), '403 FORBIDDEN');
  t.equal(await refusal('GET', '/relations/nothing'), '403 FORBIDDEN');
});

t.test('callers other than administrators see what they may read, and change nothing', async (t) => {
  const token = 'the-token-of-a-reader-of-articles';
  await sql.unsafe(`
    insert into service_policies (id, name) values ('00000000-0000-4000-8000-00000000000a', 'Reads');
    insert into service_users (id, email, token)
      values ('00000000-0000-4000-8000-00000000000b', 'reader@example.com', encode(sha256('${token}'), 'hex'));
    insert into service_access ("user", policy)
      values ('00000000-0000-4000-8000-00000000000b', '00000000-0000-4000-8000-00000000000a');
    insert into service_collections (collection) values ('cellar'), ('attic');
    update service_collections set "group" = 'cellar' where collection = 'articles';
    insert into service_permissions (policy, collection, action, fields)
      select '00000000-0000-4000-8000-00000000000a', c, 'read', f from (values ('articles', 'id,title,author'),
        ('service_collections', '*'), ('service_fields', '*'), ('service_relations', '*')) v (c, f);`);
  const read = async (path: string): Promise<Answer> => request(service, 'GET', path, { token });
  // Permissions and metadata arrive each on a way of their own.
  await waitFor(async () => (await read('/fields/articles')).status === 200, 5_000);
  await waitFor(async () => (await read('/collections/articles')).text.includes('"group":"cellar"'), 5_000);
  const names = ({ json }: Answer, property: string): unknown[] =>
    (json as { data: Record<string, unknown>[] }).data.map((entry) => entry[property]);
  t.strictSame(names(await read('/fields/articles'), 'field'), ['id', 'title', 'author']);
  t.strictSame([...new Set(names(await read('/fields'), 'collection'))].includes('authors'), false);
  t.equal((await read('/fields/articles/title')).status, 200);
  t.equal((await read('/fields/articles/views')).status, 403);
  t.equal((await read('/fields/authors')).status, 403);
  const collections = names(await read('/collections'), 'collection');
  t.strictSame(
    ['articles', 'cellar', 'attic', 'authors'].map((name) => collections.includes(name)),
    [true, true, false, false],
  );
  t.equal((await read('/collections/authors')).status, 403);
  t.strictSame(names(await read('/relations/articles'), 'field'), [], 'the other side is not known');
  const options = { token, headers: { 'content-type': 'application/json' } };
  const field = JSON.stringify({ field: 'mine', type: 'string' });
  t.equal((await request(service, 'POST', '/fields/articles', { ...options, body: field })).status, 403);
  t.equal((await request(service, 'DELETE', '/fields/articles/title', options)).status, 403);
  t.equal((await request(service, 'DELETE', '/collections/articles', options)).status, 403);
  t.equal((await request(service, 'GET', '/collections', { token: null })).status, 403);
});

t.test('a foreign key that nobody told the service about', async (t) => {
  await sql.unsafe(`
    create table outside (id serial primary key, ref integer references authors (id) on delete cascade);
    create view outside_view as select id, ref from outside;`);
  await waitFor(async () => (await send('GET', '/relations/outside/ref')).status === 200, 5_000);
  t.match(await ask('GET', '/relations/outside/ref'), {
    related_collection: 'authors',
    schema: { on_delete: 'CASCADE' },
    meta: { id: null, many_collection: 'outside', many_field: 'ref', one_collection: 'authors', one_field: null },
  });
  const relations = await ask<{ meta: object | null }[]>('GET', '/relations');
  t.ok(
    relations.every(({ meta }) => meta !== null),
    'every relation has its sides in its metadata',
  );
  t.match(await ask('PATCH', '/relations/outside/ref', { meta: { one_field: 'outsiders' } }), {
    meta: { one_field: 'outsiders' },
  });
  t.match(await ask('GET', '/items/authors?limit=1&fields=outsiders'), [{ outsiders: [] }]);
  t.equal(await refusal('DELETE', '/collections/outside'), '422 UNPROCESSABLE_CONTENT', 'a view depends on it');
  t.equal(await refusal('DELETE', '/fields/outside/ref'), '422 UNPROCESSABLE_CONTENT');
  t.match(await ask('PATCH', '/collections/outside_view', { meta: { primary_key: 'id' } }), {
    collection: 'outside_view',
  });
  t.equal(await refusal('POST', '/fields/outside_view', { field: 'a', type: 'string' }), '400 INVALID_PAYLOAD');
  t.equal((await send('DELETE', '/collections/outside_view')).status, 204);
  t.equal((await send('DELETE', '/collections/outside')).status, 204);
  t.strictSame(await traces('outside'), []);
});

t.test('fields and their relations are made in either order', async (t) => {
  const o2m = { field: 'lines', type: 'alias', meta: { special: ['o2m'], interface: 'list-o2m' } };
  const relation = {
    collection: 'e_lines',
    field: 'bill',
    related_collection: 'e_bills',
    meta: { one_field: 'lines' },
  };
  const steps = {
    'field first': [
      ['/fields/e_bills', o2m],
      ['/relations', relation],
    ],
    'relation first': [
      ['/relations', relation],
      ['/fields/e_bills', o2m],
    ],
  } as const;
  for (const [name, bodies] of Object.entries(steps)) {
    await ask('POST', '/collections', [
      { collection: 'e_bills', schema: {} },
      {
        collection: 'e_lines',
        schema: {},
        fields: [{ field: 'id', type: 'integer', schema: { is_primary_key: true, has_auto_increment: true } }],
      },
    ]);
    await ask('POST', '/fields/e_lines', { field: 'bill', type: 'integer', meta: { special: ['m2o'] } });
    for (const [path, body] of bodies) await ask('POST', path, body);
    t.match(
      await ask('GET', '/fields/e_bills/lines'),
      { type: 'alias', meta: { special: 'o2m', interface: 'list-o2m' } },
      name,
    );
    t.equal(await refusal('POST', '/fields/e_bills', o2m), '400 INVALID_PAYLOAD', 'it is there now');
    t.match(await ask('POST', '/items/e_bills?fields=lines', { lines: [{}] }), { lines: [1] }, name);
    await ask('PATCH', '/relations/e_lines/bill', { meta: { one_field: 'others' } });
    t.equal(await refusal('POST', '/fields/e_bills', { field: 'others', type: 'string' }), '400 INVALID_PAYLOAD');
    const divider = { field: 'others', type: 'alias', meta: { special: ['alias', 'no-data'] } };
    t.equal(await refusal('POST', '/fields/e_bills', divider), '400 INVALID_PAYLOAD', 'a list is no divider');
    for (const collection of ['e_lines', 'e_bills']) await send('DELETE', `/collections/${collection}`);
  }
  // The columns of a junction one by one, each with its relation.
  await ask(
    'POST',
    '/collections',
    [
      { collection: 'e_left', schema: {} },
      { collection: 'e_right', schema: {}, fields: [{ field: 'name', type: 'string' }] },
      { collection: 'e_both', schema: {} },
    ].map((each) => ({
      ...each,
      fields: [
        ...(each.fields ?? []),
        { field: 'id', type: 'integer', schema: { is_primary_key: true, has_auto_increment: true } },
      ],
    })),
  );
  await ask('POST', '/fields/e_left', { field: 'rights', type: 'm2m' });
  for (const [field, related, one_field, junction_field] of [
    ['left', 'e_left', 'rights', 'right'],
    ['right', 'e_right', null, 'left'],
  ] as const) {
    await ask('POST', '/fields/e_both', { field, type: 'integer' });
    const meta = { one_field, junction_field };
    await ask('POST', '/relations', { collection: 'e_both', field, related_collection: related, meta });
  }
  const made = { rights: [{ right: { name: 'x' } }] };
  t.match(await ask('POST', '/items/e_left?fields=rights.right.name', made), made);
  for (const collection of ['e_both', 'e_left', 'e_right']) await send('DELETE', `/collections/${collection}`);
});
