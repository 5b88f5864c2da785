/** Hooks of extensions for the service's own collections: comments and shares have their checks after hooks, and sorting has no way past them. */
import t from 'tap';
import type { Event } from '../../../src/base/observe.js';
import type { ExtensionLogEvent } from '../../../src/features/extensions/log-events.js';
import { createLateral, defineExtension, type Item, Refused } from '../../../src/index.js';
import { type MadeCaller, makeCaller, type Permission } from '../../support/callers.js';
import { ADMIN_TOKEN, type Answer, connectSql, createLibrary, request, startDatabase } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'extensions_system');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table ranks (id int primary key, name text, sort int);
  create table plain_ranks (id int primary key, name text, sort int);
  insert into ranks values (1, 'a', 1), (2, 'b', 2);
  insert into plain_ranks select * from ranks;
  insert into service_collections (collection, sort_field) values ('ranks', 'sort'), ('plain_ranks', 'sort')`);
const all = (collection: string, action: Permission['action'], permissions: object = {}): Permission => {
  return { collection, action, fields: ['*'], permissions };
};
const visible = { id: { _in: [1, 3] } };
const writer = await makeCaller(sql, 'hooked-writer', [
  {
    permissions: [
      all('articles', 'read', visible),
      all('articles', 'share', { id: { _eq: 1 } }),
      all('service_comments', 'create'),
      all('service_comments', 'read'),
      all('service_shares', 'create'),
      all('service_shares', 'read'),
      all('ranks', 'read'),
      all('ranks', 'update'),
      all('plain_ranks', 'read'),
      all('plain_ranks', 'update'),
    ],
  },
]);
const reader = await makeCaller(sql, 'hooked-reader', [{ permissions: [all('articles', 'read', visible)] }]);

const called: string[] = [];
let change: (payload: Item) => void = () => {};
let condition: object | undefined;
const watch = defineExtension({
  name: 'watch',
  collections: ['service_comments', 'service_shares', 'ranks'],
  beforeWrite: ({ collection, action, payload }) => {
    called.push(`before ${collection} ${action}`);
    change(payload);
  },
  afterWrite: ({ collection, action }) => called.push(`after ${collection} ${action}`),
  beforeRead: { articles: () => condition },
});
const events: (Event | ExtensionLogEvent)[] = [];
const lateral = createLateral(
  { databaseUrl, port: 0, logLevel: 'silent', adminToken: ADMIN_TOKEN, readCacheSize: 0 },
  { extensions: [watch] },
);
lateral.on('log', (event) => events.push(event as Event));
await lateral.start();
t.teardown(() => lateral.stop());

function send(path: string, body: object, { token }: Pick<MadeCaller, 'token'> = writer): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(lateral, 'POST', path, { token, headers, body: JSON.stringify(body) });
}

t.beforeEach(() => {
  called.length = 0;
  change = () => {};
  condition = undefined;
});

t.test('comments: hooks change them, and the item that they name is checked after hooks', async (t) => {
  const comment = { collection: 'articles', item: '1', comment: 'as sent' };
  change = (payload) => {
    payload['comment'] = 'as the hook says';
  };
  t.match(await send('/comments', comment), { status: 200, json: { data: { comment: 'as the hook says' } } });
  t.strictSame(called, ['before service_comments create', 'after service_comments create']);
  change = (payload) => {
    payload['item'] = '2';
  };
  t.equal((await send('/comments', comment)).status, 403, 'a hook names an item that the caller may not read');
  change = () => {
    throw new Refused(422, 'TOO_RUDE', 'No.');
  };
  t.match(await send('/comments', comment), { status: 422, json: { errors: [{ extensions: { code: 'TOO_RUDE' } }] } });
  called.length = 0;
  t.equal((await send('/comments', comment, reader)).status, 403);
  t.strictSame(called, [], 'the permission is checked before any hook');
  t.equal((await sql`select from service_comments`).length, 1);
});

t.test('shares: the right to share is checked after hooks', async (t) => {
  const share = { collection: 'articles', item: '1', name: 'as sent' };
  change = (payload) => {
    payload['name'] = 'as the hook says';
  };
  t.match(await send('/shares', share), { status: 200, json: { data: { name: 'as the hook says' } } });
  t.strictSame(called, ['before service_shares create', 'after service_shares create']);
  for (const item of ['2', '3']) {
    change = (payload) => {
      payload['item'] = item;
    };
    t.equal((await send('/shares', share)).status, 403, 'a hook shares an item that the caller may not share');
  }
  change = (payload) => {
    payload['user_created'] = reader.user;
  };
  await send('/shares', share);
  t.strictSame(
    [...(await sql`select distinct user_created from service_shares`)],
    [{ user_created: writer.user }],
    'a hook names another creator, whose rights the share would have',
  );
  called.length = 0;
  t.equal((await send('/shares', share, reader)).status, 403);
  t.strictSame(called, []);
});

t.test('conditions of beforeRead apply to the items that comments and shares name', async (t) => {
  condition = { id: { _neq: 1 } };
  t.equal((await send('/comments', { collection: 'articles', item: '1', comment: 'x' })).status, 403);
  t.equal((await send('/comments', { collection: 'articles', item: '3', comment: 'x' })).status, 200);
  t.equal((await send('/shares', { collection: 'articles', item: '1', name: 'x' })).status, 403);
});

t.test('sorting has no way past hooks', async (t) => {
  const move = { item: 2, to: 1 };
  t.match(await send('/utils/sort/ranks', move), { status: 400, text: /has hooks for writes of .* by PATCH/ });
  t.equal((await send('/utils/sort/ranks', move, reader)).status, 403, 'the permission is checked before');
  t.strictSame(called, []);
  t.strictSame([...(await sql`select id from ranks order by sort`)], [{ id: 1 }, { id: 2 }]);
  t.equal((await send('/utils/sort/plain_ranks', move)).status, 200, 'a collection without hooks');
  t.strictSame([...(await sql`select id from plain_ranks order by sort`)], [{ id: 2 }, { id: 1 }]);
  const headers = { 'content-type': 'application/json' };
  const patched = { headers, token: writer.token, body: '{"sort":0}' };
  t.equal((await request(lateral, 'PATCH', '/items/ranks/2', patched)).status, 200);
  t.strictSame(called, ['before ranks update', 'after ranks update']);
});

t.test('a read with conditions is compiled once', async (t) => {
  const compiled = (): number => events.filter(({ kind }) => kind === 'shape-compiled').length;
  const read = async (path: string): Promise<number> => {
    const before = compiled();
    t.equal((await request(lateral, 'GET', path, { token: writer.token })).status, 200);
    return compiled() - before;
  };
  t.equal(await read('/items/articles?fields=id,title&limit=1'), 1, 'a hook that adds nothing');
  condition = { id: { _neq: 1 } };
  t.equal(await read('/items/articles?fields=id,title&limit=1'), 1, 'a new condition');
  t.equal(await read('/items/articles?fields=id,title&limit=1'), 0);
  t.equal(await read('/items/articles?fields=id,status&limit=1'), 1, 'a new request');
  called.length = 0;
  const before = compiled();
  t.equal(
    (await request(lateral, 'GET', '/items/articles?fields=id,status,views&limit=1', { token: null })).status,
    403,
  );
  t.equal(compiled(), before);
});
