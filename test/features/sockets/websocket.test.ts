/** The family's protocol over WebSockets: signing in, items, and events with what each subscriber may see. */
import t from 'tap';
import { addPermission, makeCaller } from '../../support/callers.js';
import { EventStream } from '../../support/event-stream.js';
import { type Message, MessageSocket, type MessageSocketOptions } from '../../support/message-socket.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const server = await startDatabase({ own: true });
const url = await createLibrary(server, 'websocket');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql`create table lines (shelf int, place int, book text, primary key (shelf, place))`;
await sql`create view drafts as select id, title from articles where status = 'draft'`;
await sql`insert into service_collections (collection, primary_key) values ('drafts', 'id')`;
await sql`create table teams (id int primary key, open boolean not null)`;
await sql`create table papers (id int primary key, team int references teams)`;
await sql`insert into teams values (1, true), (2, true)`;
await sql`insert into papers values (1, 1), (2, 1), (3, 2), (4, 2)`;
await sql`create table parcels (id int primary key, state text)`;
await sql`insert into parcels select n, 'sent' from generate_series(1, 200) n`;
await sql`create table posters (id int primary key, image text)`;
await sql`insert into posters select n, '' from generate_series(1, 60) n`;
const service = await startTestService({
  databaseUrl: url,
  WORKERS: '1',
  LIVE_MAX_SUBSCRIPTIONS_PER_CONNECTION: '20',
  LIVE_MAX_REMEMBERED_KEYS: '1000',
});

async function open(options?: MessageSocketOptions): Promise<MessageSocket> {
  const socket = new MessageSocket(service, options);
  t.teardown(() => socket.close());
  return socket.opened();
}

async function signedIn(token = ADMIN_TOKEN): Promise<MessageSocket> {
  const socket = await open();
  t.match(await socket.signIn(token), { type: 'auth', status: 'ok' });
  return socket;
}

const events = (socket: MessageSocket): unknown[] =>
  socket.messages.filter(({ type }) => type === 'subscription').map(({ event, data }) => [event, data]);

/** They have subscribed to the same with the same rights, some time ago. */
const pair: MessageSocket[] = [];
let pairedAt = 0;

t.test('two of the same rights subscribe to the same', async (t) => {
  const read = { collection: 'tags', action: 'read', permissions: { id: { _lt: 650 } } } as const;
  const { token } = await makeCaller(sql, 'sharing', [{ permissions: [read] }]);
  await waitFor(async () => (await get(service, '/items/tags', { token })).status === 200, 5_000);
  const subscribe = { type: 'subscribe', collection: 'tags', event: 'create', query: { fields: ['id'] }, uid: 's' };
  for (let each = 0; each < 2; each++) {
    pair.push(await signedIn(token));
    t.match(await pair[each]?.ask(subscribe), { event: 'init' });
  }
  pairedAt = performance.now();
});

t.test('a client that does not sign in first is refused', async (t) => {
  for (const first of [
    { type: 'ping' },
    { type: 'auth', access_token: 'no-such-token' },
    { type: 'auth' },
    { type: 'subscribe', collection: 'articles' },
  ]) {
    const socket = await open();
    socket.send(first);
    await socket.ended();
    const error = { code: 'AUTH_FAILED', message: 'Authentication handshake failed.' };
    t.strictSame(socket.messages, [{ type: 'auth', status: 'error', error }], JSON.stringify(first));
    t.equal(socket.closed?.code, 1005);
  }
});

t.test('tokens of the URL and of cookies are checked before the upgrade, and origins too', async (t) => {
  for (const [options, status] of [
    [{ path: '/websocket?access_token=wrong' }, 401],
    [{ path: `/websocket?access_token=${ADMIN_TOKEN}` }, 101],
    [{ headers: { cookie: 'service_session_token=wrong' } }, 401],
    [{ headers: { origin: 'https://elsewhere.example' } }, 403],
    [{ headers: { origin: service.url } }, 101],
    [{ path: '/nothing' }, 404],
  ] as const)
    t.equal((await open(options)).status, status, JSON.stringify(options));
  t.equal((await get(service, '/websocket')).status, 404, 'a request that is no upgrade');
});

t.test('with a password, and with the refresh token that comes back', async (t) => {
  const body = JSON.stringify({ email: 'anna@example.com', password: 'a long password' });
  const headers = { 'content-type': 'application/json' };
  t.equal((await request(service, 'POST', '/users', { body, headers })).status, 200);
  const socket = await open();
  t.match(await socket.ask({ type: 'auth', email: 'anna@example.com', password: 'a long password', uid: 7 }), {
    type: 'auth',
    status: 'ok',
    refresh_token: /./,
    uid: 7,
  });
  socket.send({ type: 'auth', email: 'anna@example.com', password: 'a long password' });
  const { refresh_token } = await socket.next(({ type }) => type === 'auth');
  const other = await open();
  t.match(await other.ask({ type: 'auth', refresh_token }), { status: 'ok', refresh_token: /./ });
  socket.send({ type: 'auth', email: 'anna@example.com', password: 'wrong' });
  await socket.ended();
});

t.test('items: create, read, update, delete', async (t) => {
  const socket = await signedIn();
  const ask = (message: object): Promise<unknown> => socket.ask({ type: 'items', collection: 'tags', ...message });
  const query = { fields: ['id', 'name'] };
  t.match(await ask({ action: 'create', data: { id: 501, name: 'a' }, query }), {
    type: 'items',
    data: { id: 501, name: 'a' },
  });
  t.match(
    await ask({
      action: 'create',
      data: [
        { id: 502, name: 'b' },
        { id: 503, name: 'c' },
      ],
      query,
    }),
    {
      data: [{ name: 'b' }, { name: 'c' }],
    },
  );
  t.match(await ask({ action: 'read', id: 501, query }), { data: { id: 501, name: 'a' } });
  t.match(await ask({ action: 'read', ids: [501, 503], query }), { data: [{ id: 501 }, { id: 503 }] });
  const asText = { fields: 'name', filter: '{"id":{"_gt":500}}', sort: '-id', limit: '2', meta: '*' };
  t.match(await ask({ action: 'read', query: asText }), {
    data: [{ name: 'c' }, { name: 'b' }],
    meta: { filter_count: 3 },
  });
  t.match(await ask({ action: 'update', id: 501, data: { name: 'x' }, query }), { data: { name: 'x' } });
  t.match(await ask({ action: 'update', ids: [502, 503], data: { name: 'y' }, query }), {
    data: [{ name: 'y' }, { name: 'y' }],
  });
  t.match(await ask({ action: 'update', data: [{ id: 502, name: 'z' }], query }), { data: [{ name: 'z' }] });
  const some = { filter: { id: { _eq: 503 } } };
  t.match(await ask({ action: 'update', data: { name: 'q' }, query: some }), { data: [{ id: 503, name: 'q' }] });
  t.match(await ask({ action: 'delete', query: some }), { type: 'items', data: [503] });
  t.match(await ask({ action: 'delete', ids: [502] }), { data: [502] });
  t.match(await ask({ action: 'delete', id: 501 }), { data: 501 });
  t.match(await ask({ action: 'read', query: { filter: { id: { _gt: 500 } } } }), { data: [] });
});

t.test('invalid messages get an error, and change nothing', async (t) => {
  const socket = await signedIn();
  for (const [message, code] of [
    [{ type: 'items', collection: 'tags', action: 'delete' }, 'INVALID_PAYLOAD'],
    [{ type: 'items', collection: 'tags', action: 'update', data: { name: 'all' } }, 'INVALID_PAYLOAD'],
    [{ type: 'items', collection: 'tags', action: 'nothing' }, 'INVALID_PAYLOAD'],
    [{ type: 'items', collection: 5, action: 'read' }, 'INVALID_PAYLOAD'],
    [{ type: 'items', collection: 'tags', action: 'read', id: {} }, 'INVALID_PAYLOAD'],
    [{ type: 'items', collection: 'tags', action: 'read', query: 5 }, 'INVALID_PAYLOAD'],
    [{ type: 'items', collection: 'tags', action: 'read', query: { limit: 'x' } }, 'INVALID_QUERY'],
    [{ type: 'items', collection: 'nothing', action: 'read' }, 'FORBIDDEN'],
    [{ type: 'items', collection: 'service_users', action: 'read' }, 'FORBIDDEN'],
    [{ type: 'subscribe', collection: 'nothing' }, 'FORBIDDEN'],
    [{ type: 'subscribe', collection: 'service_users' }, 'FORBIDDEN'],
    [{ type: 'subscribe', collection: 'tags', event: 'nothing' }, 'INVALID_PAYLOAD'],
    [{ type: 'subscribe', collection: 'tags', query: { fields: ['nothing'] } }, 'FORBIDDEN'],
    [{ type: 'subscribe', collection: 'tags', query: { aggregate: { count: '*' } } }, 'INVALID_QUERY'],
    [{ type: 'subscribe', collection: 'tags', item: 99_999 }, 'FORBIDDEN'],
    [{ type: 'subscribe', collection: 'drafts' }, 'UNPROCESSABLE_CONTENT'],
  ] as const)
    t.match(
      await socket.ask(message),
      { type: message.type, status: 'error', error: { code } },
      JSON.stringify(message),
    );
  for (const text of ['', '{', '[]', '5', 'null', '{"type":5}', '{}']) {
    socket.send(text);
    t.match(await socket.next(({ type }) => type === 'server'), { error: { code: 'INVALID_PAYLOAD' } }, text);
  }
  socket.send({ type: 'unheard-of' });
  t.match(await socket.ask({ type: 'ping', uid: 'p' }), { type: 'pong', uid: 'p' });
  const [row] = await sql`select count(*)::int as wrong from tags where name = 'all'`;
  t.equal(row?.['wrong'], 0);
});

t.test('messages that are nested too deeply are refused, also before signing in', async (t) => {
  const deep = `${'['.repeat(100_000)}1${']'.repeat(100_000)}`;
  const filter = `${'{"_and":['.repeat(50_000)}{}${']}'.repeat(50_000)}`;
  const anybody = await open();
  anybody.send(`{"type":"x","uid":${deep}}`);
  t.match(await anybody.next(({ type }) => type === 'server'), { error: { code: 'INVALID_PAYLOAD' } });
  const socket = await signedIn();
  for (const [type, members] of [
    ['server', `"type":"ping","uid":${deep}`],
    ['server', `"type":"ping","uid":"${'x'.repeat(2_000)}"`],
    ['items', `"type":"items","collection":"tags","action":"read","id":${deep}`],
    ['items', `"type":"items","collection":"tags","action":"read","query":{"filter":${filter}}`],
    ['items', `"type":"items","collection":"tags","action":"read","query":{"deep":${deep}}`],
    ['items', `"type":"items","collection":"tags","action":"create","data":{"name":${deep}}`],
    ['items', `"type":"items","collection":"tags","action":"create","data":${deep}`],
    ['items', `"type":"items","collection":"tags","action":"create","data":[1.0,${deep}]`],
    ['subscribe', `"type":"subscribe","collection":"tags","query":{"filter":${filter}}`],
    ['subscribe', `"type":"subscribe","collection":"tags","item":${deep}`],
  ] as const) {
    socket.send(`{${members}}`);
    const answer = await socket.next(({ status }) => status === 'error');
    t.match(answer, { type, error: { code: /^INVALID_/ } }, members.slice(0, 80));
  }
  socket.send(`{"type":"ping","uid":8,"more":[1.0,${deep}]}`);
  t.match(await socket.next(({ type }) => type === 'pong'), { uid: 8 }, 'unknown members are ignored');
  t.match(await socket.ask({ type: 'ping', uid: 9 }), { type: 'pong', uid: 9 });
});

t.test('a subscription: what there is, then each change, whoever makes it', async (t) => {
  const socket = await signedIn();
  const query = { fields: ['id', 'name'], filter: { id: { _gt: 600 } } };
  t.strictSame(await socket.ask({ type: 'subscribe', collection: 'tags', query, uid: 5 }).catch(() => null), null);
  t.strictSame(await socket.next(({ uid }) => uid === '5'), {
    type: 'subscription',
    event: 'init',
    data: [],
    uid: '5',
  });
  await sql`insert into tags (id, name) values (601, 'one'), (602, 'two'), (5, 'not selected')
    on conflict (id) do update set name = excluded.name`;
  t.match(await socket.next(({ event }) => event === 'create'), {
    data: [
      { id: 601, name: 'one' },
      { id: 602, name: 'two' },
    ],
    uid: '5',
  });
  const body = JSON.stringify({ name: 'uno' });
  await request(service, 'PATCH', '/items/tags/601', { body, headers: { 'content-type': 'application/json' } });
  t.match(await socket.next(({ event }) => event === 'update'), { data: [{ id: 601, name: 'uno' }] });
  await sql`update tags set id = 603 where id = 602`;
  t.match(await socket.next(({ event }) => event === 'create'), { data: [{ id: 603 }] });
  t.match(await socket.next(({ event }) => event === 'delete'), { data: ['602'] });
  await sql`begin; insert into tags (id, name) values (604, 'short'); delete from tags where id = 604; commit`.simple();
  await sql`begin; delete from tags where id > 600; rollback`.simple();
  await sql`delete from tags where id > 600`;
  t.match(await socket.next(({ event }) => event === 'delete'), { data: ['601', '603'] });
  t.strictSame(events(socket), []);
  t.match(await socket.ask({ type: 'unsubscribe', uid: '5' }), {
    type: 'subscription',
    event: 'unsubscribe',
    uid: '5',
  });
  await sql`insert into tags (id, name) values (605, 'unheard')`;
  await passTime(200, 'nothing arrives');
  t.strictSame(events(socket), []);
});

t.test('of one kind, and of one item; a second one with the same name takes the place of the first', async (t) => {
  const socket = await signedIn();
  t.strictSame(await socket.ask({ type: 'subscribe', collection: 'authors', event: 'delete', uid: 'd' }), {
    type: 'subscription',
    event: 'init',
    uid: 'd',
  });
  await sql`insert into authors (id, name) values (700, 'a'), (701, 'b')`;
  const item = { type: 'subscribe', collection: 'authors', item: 700, query: { fields: ['name'] }, uid: 'i' };
  t.match(await socket.ask({ ...item, item: 701 }), { event: 'init', data: { name: 'b' } });
  t.match(await socket.ask(item), { event: 'init', data: { name: 'a' } });
  await sql`update authors set name = 'c' where id in (700, 701)`;
  t.strictSame(await socket.next(({ event }) => event === 'update'), {
    type: 'subscription',
    event: 'update',
    data: { name: 'c' },
    uid: 'i',
  });
  await sql`delete from authors where id = 701`;
  t.match(await socket.next(({ event }) => event === 'delete'), { data: ['701'], uid: 'd' });
  await sql`delete from authors where id = 700`;
  t.match(await socket.next(({ event, uid }) => event === 'delete' && uid === 'i'), { data: '700' });
  t.match(await socket.next(({ event, uid }) => event === 'delete' && uid === 'd'), { data: ['700'] });
  t.strictSame(events(socket), []);
});

t.test('changes that are read together, sent to subscribers to one kind of change', async (t) => {
  const socket = await signedIn();
  const subscribe = { type: 'subscribe', collection: 'authors', query: { fields: ['id', 'name'] } };
  await sql`insert into authors (id, name) values (712, 'old')`;
  for (const event of ['create', 'update'] as const)
    t.match(await socket.ask({ ...subscribe, event, uid: event }), { event: 'init' });
  await sql.begin(async (sql) => {
    await sql`insert into authors (id, name) values (710, 'a'), (711, 'gone')`;
    await sql`update authors set name = name || '2' where id in (710, 711)`;
    await sql`delete from authors where id in (711, 712)`;
    await sql`insert into authors (id, name) values (712, 'new')`;
  });
  const changed = [
    { id: 710, name: 'a2' },
    { id: 712, name: 'new' },
  ];
  const byKey = ({ data }: { readonly data?: unknown }): unknown =>
    (data as { id: number }[]).toSorted((one, other) => one.id - other.id);
  t.strictSame(byKey(await socket.next(({ event, uid }) => event === 'create' && uid === 'create')), changed);
  t.strictSame(byKey(await socket.next(({ event, uid }) => event === 'update' && uid === 'update')), changed);
  t.strictSame(events(socket), []);
  await sql`delete from authors where id in (710, 712)`;
});

t.test('a message for each new item, as in Directus', async (t) => {
  const socket = new MessageSocket(await startTestService({ databaseUrl: url, DIRECTUS_COMPATIBILITY: 'true' }));
  t.teardown(() => socket.close());
  await socket.opened();
  await socket.signIn(ADMIN_TOKEN);
  const subscribe = { type: 'subscribe', collection: 'authors', event: 'create', query: { fields: ['id'] } };
  t.match(await socket.ask({ ...subscribe, uid: 's' }), { event: 'init' });
  await sql`insert into authors (id, name) values (720, 'a'), (721, 'b'), (722, 'c')`;
  for (const id of [720, 721, 722])
    t.match(await socket.next(({ event }) => event === 'create'), { data: [{ id }], uid: 's' });
  await sql`insert into authors (id, name) select id, 'd' from generate_series(730, 829) id`;
  for (let id = 730; id < 830; id++)
    t.match(
      await socket.next(({ event }) => event === 'create'),
      { data: [{ id }] },
      'a hundred at once have their own',
    );
  await sql`insert into authors (id, name) select id, 'e' from generate_series(1000, 1399) id`;
  const { data } = await socket.next(({ event }) => event === 'create');
  t.ok((data as unknown[]).length > 1, 'many more at once share a message');
  await sql`delete from authors where id >= 720`;
});

t.test('keys of several columns', async (t) => {
  const socket = await signedIn();
  t.match(await socket.ask({ type: 'subscribe', collection: 'lines', uid: 'l' }), { event: 'init', data: [] });
  await sql`insert into lines values (1, 2, 'x')`;
  t.match(await socket.next(({ event }) => event === 'create'), { data: [{ shelf: 1, place: 2, book: 'x' }] });
  await sql`delete from lines`;
  t.match(await socket.next(({ event }) => event === 'delete'), { data: ['1~2'] });
});

t.test('hidden rows, fields and keys are not sent, by the current rights', async (t) => {
  const read = { collection: 'articles', action: 'read' } as const;
  const rule = { ...read, permissions: { status: { _eq: 'published' } }, fields: ['id', 'title', 'status'] };
  const caller = await makeCaller(sql, 'listener', [{ permissions: [rule] }]);
  await waitFor(async () => (await get(service, '/items/articles', { token: caller.token })).status === 200, 5_000);
  const socket = await signedIn(caller.token);
  t.match(await socket.ask({ type: 'subscribe', collection: 'authors', uid: 'n' }), { error: { code: 'FORBIDDEN' } });
  await socket.ask({ type: 'subscribe', collection: 'articles', query: { limit: 1 }, uid: 'a' });
  t.match(await socket.ask({ type: 'subscribe', collection: 'articles', event: 'delete', uid: 'd' }), {
    event: 'init',
  });
  await sql`insert into articles (id, title, status) values (800, 'hidden', 'draft'), (801, 'shown', 'published')`;
  t.match(await socket.next(({ event }) => event === 'create'), { data: [{ id: 801, title: 'shown' }], uid: 'a' });
  await sql`update articles set status = 'published' where id = 800`;
  t.match(await socket.next(({ event }) => event === 'update'), { data: [{ id: 800 }] });
  await sql`update articles set status = 'draft' where id = 801`;
  await sql`insert into articles (id, title, status) values (802, 'never seen', 'draft'), (804, 'seen', 'published')`;
  // When this has come, it is known that the other is hidden.
  t.match(await socket.next(({ event }) => event === 'create'), { data: [{ id: 804 }] });
  await sql`delete from articles where id in (800, 801, 802)`;
  t.strictSame((await socket.next(({ event, uid }) => event === 'delete' && uid === 'a'))['data'], ['800']);
  t.strictSame((await socket.next(({ event, uid }) => event === 'delete' && uid === 'd'))['data'], ['800']);
  t.strictSame(events(socket), []);
  await sql`update service_permissions set fields = 'id' where policy = ${caller.policies[0] ?? ''}`;
  await passTime(600, 'the change of permissions takes effect');
  await sql`insert into articles (id, title, status) values (803, 'no more', 'published')`;
  t.strictSame((await socket.next(({ event }) => event === 'create'))['data'], [{ id: 803 }]);
  await sql`delete from service_permissions where policy = ${caller.policies[0] ?? ''}`;
  await passTime(600, 'the change of permissions takes effect');
  await sql`update articles set title = 'secret' where id = 803`;
  await passTime(300, 'nothing arrives');
  t.strictSame(events(socket), []);
  await addPermission(sql, caller.policies[0] ?? '', { ...read, fields: ['id'] });
  t.match(await socket.next(({ uid }) => uid === 'a'), { event: 'init', resync: true, data: [{ id: /./ }] });
  await sql`delete from articles where id = 803`;
  t.match(await socket.next(({ event, uid }) => event === 'delete' && uid === 'a'), { data: ['803'] });
});

t.test('a client that signs in as another user while it awaits a change shares nothing with others', async (t) => {
  const [changing, other] = pair;
  if (!changing || !other) throw new Error('nobody has subscribed');
  // Until then each is served apart.
  await passTime(Math.max(0, pairedAt + 10_500 - performance.now()), 'until then each is served apart');
  changing.messages.length = other.messages.length = 0;
  // The log tells a commit that waits for a standby, and nobody sees it yet.
  await sql`alter system set synchronous_standby_names = 'nobody'`;
  await sql`select pg_reload_conf()`;
  const writer = connectSql(url);
  t.teardown(() => writer.end());
  let inserted: Promise<unknown> = Promise.resolve();
  try {
    await waitFor(
      async () => (await sql`show synchronous_standby_names`)[0]?.['synchronous_standby_names'] === 'nobody',
      5_000,
    );
    inserted = writer.begin(async (transaction) => {
      await transaction`set local synchronous_commit = on`;
      await transaction`insert into tags (id, name) values (649, 'seen'), (651, 'hidden')`;
    });
    await passTime(500, 'the log has the commit');
    t.match(await changing.signIn(ADMIN_TOKEN), { status: 'ok' });
    await passTime(300, 'nothing arrives');
    t.strictSame(events(other), []);
  } finally {
    await sql`alter system reset synchronous_standby_names`;
    await sql`select pg_reload_conf()`;
  }
  await inserted;
  t.match(await changing.next(({ event }) => event === 'create'), { data: [{ id: 649 }, { id: 651 }] });
  t.strictSame((await other.next(({ event }) => event === 'create'))['data'], [{ id: 649 }]);
  await sql`delete from tags where id in (649, 651)`;
});

t.test('a token that is withdrawn: nothing is sent until there is another', async (t) => {
  const read = { collection: 'tags', action: 'read' } as const;
  const caller = await makeCaller(sql, 'expiring', [{ permissions: [read] }]);
  await waitFor(async () => (await get(service, '/items/tags', { token: caller.token })).status === 200, 5_000);
  const socket = await signedIn(caller.token);
  await socket.ask({ type: 'subscribe', collection: 'tags', query: { limit: 1 }, uid: 's' });
  await sql`update service_users set token = null where id = ${caller.user}`;
  const expired = { type: 'auth', status: 'error', error: { code: 'TOKEN_EXPIRED', message: 'Token expired.' } };
  t.strictSame(await socket.next(({ type }) => type === 'auth'), expired);
  await sql`insert into tags (id, name) values (900, 'unseen')`;
  await passTime(300, 'nothing arrives');
  t.strictSame(events(socket), []);
  t.match(await socket.signIn(ADMIN_TOKEN), { status: 'ok' });
  t.match(await socket.next(({ uid }) => uid === 's'), { event: 'init', resync: true });
  await sql`delete from tags where id = 900`;
  t.match(await socket.next(({ event }) => event === 'delete'), { data: ['900'] });
});

t.test("waiting messages are dropped when another user signs in, and sent again by that user's rights", async (t) => {
  const read = { collection: 'tags', action: 'read', permissions: { name: { _neq: 'waiting' } } } as const;
  const caller = await makeCaller(sql, 'successor', [{ permissions: [read] }]);
  await waitFor(async () => (await get(service, '/items/tags', { token: caller.token })).status === 200, 5_000);
  await sql`insert into tags (id, name) values (906, 'waiting'), (907, 'waiting')`;
  const socket = await signedIn();
  const subscribe = { type: 'subscribe', collection: 'tags', query: { fields: ['name'], limit: 5 } };
  for (let uid = 0; uid < 20; uid++) t.match(await socket.ask({ ...subscribe, uid: `w${uid}` }), { event: 'init' });
  await sql`begin; insert into tags (id, name) values (905, 'waiting'); update tags set name = 'waiting' where id = 906;
    delete from tags where id = 907; commit`.simple();
  await socket.next(({ event }) => event === 'create');
  t.match(await socket.signIn(caller.token), { status: 'ok' });
  const isTold = async (): Promise<boolean> =>
    socket.messages.some(({ event, resync }) => event === 'init' && resync === true);
  await waitFor(isTold, 5_000);
  const changes = 1 + socket.messages.filter(({ event }) => /create|update|delete/.test(String(event))).length;
  t.ok(changes < 60, `${changes} of 60 had left`);
  t.notMatch(JSON.stringify(socket.messages.filter(({ event }) => event === 'init')), /waiting/);
  await sql`delete from tags where id in (905, 906)`;
});

t.test('one that is replaced while it begins is not told of', async (t) => {
  const socket = await signedIn();
  socket.send({ type: 'subscribe', collection: 'tags', query: { fields: ['id'] }, uid: 'x' });
  socket.send({ type: 'subscribe', collection: 'authors', event: 'create', uid: 'x' });
  t.strictSame(await socket.next(({ uid }) => uid === 'x'), { type: 'subscription', event: 'init', uid: 'x' });
  await sql`insert into authors (id, name) values (710, 'told')`;
  t.match(await socket.next(({ uid, event }) => uid === 'x' && event === 'create'), { data: [{ id: 710 }] });
  t.strictSame(events(socket), []);
  await sql`delete from authors where id = 710`;
});

t.test('a stream that was lost says so', async (t) => {
  const socket = await signedIn();
  await socket.ask({ type: 'subscribe', collection: 'tags', query: { fields: ['id'], limit: 1 }, uid: 'r' });
  await socket.ask({ type: 'subscribe', collection: 'tags', event: 'create', uid: 'e' });
  await sql`insert into tags (id, name) values (909, 'the only item')`;
  await socket.next(({ uid, event }) => uid === 'e' && event === 'create');
  t.match(await socket.ask({ type: 'subscribe', collection: 'tags', item: 909, uid: 'i' }), { event: 'init' });
  socket.messages.length = 0;
  await sql`select pg_terminate_backend(active_pid) from pg_replication_slots`;
  t.match(await socket.next(({ uid }) => uid === 'r'), { event: 'init', resync: true, data: [{ id: /./ }] });
  t.match(await socket.next(({ uid }) => uid === 'e'), { event: 'init', resync: true });
  await sql`insert into tags (id, name) values (910, 'after')`;
  t.match(await socket.next(({ event, uid }) => event === 'create' && uid === 'r'), { data: [{ id: 910 }] });
  t.match(await socket.next(({ uid }) => uid === 'i'), { event: 'init', resync: true, data: { id: 909 } });
  await sql`truncate tags cascade`;
  t.match(await socket.next(({ uid }) => uid === 'i'), { event: 'delete', data: '909' });
  t.strictSame((await socket.next(({ uid }) => uid === 'r'))['data'], []);
});

t.test('more subscriptions than a connection may have are refused', async (t) => {
  const socket = await signedIn();
  for (let uid = 0; uid < 20; uid++)
    t.match(await socket.ask({ type: 'subscribe', collection: 'tags', event: 'create', uid: `u${uid}` }), {
      event: 'init',
    });
  t.match(await socket.ask({ type: 'subscribe', collection: 'tags', uid: 'more' }), {
    type: 'subscribe',
    error: { code: 'REQUESTS_EXCEEDED' },
  });
  t.match(await socket.ask({ type: 'subscribe', collection: 'tags', event: 'create', uid: 'u3' }), { event: 'init' });
});

t.test('keys that are remembered for deletions are limited: who needs more is told so', async (t) => {
  const read = { collection: 'parcels', action: 'read', permissions: { state: { _eq: 'sent' } } } as const;
  const { token } = await makeCaller(sql, 'collector', [{ permissions: [read] }]);
  await waitFor(async () => (await get(service, '/items/parcels', { token })).status === 200, 5_000);
  const socket = await signedIn(token);
  const subscribe = (uid: string): Promise<unknown> =>
    socket.ask({ type: 'subscribe', collection: 'parcels', query: { limit: 1 }, uid });
  const refused = { error: { code: 'UNPROCESSABLE_CONTENT', message: /LIVE_MAX_REMEMBERED_KEYS/ } };
  t.match(await subscribe('first'), { event: 'init' });
  t.match(await subscribe('second'), refused, 'a quarter of all for one user: 250');
  await socket.ask({ type: 'unsubscribe', uid: 'first' });
  t.match(await subscribe('third'), { event: 'init' }, 'what was forgotten does not count');
  await sql`delete from parcels where id <= 50`;
  t.match(await socket.next(({ event }) => event === 'delete'), { uid: 'third' });
  await sql`insert into parcels select n, 'sent' from generate_series(301, 350) n`;
  t.match(await socket.next(({ event }) => event === 'create'), { uid: 'third' }, 'nor what was deleted');
  await sql`insert into parcels select n, 'sent' from generate_series(351, 450) n`;
  t.match(await socket.next(({ status }) => status === 'error'), { uid: 'third', ...refused });
  t.match(await (await signedIn()).ask({ type: 'subscribe', collection: 'parcels', query: { limit: 1 }, uid: 'a' }), {
    event: 'init',
  });
});

t.test('a value of the caller that a rule names, and that changes, hides what it hides', async (t) => {
  const read = {
    collection: 'tags',
    action: 'read',
    permissions: { name: { _eq: '$CURRENT_USER.first_name' } },
  } as const;
  const { token, user } = await makeCaller(sql, 'renamed', [{ permissions: [read] }]);
  await sql`update service_users set first_name = 'mine' where id = ${user}`;
  await sql`insert into tags (id, name) values (921, 'mine'), (922, 'another')`;
  const seen = async (): Promise<unknown> => (await get(service, '/items/tags?fields=id', { token })).json;
  await waitFor(async () => JSON.stringify(await seen()) === '{"data":[{"id":921}]}', 5_000);
  const socket = await signedIn(token);
  const subscribe = { type: 'subscribe', collection: 'tags', query: { fields: ['id'] }, uid: 'r' };
  t.match(await socket.ask(subscribe), { event: 'init', data: [{ id: 921 }] });
  await sql`update service_users set first_name = 'another' where id = ${user}`;
  t.match(await socket.next(({ event }) => event === 'init'), { resync: true, data: [{ id: 922 }] });
  await sql`delete from tags where id = 921`;
  await sql`delete from tags where id = 922`;
  t.match(await socket.next(({ event }) => event === 'delete'), { data: ['922'] });
});

t.test('a related item that changes hides what it hides, also from deletions', async (t) => {
  const permissions = { team: { open: { _eq: true } } };
  const { token } = await makeCaller(sql, 'teammate', [
    {
      permissions: [
        { collection: 'papers', action: 'read', permissions },
        { collection: 'teams', action: 'read' },
      ],
    },
  ]);
  await waitFor(async () => (await get(service, '/items/papers', { token })).status === 200, 5_000);
  const socket = await signedIn(token);
  const subscribe = { type: 'subscribe', collection: 'papers', query: { fields: ['id'], sort: ['id'] }, uid: 'p' };
  t.match(await socket.ask(subscribe), { event: 'init', data: [{ id: 1 }, { id: 2 }, { id: 3 }, { id: 4 }] });
  await sql`update teams set open = false where id = 1`;
  t.match(await socket.next(({ event }) => event === 'init'), { resync: true, data: [{ id: 3 }, { id: 4 }] });
  await sql`delete from papers where id = 1`;
  await sql`delete from papers where id = 3`;
  t.match(await socket.next(({ event }) => event === 'delete'), { data: ['3'] }, 'of a team that is open');
  // In one moment: what was hidden and what was deleted first cannot be told apart.
  await sql.begin(async (tx) => {
    await tx`update teams set open = false where id = 2`;
    await tx`delete from papers where id = 4`;
  });
  t.strictSame((await socket.next(({ event }) => event === 'init'))['data'], []);
  t.strictSame(events(socket), [], 'nothing else was sent');
});

t.test('messages that waited for nobody are not counted as late', async (t) => {
  const lags = async (): Promise<number> =>
    Number(/^lateral_live_lag_seconds_count (\d+)/m.exec((await get(service, '/server/metrics')).text)?.[1]);
  const socket = await signedIn();
  await socket.ask({ type: 'subscribe', collection: 'tags', event: 'create', uid: 'l' });
  await sql`insert into tags (id, name) values (923, 'told')`;
  await socket.next(({ event }) => event === 'create');
  const before = await lags();
  const stream = new EventStream(service, '/items/tags/923');
  await stream.count(1);
  t.equal(await lags(), before);
  stream.close();
});

t.test('a table that was created a moment ago can be subscribed to', async (t) => {
  const socket = await signedIn();
  await socket.ask({ type: 'subscribe', collection: 'tags', event: 'create', uid: 'open' });
  const create = (collection: string) =>
    request(service, 'POST', '/collections', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        collection,
        schema: {},
        fields: [{ field: 'id', type: 'integer', schema: { is_primary_key: true } }],
      }),
    });
  // The stream cannot publish the new table before this transaction ends.
  await sql.begin(async (sql) => {
    await sql`select pg_advisory_xact_lock(hashtext('lateral_live'), hashtext(current_database()))`;
    t.equal((await create('fresh')).status, 200);
    t.match(await socket.ask({ type: 'subscribe', collection: 'fresh', uid: 'f' }), { event: 'init', data: [] });
    t.match(await socket.ask({ type: 'subscribe', collection: 'fresh', event: 'create', uid: 'c' }), { event: 'init' });
  });
  await sql`insert into fresh values (1)`;
  const isResync = (name: string) => (message: Message) => message['uid'] === name && message['resync'] === true;
  await socket.next(isResync('f'));
  await socket.next(isResync('c'));
  await sql`insert into fresh values (2)`;
  t.match(await socket.next(({ uid, event }) => uid === 'f' && event === 'create'), { data: [{ id: 2 }] });
  t.match(await socket.next(({ uid, event }) => uid === 'c' && event === 'create'), { data: [{ id: 2 }] });
  t.match(await socket.ask({ type: 'subscribe', collection: 'drafts', uid: 'v' }), {
    type: 'subscribe',
    status: 'error',
  });
});

t.test('changed items of many megabytes are sent in several messages, each item once', async (t) => {
  const socket = await signedIn();
  const query = { fields: ['id', 'image'], limit: 1 };
  t.match(await socket.ask({ type: 'subscribe', collection: 'posters', query, uid: 'p' }), { event: 'init' });
  const update = async (): Promise<number[][]> => {
    socket.messages.length = 0;
    await sql`update posters set image = repeat('x', 300000)`;
    const ids = (): number[][] =>
      socket.messages.map(({ event, data }) =>
        event === 'update' ? (data as { id: number }[]).map(({ id }) => id) : [],
      );
    await waitFor(async () => ids().flat().length >= 60, 20_000);
    return ids();
  };
  const keys = Array.from({ length: 60 }, (_, n) => n + 1);
  for (const messages of [await update(), await update()]) {
    t.strictSame(
      messages.flat().sort((one, other) => one - other),
      keys,
    );
    t.ok(
      messages.every((ids) => ids.length <= 14),
      `${messages.map((ids) => ids.length)} items`,
    );
  }
});
