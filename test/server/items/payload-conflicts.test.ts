/** Keys that collide because of the payload alone: the answer names the value that is not unique, and blames nobody else. */
import t from 'tap';
import { makeCaller, type Permission } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createDatabase,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'payload_conflicts');
await (await startTestService({ databaseUrl })).stop();
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

await sql.unsafe(`
  create table article (id serial primary key, title text);
  create table comments (id serial primary key, article integer references article, body text, hidden boolean, n integer);
  create table tags (id serial primary key, name text, colour text);
  create table article_tags (id serial primary key, article integer references article, tag integer references tags, n integer);
  create table texts (id serial primary key, text text, size integer);
  create table article_blocks (id serial primary key, article integer references article, item text, collection text);
  create table amounts (id numeric(6, 2) primary key, label text, n integer);
  create table codes (id char(4) primary key, label text);
  create table fixed (id integer primary key, label text);
  create function fix() returns trigger language plpgsql as $$ begin new.id := 1; return new; end $$;
  create trigger fix before insert on fixed for each row execute function fix();
  insert into article (title) values ('one'), ('two');
  insert into comments (article, body, hidden, n) select 1 + g % 2, 'comment ' || g, false, 0 from generate_series(1, 4) g;
  insert into tags (name) values ('red'), ('green');
  insert into article_tags (article, tag, n) values (1, 1, 0), (1, 2, 0);
  insert into texts (text) values ('first'), ('second');
  insert into article_blocks (article, item, collection) values (1, '1', 'texts'), (1, '2', 'texts');
  insert into amounts values (1, 'one', 0), (2, 'two', 0);
  insert into codes values ('ab', 'first');
  insert into fixed values (1, 'first');
  insert into service_relations (many_collection, many_field, one_collection, one_field, junction_field) values
    ('comments', 'article', 'article', 'comments', null), ('article_tags', 'article', 'article', 'tags', 'tag'),
    ('article_blocks', 'article', 'article', 'blocks', 'item');
  insert into service_relations (many_collection, many_field, one_collection_field, one_allowed_collections) values
    ('article_blocks', 'item', 'collection', 'texts');
`);

const TABLES = ['article', 'comments', 'tags', 'article_tags', 'texts', 'article_blocks', 'amounts', 'codes', 'fixed'];

const allow = (collection: string, action: Permission['action'], fields: readonly string[] = ['*']): Permission => ({
  collection,
  action,
  fields,
});

/** May make everything, and change some fields. */
const partial = await makeCaller(sql, 'partial', [
  {
    permissions: [
      ...TABLES.flatMap((name) => [allow(name, 'read'), allow(name, 'create'), allow(name, 'delete')]),
      allow('article', 'update'),
      allow('comments', 'update', ['body', 'article']),
      allow('tags', 'update', ['name']),
      allow('article_tags', 'update', ['article', 'tag']),
      allow('texts', 'update', ['text']),
      allow('article_blocks', 'update', ['article', 'item', 'collection']),
      allow('amounts', 'update', ['label']),
    ],
  },
]);
const service = await startTestService({ databaseUrl });

function send(token: string, method: string, path: string, body: unknown): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, { token, headers, body: JSON.stringify(body) });
}

async function everything(): Promise<string> {
  const rows = await Promise.all(TABLES.map((name) => sql`select * from ${sql(name)} order by id`));
  return JSON.stringify(rows);
}

interface Refused {
  readonly errors: readonly [{ readonly extensions: Readonly<Record<string, unknown>> }];
}

type Case = readonly [name: string, method: string, path: string, body: unknown, collection: string];

const CASES: readonly Case[] = [
  [
    'entries of a list that name different fields',
    'PATCH',
    '/items/article/1',
    {
      comments: [
        { id: 1, body: 'x' },
        { id: 2, body: 'y', hidden: true, n: 1 },
      ],
    },
    'comments',
  ],
  [
    'the same, the other way around',
    'PATCH',
    '/items/article/1',
    { comments: [{ id: 2, body: 'y', hidden: true, n: 1 }, { id: 1, body: 'x' }, { body: 'new' }] },
    'comments',
  ],
  [
    'several items, each with its list',
    'PATCH',
    '/items/article',
    [
      { id: 1, comments: [{ id: 1, body: 'x' }] },
      {
        id: 2,
        comments: [
          { id: 2, n: 1 },
          { id: 70, n: 1 },
        ],
      },
    ],
    'comments',
  ],
  [
    'a new item with members that exist',
    'POST',
    '/items/article',
    {
      title: 'new',
      comments: [
        { id: 1, body: 'x' },
        { id: 2, n: 1 },
      ],
    },
    'comments',
  ],
  [
    'a junction and what it leads to',
    'PATCH',
    '/items/article/1',
    { tags: [{ id: 1, tag: { id: 1, name: 'x' } }, { tag: { id: 2, name: 'y', colour: 'z' } }] },
    'tags',
  ],
  [
    'rows of the junction itself',
    'PATCH',
    '/items/article/1',
    {
      tags: [
        { id: 1, tag: 2 },
        { id: 2, tag: 1, n: 5 },
      ],
    },
    'article_tags',
  ],
  [
    'a many-to-any relation',
    'PATCH',
    '/items/article/1',
    {
      blocks: [
        { id: 1, collection: 'texts', item: { id: 1, text: 'x' } },
        { id: 2, collection: 'texts', item: { id: 2, text: 'y', size: 3 } },
      ],
    },
    'texts',
  ],
  ['a key that exists', 'POST', '/items/comments', [{ id: 900, n: 1 }, { id: 1, n: 1 }, { n: 2 }], 'comments'],
  [
    'a key that the payload has twice',
    'POST',
    '/items/comments',
    [
      { id: 901, n: 1 },
      { id: 901, n: 2 },
    ],
    'comments',
  ],
  ['a key in another spelling', 'POST', '/items/amounts', { id: '1', label: 'again' }, 'amounts'],
  [
    'two spellings of one key',
    'POST',
    '/items/amounts',
    [
      { id: '5.0', n: 1 },
      { id: '5.00', n: 1 },
    ],
    'amounts',
  ],
  ['a key that is padded', 'POST', '/items/codes', { id: 'ab', label: 'again' }, 'codes'],
  ['a key that a trigger chooses', 'POST', '/items/fixed', { id: 7, label: 'again' }, 'fixed'],
];

for (const [name, method, path, body, collection] of CASES) {
  t.test(name, async (t) => {
    const before = await everything();
    const { status, json } = await send(partial.token, method, path, body);
    t.equal(status, 400);
    const { code, type, collection: blamed } = (json as Refused).errors[0].extensions;
    t.same({ code, type, blamed }, { code: 'FAILED_VALIDATION', type: 'unique', blamed: collection });
    t.equal(await everything(), before, 'nothing has changed');
  });
}

t.test('the same in GraphQL', async (t) => {
  const query = `mutation { update_article_item(id: 1, data: { comments: [{ id: 1, body: "x" }, { id: 2, n: 1 }] }) { id } }`;
  const { json } = await send(partial.token, 'POST', '/graphql', { query });
  t.equal((json as Refused).errors[0].extensions['code'], 'FAILED_VALIDATION');
});

t.test('an import names the row', async (t) => {
  const rows = [{ id: 8, label: 'a' }];
  const form = `--x\r\nContent-Disposition: form-data; name="file"; filename="a.json"\r\nContent-Type: application/json\r\n\r\n${JSON.stringify(rows)}\r\n--x--\r\n`;
  const headers = { 'content-type': 'multipart/form-data; boundary=x' };
  const { status, json } = await request(service, 'POST', '/utils/import/fixed', {
    token: ADMIN_TOKEN,
    headers,
    body: form,
  });
  t.equal(status, 400);
  t.match((json as Refused).errors[0].extensions, { code: 'FAILED_VALIDATION', type: 'unique', rows: [1] });
});

t.test('items that may be changed are changed, and new ones are made', async (t) => {
  const answer = await send(partial.token, 'PATCH', '/items/article/1?fields=comments.id,comments.body', {
    comments: [
      { id: 2, body: 'changed' },
      { id: 50, body: 'made', hidden: true, n: 1 },
    ],
  });
  t.equal(answer.status, 200);
  t.same((answer.json as { data: unknown }).data, {
    comments: [
      { id: 2, body: 'changed' },
      { id: 50, body: 'made' },
    ],
  });
});
