/** What callers who may not write everything get done: rules about rows and fields, presets, validations, nested items. */
import t from 'tap';
import { makeCaller, type Permission } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

// Long enough for a test to close a circle of locks before it is looked for.
const server = await startDatabase({ settings: { deadlock_timeout: '2s' } });
const databaseUrl = await createLibrary(server, 'access_writes');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

const allow = (
  collection: string,
  action: Permission['action'],
  permissions: object | null = null,
  fields: readonly string[] | null = ['*'],
  rest: Partial<Permission> = {},
): Permission => ({ collection, action, permissions, fields, ...rest });

await sql`create table notes (
  id serial primary key, text text, owner uuid, place text, kind text not null default 'plain', stamp timestamptz,
  article integer references articles (id))`;
await sql`insert into service_fields (collection, field, validation, validation_message) values
  ('notes', 'kind', ${JSON.stringify({ kind: { _regex: '^[a-z]+$' } })}::text::json, 'A kind has small letters')`;
await sql`insert into service_relations (many_collection, many_field, one_collection, one_field) values
  ('notes', 'article', 'articles', 'notes')`;

const editor = await makeCaller(sql, 'editor', [
  {
    permissions: [
      allow('articles', 'read'),
      allow('articles', 'update', { author: { name: { _eq: 'Ada Lovelace' } } }, ['title', 'comments']),
      allow('articles', 'update', { status: { _eq: 'draft' } }, ['title', 'body', 'author']),
      allow('articles', 'delete', { views: { _lt: 10 } }, null),
      allow('comments', 'read', { author: { _neq: 3 } }),
      allow('comments', 'update', { author: { _neq: 3 } }, ['body', 'article']),
      allow('comments', 'create', null, ['body', 'article']),
      allow('authors', 'read'),
    ],
  },
]);
const writer = await makeCaller(sql, 'writer', [
  {
    permissions: [
      allow('notes', 'read', { owner: { _eq: '$CURRENT_USER' } }),
      allow('notes', 'create', null, ['text', 'kind', 'article'], {
        presets: { owner: '$CURRENT_USER', place: '$CURRENT_USER.role.name', stamp: '$NOW', text: 'nothing' },
        validation: { _and: [{ text: { _contains: 'o' } }, { kind: { _neq: 'secret' } }] },
      }),
      allow('notes', 'update', { owner: { _eq: '$CURRENT_USER' } }, ['text', 'kind'], {
        presets: { place: 'changed' },
        validation: { text: { _submitted: true } },
      }),
      allow('articles', 'create', null, ['title', 'notes']),
      allow('articles', 'read', null, ['id', 'title', 'notes']),
    ],
  },
]);
const reader = await makeCaller(sql, 'reader', [{ permissions: [allow('articles', 'read')] }]);
await sql`create table boxes (id integer primary key, name text)`;
await sql`create table things (
  id integer primary key, text text, kind text, box integer references boxes (id), shelf integer references boxes (id))`;
await sql`alter table boxes add main integer references things (id)`;
await sql`insert into service_relations (many_collection, many_field, one_collection, one_field, one_deselect_action) values
  ('things', 'box', 'boxes', 'things', 'nullify'), ('things', 'shelf', 'boxes', 'shelved', 'delete'),
  ('boxes', 'main', 'things', null, 'nullify')`;
await sql`insert into service_fields (collection, field, special) values ('boxes', 'things', 'o2m'), ('boxes', 'shelved', 'o2m')`;
const packer = await makeCaller(sql, 'packer', [
  {
    permissions: [
      allow('boxes', 'read'),
      allow('boxes', 'update'),
      allow('things', 'read'),
      allow('things', 'update', { kind: { _eq: 'fixed' } }, ['text']),
      allow('things', 'update', { kind: { _eq: 'loose' } }, ['text', 'box', 'shelf']),
      allow('things', 'create'),
      allow('things', 'delete', { kind: { _eq: 'loose' } }),
    ],
  },
]);
await sql`create table slips (
  id integer primary key, text text, tenant text not null default 'nobody', maker text, changer text, mark text)`;
await sql`create table folders (id serial primary key, slip integer references slips (id))`;
await sql`insert into service_relations (many_collection, many_field, one_collection) values ('folders', 'slip', 'slips')`;
await sql`insert into service_fields (collection, field, validation) values
  ('slips', 'mark', ${JSON.stringify({ mark: { _neq: 'wrong' } })}::text::json)`;
const lodger = await makeCaller(sql, 'lodger', [
  {
    permissions: [
      allow('slips', 'read'),
      allow('slips', 'create', null, ['id', 'text', 'mark'], {
        presets: { tenant: 'T1', maker: 'new', changer: '$CURRENT_USER.email', mark: '$CURRENT_USER.first_name' },
        validation: { tenant: { _eq: 'T1' } },
      }),
      allow('slips', 'update', { tenant: { _eq: 'T1' } }, ['text', 'mark'], {
        presets: { tenant: 'T1', maker: 'changed', mark: '$CURRENT_ROLE.name' },
      }),
      allow('folders', 'create'),
      allow('folders', 'read'),
    ],
  },
]);
await sql`update service_users set first_name = 'Lodger' where id = ${lodger.user}`;
const service = await startTestService({ databaseUrl });

function send(caller: { token: string } | null, method: string, path: string, body?: unknown): Promise<Answer> {
  const token = caller?.token ?? null;
  if (body === undefined) return request(service, method, path, { token });
  const text = JSON.stringify(body);
  const headers = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) };
  return request(service, method, path, { token, headers, body: text });
}

const dataOf = (answer: Answer): unknown => (answer.json as { data?: unknown } | undefined)?.data ?? answer.status;
const errorOf = ({ json }: Answer): Record<string, unknown> =>
  (json as { errors: [{ extensions: Record<string, unknown> }] }).errors[0].extensions;

t.test('a caller who may only read writes nothing', async (t) => {
  for (const caller of [reader, null]) {
    t.equal((await send(caller, 'POST', '/items/articles', { title: 'x' })).status, 403);
    t.equal((await send(caller, 'PATCH', '/items/articles/1', { title: 'x' })).status, 403);
    t.equal((await send(caller, 'PATCH', '/items/articles', { keys: [1], data: { title: 'x' } })).status, 403);
    t.equal((await send(caller, 'DELETE', '/items/articles/1')).status, 403);
    t.equal((await send(caller, 'POST', '/utils/import/tags', [{ name: 'x' }])).status, 403);
    t.equal((await send(caller, 'POST', '/utils/sort/tags', { item: 1, to: 2 })).status, 403);
  }
  t.strictSame((await sql`select count(*)::int from articles where title = 'x'`)[0], { count: 0 });
});

t.test('an update needs a rule that holds of the row and names the fields', async (t) => {
  t.equal((await send(editor, 'PATCH', '/items/articles/1', { title: 'one' })).status, 200);
  t.equal((await send(editor, 'PATCH', '/items/articles/1', { body: 'one' })).status, 403, 'another rule names it');
  t.equal((await send(editor, 'PATCH', '/items/articles/3', { title: 'three', body: 'three' })).status, 200);
  t.equal((await send(editor, 'PATCH', '/items/articles/6', { title: 'six' })).status, 403);
  t.equal((await send(editor, 'PATCH', '/items/articles/999', { title: 'six' })).status, 403);
  t.equal((await send(editor, 'PATCH', '/items/articles/1', { views: 1 })).status, 403);
  t.equal((await send(editor, 'PATCH', '/items/articles/1', { nonsense: 1 })).status, 403);
  t.equal((await send(editor, 'PATCH', '/items/articles/1', { comments: [], body: 'x' })).status, 403);
  const both = await send(editor, 'PATCH', '/items/articles', [
    { id: 1, title: 'uno' },
    { id: 3, body: 'tre' },
  ]);
  t.equal(both.status, 200, 'each row by a rule of its own');
  t.equal(
    (
      await send(editor, 'PATCH', '/items/articles', [
        { id: 1, title: 'x' },
        { id: 1, body: 'x' },
      ])
    ).status,
    403,
  );
  t.equal((await send(editor, 'PATCH', '/items/articles', { keys: [1, 6], data: { title: 'x' } })).status, 403);
  t.strictSame(
    [...(await sql`select id, title, body from articles where id in (1, 3, 6) order by id`)],
    [
      { id: 1, title: 'uno', body: 'The first body' },
      { id: 3, title: 'three', body: 'tre' },
      { id: 6, title: 'Zebra', body: 'Body with unicode ✓ 漢字' },
    ],
  );
});

t.test('each field is written by a rule of its own that holds of the row', async (t) => {
  const [ada] = await sql`select id from authors where name = 'Ada Lovelace'`;
  const made = await sql`insert into articles (title, status, author) values
    ('both', 'draft', ${ada?.['id']}), ('one', 'published', ${ada?.['id']}) returning id`;
  const [both, one] = made.map(({ id }) => Number(id));
  const data = { comments: [], body: 'changed' };
  t.equal((await send(editor, 'PATCH', `/items/articles/${both}`, data)).status, 200, 'two rules name them together');
  t.equal((await send(editor, 'PATCH', `/items/articles/${one}`, data)).status, 403, 'one of the two does not hold');
  t.equal((await send(editor, 'PATCH', '/items/articles', { keys: [both, one], data })).status, 403);
  const mixed = [
    { id: both, comments: [], body: 'again' },
    { id: one, title: 'again' },
  ];
  t.equal((await send(editor, 'PATCH', '/items/articles', mixed)).status, 200, 'each row by what it needs');
  const wrong = [mixed[0], { id: one, title: 'wrong', body: 'wrong' }];
  t.equal((await send(editor, 'PATCH', '/items/articles', wrong)).status, 403);
  t.strictSame(
    [...(await sql`select title, body from articles where id in ${sql([both ?? 0, one ?? 0])} order by id`)],
    [
      { title: 'both', body: 'again' },
      { title: 'again', body: null },
    ],
  );
  await sql`delete from articles where id in ${sql([both ?? 0, one ?? 0])}`;
});

t.test('a query selects what may be touched', async (t) => {
  const answer = await send(editor, 'PATCH', '/items/articles?fields=id', {
    query: { limit: -1, sort: 'id' },
    data: { title: 'all' },
  });
  t.strictSame(dataOf(answer), [{ id: 1 }, { id: 2 }, { id: 3 }, { id: 4 }, { id: 8 }, { id: 9 }]);
  const hidden = await send(writer, 'PATCH', '/items/notes', {
    query: { filter: { article: { views: { _gt: 1 } } } },
    data: { text: 'x' },
  });
  t.equal(hidden.status, 403, 'a filter may name what may be read alone');
});

t.test('the items that may be touched stay the same when they are read again', async (t) => {
  const { asked } = await sql.begin(async (transaction) => {
    await transaction`set local deadlock_timeout = '60s'`;
    await transaction`lock table authors in access exclusive mode`;
    const asked = send(editor, 'GET', '/permissions/me/articles/6');
    await waitFor(async () => {
      const held = await transaction`
        select from pg_locks held join pg_locks wanted using (pid)
        where held.database = (select oid from pg_database where datname = current_database())
          and held.relation = 'articles'::regclass and held.granted
          and wanted.relation = 'authors'::regclass and not wanted.granted`;
      return held.length > 0;
    }, 20_000);
    // The service's statement ends in a deadlock, and is sent again.
    await transaction`lock table articles in access exclusive mode`;
    return { asked };
  });
  t.match(dataOf(await asked), { update: { access: false } });
});

t.test('deletes', async (t) => {
  t.equal((await send(editor, 'DELETE', '/items/articles/1')).status, 403);
  t.equal((await send(editor, 'DELETE', '/items/articles', [7, 1])).status, 403);
  t.equal((await send(editor, 'DELETE', '/items/articles/7')).status, 204);
  t.equal(
    (await send(editor, 'DELETE', '/items/articles', { query: { filter: { id: { _in: [1, 10] } } } })).status,
    204,
  );
  t.strictSame([...(await sql`select id from articles where id in (1, 7, 10)`)], [{ id: 1 }]);
});

t.test('nested items need permissions of their own', async (t) => {
  const add = (comments: unknown): Promise<Answer> =>
    send(editor, 'PATCH', '/items/articles/1?fields=comments.id,comments.body', { comments });
  t.strictSame(dataOf(await add({ create: [{ body: 'new' }] })), { comments: [{ id: 1, body: 'Nice!' }] });
  t.strictSame((await sql`select article from comments where body = 'new'`)[0], { article: 1 });
  t.equal((await add({ create: [{ body: 'new', created: '2020-01-01' }] })).status, 403);
  t.equal((await add({ create: [{ body: 'new', author: { name: 'evil' } }] })).status, 403);
  t.equal((await add({ update: [{ id: 2, body: 'changed' }] })).status, 403, 'a comment that may not be changed');
  t.equal((await add({ update: [{ id: 4, body: 'changed' }] })).status, 403);
  t.equal((await add({ delete: [2] })).status, 403);
  t.equal((await add({ delete: [9999] })).status, 403, 'as if it did not exist');
  t.equal((await add([{ id: 777, body: 'x' }])).status, 403, 'a key may not be chosen');
  t.equal((await add({ update: [{ id: 1, body: 'changed' }] })).status, 200);
  t.equal((await send(editor, 'PATCH', '/items/articles/1', { comments: [1] })).status, 200);
  t.strictSame(
    [...(await sql`select id, body, article from comments where id in (1, 2, 3) order by id`)],
    [
      { id: 1, body: 'changed', article: 1 },
      // Not the caller's to let go: a list replaces what its sender may change.
      { id: 2, body: 'I disagree', article: 1 },
      { id: 3, body: 'Spam', article: 1 },
    ],
    'rows without an author match no rule either',
  );
  t.equal((await send(editor, 'PATCH', '/items/articles/3', { author: { id: 1, name: 'Eve' } })).status, 403);
  t.equal((await send(editor, 'PATCH', '/items/articles/3', { author: { name: 'Eve' } })).status, 403);
  t.equal((await send(editor, 'PATCH', '/items/articles/3', { author: { id: 1 } })).status, 200, 'a mere reference');
  t.strictSame((await sql`select name from authors where id = 1`)[0], { name: 'Ada Lovelace' });
});

t.test('presets and validations', async (t) => {
  const made = await send(writer, 'POST', '/items/notes?fields=text,owner,place,kind,stamp', { text: 'good' });
  t.match(dataOf(made), { text: 'good', owner: writer.user, place: 'writer', kind: 'plain', stamp: /^2/ });
  t.match(dataOf(await send(writer, 'POST', '/items/notes?fields=text', {})), { text: 'nothing' });
  t.equal((await send(writer, 'POST', '/items/notes', { text: 'good', owner: null })).status, 403);
  const bad = await send(writer, 'POST', '/items/notes', [{ text: 'good' }, { text: 'bad' }]);
  t.equal(bad.status, 400);
  t.match(errorOf(bad), {
    code: 'FAILED_VALIDATION',
    collection: 'notes',
    field: 'text',
    type: 'contains',
    path: ['1', 'text'],
  });
  t.match(errorOf(await send(writer, 'POST', '/items/notes', { text: 'o', kind: 'secret' })), {
    type: 'neq',
    field: 'kind',
  });
  const kind = await send(writer, 'POST', '/items/notes', { text: 'o', kind: 'UPPER' });
  t.match(kind.json, {
    errors: [{ message: 'A kind has small letters', extensions: { type: 'regex', field: 'kind' } }],
  });
  const [note] = await sql`select id from notes where text = 'good'`;
  t.match(errorOf(await send(writer, 'PATCH', `/items/notes/${note?.['id']}`, { kind: 'x' })), {
    type: 'submitted',
    field: 'text',
  });
  const changed = await send(writer, 'PATCH', `/items/notes/${note?.['id']}?fields=text,place`, { text: 'changed' });
  t.strictSame(dataOf(changed), { text: 'changed', place: 'changed' });
  const nested = await send(writer, 'POST', '/items/articles?fields=title,notes.text,notes.owner', {
    title: 'with notes',
    notes: [{ text: 'one' }, {}],
  });
  t.strictSame(dataOf(nested), {
    title: 'with notes',
    notes: [
      { text: 'one', owner: writer.user },
      { text: 'nothing', owner: writer.user },
    ],
  });
  t.equal((await send(writer, 'POST', '/items/articles', { title: 'x', notes: [{ text: 'bad' }] })).status, 400);
  t.strictSame((await sql`select count(*)::int from articles where title = 'x'`)[0], { count: 0 });
  // The administrator is held by the validation of the field, not by those of policies.
  const admin = { token: 'the-token-of-the-test-administrator' };
  t.equal((await send(admin, 'POST', '/items/notes', { text: 'bad', kind: 'secret' })).status, 200);
  t.equal((await send(admin, 'POST', '/items/notes', { text: 'bad', kind: 'NO' })).status, 400);
});

t.test('a written item that cannot be seen has no body', async (t) => {
  const answer = await send(editor, 'POST', '/items/comments?fields=id', { body: 'x', article: 2 });
  t.equal(answer.status, 204, 'it has no author');
  t.equal((await send(editor, 'POST', '/items/comments', { body: 'x', author: 1 })).status, 403);
});

t.test('imports', async (t) => {
  const imported = await send(writer, 'POST', '/utils/import/notes', [
    { text: 'imported one' },
    { text: 'imported two' },
  ]);
  t.equal(imported.status, 200, imported.text);
  t.strictSame(
    [...(await sql`select owner from notes where text like 'imported %'`)],
    [{ owner: writer.user }, { owner: writer.user }],
  );
  t.equal((await send(writer, 'POST', '/utils/import/notes', [{ text: 'bad' }])).status, 400);
  t.equal((await send(writer, 'POST', '/utils/import/service_users', [{ email: 'x@example.com' }])).status, 403);
});

t.test('items that may not leave a relation stay, also where the payload changes it', async (t) => {
  const things = async (): Promise<unknown[]> => [...(await sql`select id, text, box, shelf from things order by id`)];
  const begin = async (): Promise<void> => {
    await sql`update boxes set main = null`;
    await sql`delete from things`;
    await sql`insert into boxes values (1, 'one', null) on conflict do nothing`;
    await sql`insert into things values (1, 'a', 'fixed', 1, 1), (2, 'b', 'loose', 1, 1), (3, 'c', 'fixed', 1, 1)`;
  };
  const fixed = { text: 'c', box: 1, shelf: 1 };
  await begin();
  t.equal((await send(packer, 'PATCH', '/items/things/1', { box: null })).status, 403);
  t.equal((await send(packer, 'PATCH', '/items/boxes/1', { things: [], main: { id: 1, text: 'new' } })).status, 200);
  t.strictSame(await things(), [
    { id: 1, text: 'new', box: 1, shelf: 1 },
    { id: 2, text: 'b', box: null, shelf: 1 },
    { id: 3, ...fixed },
  ]);
  t.equal((await send(packer, 'PATCH', '/items/boxes/1', { shelved: [], main: { id: 1, text: 'newer' } })).status, 200);
  t.strictSame(
    await things(),
    [
      { id: 1, text: 'newer', box: 1, shelf: 1 },
      { id: 3, ...fixed },
    ],
    'deleted or not at all',
  );
  await begin();
  t.equal((await send(packer, 'PATCH', '/items/boxes/1', { things: [], main: { id: 2, text: 'new' } })).status, 200);
  t.match(await things(), [{ box: 1 }, { text: 'new', box: null }, { box: 1 }], 'what may leave does');

  await begin();
  for (const name of ['things', 'shelved']) {
    const named = { [name]: { delete: [1] }, main: { id: 1, text: 'lost' } };
    t.equal((await send(packer, 'PATCH', '/items/boxes/1', named)).status, 403, `named to leave ${name}`);
  }
  t.match(await things(), [{ text: 'a', box: 1, shelf: 1 }, { id: 2 }, { id: 3 }], 'nothing was changed');
});

t.test('a rule about one relation lets nothing out of another', async (t) => {
  await sql`delete from things`;
  await sql`insert into boxes values (2, 'two', null)`;
  await sql`update service_relations set one_deselect_action = 'nullify' where many_collection = 'things'`;
  await sql`insert into things values (1, 'a', 'box', 2, 2), (2, 'b', 'shelf', 2, 2)`;
  const mover = await makeCaller(sql, 'mover', [
    {
      permissions: [
        allow('boxes', 'read'),
        allow('boxes', 'update'),
        allow('things', 'read'),
        allow('things', 'update', { kind: { _eq: 'box' } }, ['box']),
        allow('things', 'update', { kind: { _eq: 'shelf' } }, ['shelf']),
      ],
    },
  ]);
  await waitFor(async () => {
    await send(mover, 'PATCH', '/items/boxes/2', { things: [], shelved: [] });
    const rows = await sql`select box, shelf from things where box is null or shelf is null`;
    return rows.length === 2;
  }, 5_000);
  t.strictSame(
    [...(await sql`select id, box, shelf from things order by id`)],
    [
      { id: 1, box: null, shelf: 2 },
      { id: 2, box: 2, shelf: null },
    ],
  );
});

t.test('an item that may exist gets the presets of what happens to it', async (t) => {
  const made = { tenant: 'T1', maker: 'new', changer: 'lodger@example.com', mark: 'Lodger' };
  const kept = { tenant: 'T1', maker: 'changed', changer: 'lodger@example.com', mark: 'lodger' };
  const slips = async (): Promise<unknown[]> => [...(await sql`select * from slips order by id`)];
  t.equal((await send(lodger, 'POST', '/items/slips', { id: 1, text: 'a' })).status, 200);
  t.equal((await send(lodger, 'POST', '/items/folders', { slip: { id: 2, text: 'b' } })).status, 200);
  t.equal((await send(lodger, 'POST', '/utils/import/slips', [{ id: 3, text: 'c' }])).status, 200);
  t.strictSame(await slips(), [
    { id: 1, text: 'a', ...made },
    { id: 2, text: 'b', ...made },
    { id: 3, text: 'c', ...made },
  ]);
  const items = [
    { id: 1, text: 'A' },
    { id: 4, text: 'd' },
    { id: 2, text: 'B', mark: 'mine' },
    { id: 5, text: 'e', mark: 'mine' },
  ];
  t.equal((await send(lodger, 'POST', '/utils/import/slips', items)).status, 200, 'new and old in one list');
  t.equal((await send(lodger, 'POST', '/items/folders', { slip: { id: 3 } })).status, 200, 'a link changes nothing');
  const mixed = [
    { id: 1, text: 'A', ...kept },
    { id: 2, text: 'B', ...kept, mark: 'mine' },
    { id: 3, text: 'c', ...made },
    { id: 4, text: 'd', ...made },
    { id: 5, text: 'e', ...made, mark: 'mine' },
  ];
  t.strictSame(await slips(), mixed);
  t.equal((await send(lodger, 'POST', '/items/folders', { slip: { id: 6, mark: 'wrong' } })).status, 400);
  t.equal((await send(lodger, 'POST', '/items/folders', { slip: { id: 5, mark: 'wrong' } })).status, 400);
  t.strictSame(await slips(), mixed);
  // What a preset gives is validated for what happens to the item.
  await sql`update service_users set first_name = 'wrong' where id = ${lodger.user}`;
  t.equal((await send(lodger, 'POST', '/items/folders', { slip: { id: 6, text: 'f' } })).status, 400);
  t.equal((await send(lodger, 'POST', '/items/folders', { slip: { id: 5, text: 'f' } })).status, 200);
  t.strictSame(await slips(), [...mixed.slice(0, 4), { id: 5, text: 'f', ...kept }]);
});
