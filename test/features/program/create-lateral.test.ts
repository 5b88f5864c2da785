/** The API for programs: a service without a port, the same bytes as over the port, and a caller for each call. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import {
  type ChangeEvent,
  createLateral,
  type Lateral,
  LateralError,
  type RequestEvent,
  StartError,
  toNodeHandler,
} from '../../../src/index.js';
import { APART, createRandom, randomRequest } from '../../support/random-requests.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  makeFolder,
  request,
  startDatabase,
  waitFor,
} from '../../support/service.js';

t.setTimeout(600_000);
const REQUESTS = Number(process.env['FETCH_REQUESTS'] ?? 60);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'create_lateral');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

const seen: RequestEvent[] = [];
const kinds = new Set<string>();
const lateral: Lateral = createLateral({
  databaseUrl,
  port: 0,
  logLevel: 'silent',
  adminToken: ADMIN_TOKEN,
  serverTiming: false,
  storageLocations: 'local',
  STORAGE_LOCAL_ROOT: await makeFolder(),
});
lateral.on('request', (event) => seen.push(event)).on('log', ({ kind }) => kinds.add(kind));
await lateral.start();
t.teardown(() => lateral.stop());
const reader = await makeReader();

/** A user who may read published articles, their titles alone, and create comments. */
async function makeReader(): Promise<{ readonly id: string; readonly role: string; readonly token: string }> {
  const admin = { as: 'administrator' } as const;
  const policy = await lateral.items('service_policies', admin).create({
    name: 'Reader',
    permissions: [
      { collection: 'articles', action: 'read', fields: 'id,title', permissions: { status: { _eq: 'published' } } },
      { collection: 'comments', action: 'create', fields: 'id,body,article', permissions: null },
    ],
  });
  const role = await lateral.items<{ id: string }>('service_roles', admin).create({ name: 'Reader' });
  await lateral.items('service_access', admin).create({ role: role?.id, policy: policy?.['id'] });
  const token = 'the-token-of-the-reader';
  const user = await lateral
    .items<{ id: string }>('service_users', admin)
    .create({ email: 'reader@example.com', token, role: role?.id });
  return { id: user?.id ?? '', role: role?.id ?? '', token };
}

/** The status of the error that a call ends with. */
async function statusOf(call: Promise<unknown>): Promise<number | string> {
  return call.then(
    () => 'it was answered',
    (error: unknown) => (error instanceof LateralError ? error.status : String(error)),
  );
}

t.test('options have plain names, and a misspelt one is refused', async (t) => {
  const refusal = (options: object): string => {
    try {
      createLateral(options);
    } catch (error) {
      return error instanceof StartError ? error.message : String(error);
    }
    return 'it was accepted';
  };
  t.equal(refusal({ databseUrl: 'x' }), 'unknown option "databseUrl". Did you mean "databaseUrl"?');
  t.equal(refusal({ DATABSE_URL: 'x' }), 'unknown option "DATABSE_URL". Did you mean "DATABASE_URL"?');
  t.equal(refusal({ port: 1, PORT: 2 }), 'the option "PORT" is given twice, also as "PORT"');
  t.match(refusal({ port: 'many' }), /^PORT: must be/);
  t.match(refusal({ port: {} }), /"port" must be a string, number, boolean or list of strings/);
  t.equal(refusal({ ...process.env, PORT: '0' }), 'it was accepted', 'the environment of the process may be passed on');
  t.equal(refusal({ databaseSchemas: ['public', 'other'], port: 0 }), 'it was accepted');
});

t.test('a call before the start, or after the end, fails with a clear error', async (t) => {
  const early = createLateral({ databaseUrl, logLevel: 'silent' });
  await t.rejects(early.fetch(new Request('http://lateral/server/ping')), /not started/);
  await early.start({ listen: false });
  t.equal(early.url, '');
  t.equal(await (await early.fetch(new Request('http://lateral/server/ping'))).text(), 'pong');
  await t.rejects(early.start(), /started already/);
  await early.stop();
  await t.rejects(early.fetch(new Request('http://lateral/server/ping')), /was stopped/);
  await early.start({ listen: false });
  t.equal(await (await early.fetch(new Request('http://lateral/server/ping'))).text(), 'pong', 'it was started again');
  await early.stop();
});

t.test('a start ends before the stop, and runs once', async (t) => {
  const instance = createLateral({ databaseUrl, logLevel: 'silent' });
  const started = instance.start({ listen: false });
  started.catch(() => {});
  await t.rejects(instance.start({ listen: false }), /started already/);
  await instance.stop();
  await t.rejects(started, /stopped while it started/);
  await t.rejects(instance.fetch(new Request('http://lateral/server/ping')), /was stopped/);
  await instance.start({ listen: false });
  t.equal((await instance.fetch(new Request('http://lateral/server/ping'))).status, 200);
  await instance.stop();
});

t.test('fetch takes a Request whose body has bytes', async (t) => {
  for (const wrong of ['http://lateral/items/tags', new URL('http://lateral/items/tags'), undefined, null])
    await t.rejects(lateral.fetch(wrong as never), { status: 400, message: /takes a Request/ });
  const body = new ReadableStream({
    start: (controller) => {
      controller.enqueue('{"name":"text"}');
      controller.close();
    },
  });
  const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body, duplex: 'half' as const };
  const texts = new Request('http://lateral/items/tags', init);
  await t.rejects(lateral.fetch(texts, { as: 'administrator' }), /stream of bytes/);
});

t.test(`${REQUESTS} random requests get the same bytes as over the port`, async (t) => {
  const random = createRandom(7);
  const statuses = new Map<number, number>();
  for (let count = 0; count < REQUESTS; count++) {
    const { method, path, body, token, headers = {} } = randomRequest(random, reader.token);
    const sent = { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
    const over = await request(lateral, method, path, {
      headers: sent,
      token,
      ...(body === undefined ? {} : { body }),
    });
    const credentials: Record<string, string> = token === null ? {} : { authorization: `Bearer ${token}` };
    const made = new Request(`http://lateral${path}`, {
      method,
      headers: { ...sent, ...credentials },
      ...(body === undefined ? {} : { body }),
    });
    const own = await lateral.fetch(made, { address: '127.0.0.1' });
    const text = await own.text();
    const shown = `${method} ${path} ${body ?? ''} as ${token}`;
    const expected = Object.entries(over.headers).filter(([name]) => !APART.has(name));
    const got = [...own.headers].filter(([name]) => !APART.has(name));
    const same =
      over.status === own.status &&
      over.text === text &&
      JSON.stringify(got.sort()) === JSON.stringify(expected.sort());
    if (!same)
      t.strictSame({ status: own.status, text, got }, { status: over.status, text: over.text, expected }, shown);
    statuses.set(over.status, (statuses.get(over.status) ?? 0) + 1);
  }
  t.ok((statuses.get(200) ?? 0) > REQUESTS / 10, 'some succeed');
  t.ok([...statuses.keys()].length > 3, `statuses: ${JSON.stringify([...statuses])}`);
});

t.test('streams, uploads and events work without a port', async (t) => {
  await sql`insert into tags (name) select 'tag ' || n from generate_series(1, 30000) n`;
  const list = new Request('http://lateral/items/tags?limit=-1&fields=id,name');
  const streamed = await lateral.fetch(list, { as: 'administrator' });
  const over = await request(lateral, 'GET', '/items/tags?limit=-1&fields=id,name');
  t.equal(await streamed.text(), over.text);
  const left = await lateral.fetch(new Request(list), { as: 'administrator' });
  const piece = left.body?.getReader();
  t.ok((await piece?.read())?.value?.length, 'a first piece');
  await piece?.cancel();
  const form = new FormData();
  const content = Buffer.alloc(300_000, 'lateral ');
  form.append('title', 'A file');
  form.append('file', new Blob([content], { type: 'text/plain' }), 'a.txt');
  const upload = new Request('http://lateral/files', { method: 'POST', body: form });
  const uploaded = (await (await lateral.fetch(upload, { as: 'administrator' })).json()) as { data: { id: string } };
  const asset = await lateral.fetch(new Request(`http://lateral/assets/${uploaded.data.id}`), { as: 'administrator' });
  t.ok(content.equals(Buffer.from(await asset.arrayBuffer())));
  const aborted = new AbortController();
  const sending = new Request('http://lateral/items/tags?limit=1', { signal: aborted.signal });
  aborted.abort(new Error('no longer wanted'));
  await t.rejects(lateral.fetch(sending, { as: 'administrator' }), /no longer wanted/);
  const upgrade = new Request('http://lateral/websocket', { headers: { upgrade: 'websocket' } });
  await t.rejects(lateral.fetch(upgrade), /WebSockets need the port/);
  const tooLarge = new Request('http://lateral/items/tags', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'x'.repeat(2_000_000) }),
  });
  t.match(await (await lateral.fetch(tooLarge, { as: 'administrator' })).text(), /request entity too large/);
});

t.test('items are read and written as the caller that a program names', async (t) => {
  const articles = lateral.items('articles', { as: 'administrator' });
  for (const key of ['.', '..'])
    t.equal(
      await statusOf(articles.update(key, { query: {}, data: { title: 'all' } })),
      400,
      'a path would lose the key',
    );
  t.strictSame(await articles.read({ fields: ['id'], filter: { id: { _lte: 2 } }, sort: ['id'] }), [
    { id: 1 },
    { id: 2 },
  ]);
  t.strictSame(await articles.readOne(1, { fields: ['title', 'author.name'] }), {
    title: 'Hello World',
    author: { name: 'Ada Lovelace' },
  });
  const made = await articles.create(
    { title: 'Made', comments: [{ body: 'first' }] },
    { fields: ['id', 'comments.body'] },
  );
  t.strictSame(made?.['comments'], [{ body: 'first' }]);
  const key = Number(made?.['id']);
  t.strictSame(await articles.update(key, { views: 3 }, { fields: ['views'] }), { views: 3 });
  await articles.updateMany({ query: { filter: { id: { _eq: key } } } }, { status: 'archived' });
  t.strictSame([...(await sql`select status from articles where id = ${key}`)], [{ status: 'archived' }]);
  t.equal((await articles.createMany([{ title: 'a' }, { title: 'b' }], { fields: ['id'] }))?.length, 2);
  await articles.delete(key);
  await articles.delete({ query: { filter: { title: { _in: ['a', 'b'] } } } });
  t.strictSame([...(await sql`select count(*)::int from articles where id >= ${key}`)], [{ count: 0 }]);
  t.equal(await statusOf(articles.readOne(key)), 403);
  t.equal(await statusOf(articles.create({ nope: 1 })), 400);
  for (const as of [{ user: reader.id }, { role: reader.role }, { token: reader.token }] as const) {
    const own = lateral.items('articles', { as });
    t.strictSame(await own.read({ fields: ['*'], limit: 1, sort: ['id'] }), [{ id: 1, title: 'Hello World' }]);
    t.equal(await statusOf(own.read({ fields: ['body'] })), 403);
    t.equal(await statusOf(own.update(1, { title: 'x' })), 403);
  }
  t.equal(await statusOf(lateral.items('articles', { as: 'public' }).read()), 403);
  t.equal(await statusOf(lateral.items('articles', { as: { token: 'wrong-token-of-nobody' } }).read()), 401);
});

t.test('no value of "as" leaks anything', async (t) => {
  const odd: unknown[] = [
    undefined,
    null,
    '',
    'admin',
    'Administrator',
    true,
    0,
    [],
    {},
    ['administrator'],
    { user: null },
  ];
  odd.push({ user: '' }, { user: 'administrator' }, { user: reader.id, role: reader.role }, { role: "' or true --" });
  odd.push({ token: '' }, { token: 'a b' }, { token: 7 }, { administrator: true }, { __proto__: { user: reader.id } });
  odd.push({ user: '00000000-0000-0000-0000-000000000000' }, { role: '00000000-0000-0000-0000-000000000000' });
  odd.push({ toString: () => 'administrator' }, new String('administrator'), { user: [reader.id] }, Symbol.iterator);
  for (const as of odd) {
    const attempt = async (): Promise<unknown> => lateral.items('articles', { as: as as 'public' }).read();
    const statuses: (number | string)[] = [await statusOf(attempt())];
    statuses.push(await statusOf(lateral.graphql('{ articles { id } }', {}, { as: as as 'public' })));
    t.ok(
      statuses.every((status) => [400, 401, 403].includes(Number(status))),
      `${statuses}`,
    );
  }
  const spoofed = (more: Record<string, string>): Request =>
    new Request('http://lateral/items/articles', { headers: { authorization: `Bearer ${ADMIN_TOKEN}`, ...more } });
  const answer = await lateral.fetch(spoofed({}), { as: { user: reader.id } });
  t.strictSame(Object.keys(((await answer.json()) as { data: object[] }).data[0] ?? {}), ['id', 'title']);
  const views = await lateral.fetch(spoofed({ 'lateral-view-as': 'public' }), { as: { user: reader.id } });
  t.equal(views.status, 403, 'the caller is no administrator');
});

t.test('the caller that a program names replaces that of the request in live queries too', async (t) => {
  const live = (headers: Record<string, string>): Request =>
    new Request('http://lateral/items/articles', { headers: { accept: 'text/event-stream', ...headers } });
  const hidden = await lateral.fetch(live({ authorization: `Bearer ${ADMIN_TOKEN}` }), { as: 'public' });
  t.equal(hidden.status, 403);
  const waiting = await lateral.fetch(
    new Request('http://lateral/items/articles', {
      headers: { authorization: `Bearer ${ADMIN_TOKEN}`, prefer: 'wait=1', 'if-none-match': '"none"' },
    }),
    { as: 'public' },
  );
  t.equal(waiting.status, 403);
  const ending = new AbortController();
  const shown = await lateral.fetch(new Request(live({}), { signal: ending.signal }), { as: 'administrator' });
  t.equal(shown.status, 200);
  ending.abort();
});

t.test('a transaction is committed as a whole', async (t) => {
  const count = async (): Promise<number> => Number((await sql`select count(*)::int as n from authors`)[0]?.['n']);
  const before = await count();
  const made = await lateral.transaction(
    async (tx) => {
      const author = await tx.items<{ id: number }>('authors').create({ name: 'In a transaction' }, { fields: ['id'] });
      t.equal(
        (await tx.items('authors').read({ filter: { id: { _eq: author?.id } } })).length,
        1,
        'it sees its own writes',
      );
      t.equal(await count(), before, 'others do not');
      await t.rejects(tx.items('authors').create({ name: 'x', email: 'ada@example.com' }), {
        code: 'FAILED_VALIDATION',
      });
      await tx.items('articles').create({ title: 'By it', author: author?.id });
      return author?.id;
    },
    { as: 'administrator' },
  );
  t.equal(await count(), before + 1, 'after an error that was caught, the rest is committed');
  t.strictSame([...(await sql`select title from articles where author = ${made ?? 0}`)], [{ title: 'By it' }]);
  await t.rejects(
    lateral.transaction(
      async (tx) => {
        await tx.items('authors').create({ name: 'Never' });
        throw new Error('changed my mind');
      },
      { as: 'administrator' },
    ),
    /changed my mind/,
  );
  t.equal(await count(), before + 1);
  const own = lateral.transaction((tx) => tx.items('articles').create({ title: 'no' }), { as: { user: reader.id } });
  t.equal(await statusOf(own), 403);
  let late: Promise<unknown> = Promise.resolve();
  let leaked: { items(name: string): { create(data: object): Promise<unknown> } } | null = null;
  await lateral.transaction(
    async (tx) => {
      leaked = tx;
      late = tx.items('authors').create({ name: 'Not awaited' });
    },
    { as: 'administrator' },
  );
  await late;
  t.equal(await count(), before + 2, 'a call that was not awaited is a part of it');
  await t.rejects((leaked as unknown as Lateral).items('authors', { as: 'public' }).create({ name: 'x' }), /has ended/);
});

t.test('GraphQL, compile and events', async (t) => {
  const document = 'query ($id: GraphQLStringOrFloat) { articles(filter: { id: { _eq: $id } }) { title } }';
  t.strictSame(await lateral.graphql(document, { id: 1 }, { as: 'administrator' }), {
    articles: [{ title: 'Hello World' }],
  });
  await t.rejects(lateral.graphql('{ articles { body } }', {}, { as: { user: reader.id } }), LateralError);
  const read = new Request('http://lateral/items/articles?filter[id][_eq]=5&fields=title');
  const { sql: text, parameters } = await lateral.compile(read, { as: 'administrator' });
  t.match(text, /^select /);
  t.ok(parameters.includes('5'));
  t.match(
    (await lateral.compile(new Request(read), { as: { user: reader.id } })).sql,
    /status/,
    'with the rules of the caller',
  );
  const searched = { method: 'SEARCH', body: '{"query":{"limit":1}}' };
  t.match(
    (await lateral.compile(new Request('http://lateral/items/tags', searched), { as: 'administrator' })).sql,
    /tags/,
  );
  await t.rejects(
    lateral.compile(new Request('http://lateral/users'), { as: 'administrator' }),
    /takes a GET or SEARCH/,
  );
  t.ok(seen.some(({ route, status }) => route === '/items/:collection' && status === 200));
  t.ok(kinds.has('listening'));
});

async function listen(
  handler: (incoming: IncomingMessage, outgoing: ServerResponse) => void,
): Promise<{ url: string; server: Server }> {
  const http = createServer(handler).listen(0, '127.0.0.1');
  await once(http, 'listening');
  t.teardown(() => http.close());
  return { url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`, server: http };
}

t.test('a server of Node mounts it, below a path as well', async (t) => {
  const handler = toNodeHandler(lateral);
  const { url } = await listen((incoming, outgoing) => {
    const path = incoming.url ?? '/';
    if (!path.startsWith('/api/')) return void outgoing.end('another page');
    // As `app.use('/api', …)` of Express does.
    incoming.url = path.slice('/api'.length);
    handler(incoming, outgoing, (error) => outgoing.writeHead(500).end(String(error)));
  });
  t.equal(await (await fetch(`${url}/`)).text(), 'another page');
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'content-type': 'application/json' };
  const random = createRandom(11);
  for (let count = 0; count < REQUESTS / 3; count++) {
    const { method, path, body, token, headers: more = {} } = randomRequest(random, reader.token);
    const sent = { ...more, ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
    const over = await request(lateral, method, path, {
      headers: sent,
      token,
      ...(body === undefined ? {} : { body }),
    });
    const own = await request({ url }, method, `/api${path}`, {
      headers: sent,
      token,
      ...(body === undefined ? {} : { body }),
    });
    t.strictSame(
      [own.status, own.text, own.headers.etag],
      [over.status, over.text, over.headers.etag],
      `${method} ${path}`,
    );
  }
  const created = await fetch(`${url}/api/items/tags?fields=name`, {
    method: 'POST',
    headers,
    body: '{"name":"mounted"}',
  });
  t.strictSame(await created.json(), { data: { name: 'mounted' } });
  const login = JSON.stringify({ email: 'nobody@example.com', password: 'x' });
  t.equal(
    (
      await fetch(`${url}/api/auth/login`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: login,
      })
    ).status,
    401,
  );
  for (const host of ['other/items/tags?', 'other/items/tags#', 'user@other/items/tags?', '\\items\\tags?', '']) {
    const named = await request({ url }, 'GET', '/api/server/ping', { headers: { host } });
    t.strictSame([named.status, named.text], [200, 'pong'], `the Host header ${host} leaves the path as it is`);
  }
  const parsed = await listen(async (incoming, outgoing) => {
    for await (const _ of incoming);
    handler(incoming, outgoing, (error) => outgoing.writeHead(500).end(String(error)));
  });
  const late = await fetch(`${parsed.url}/items/tags`, { method: 'POST', headers, body: '{"name":"x"}' });
  t.match(await late.text(), /mount Lateral before body parsers/);
});

t.test('a server of Node refuses paths that a URL cannot carry as they are', async (t) => {
  const { url } = await listen(toNodeHandler(lateral));
  const changed = [
    ...['/a/../server/ping', '/a/%2e%2e/server/ping', '/a/.%2E/server/ping', '/./server/ping', '/%2e/server/ping'],
    ...['/server\\ping', '/a\\..\\server/ping', '/server/ping#items', '/server/ping/.', '/server/ping/..'],
    ...['http://other/server/ping', '/items/tags?limit=1#&limit=2'],
  ];
  for (const path of changed) {
    const refused = await request({ url }, 'GET', path);
    t.match(refused, { status: 400, text: /The path of the request/ }, path);
  }
  for (const path of [
    '/server/ping',
    '/server/ping?',
    '/server/ping/',
    '/SERVER/ping?a=../b&c=%2e%2e/',
    '/server/ping?{"|"}\\',
  ])
    t.match(await request({ url }, 'GET', path), { status: 200, text: 'pong' }, path);
  for (const path of [
    '/items/tags/a%2F..%2Fb',
    '/items/tags/{"}',
    '//server/ping',
    '/items/tags/%zz',
    '/.../x',
    '/items/tags/..a',
  ]) {
    const [own, over] = [await request({ url }, 'GET', path), await request(lateral, 'GET', path)];
    t.strictSame([own.status, own.text], [over.status, over.text], path);
  }
});

t.test('a server of Node without a handler for errors answers them', async (t) => {
  const mounted = toNodeHandler(lateral);
  const { url } = await listen(mounted);
  const upgrade = { connection: 'upgrade', upgrade: 'websocket' };
  t.match(await request({ url }, 'GET', '/websocket', { headers: upgrade }), {
    status: 400,
    text: /WebSockets need the port/,
  });
  t.match(await request({ url }, 'TRACE', '/server/ping'), { status: 405, text: /METHOD_NOT_ALLOWED/ });
  const parsed = await listen(async (incoming, outgoing) => {
    for await (const _ of incoming);
    mounted(incoming, outgoing);
  });
  const late = await fetch(`${parsed.url}/items/tags`, { method: 'POST', body: '{}' });
  t.equal(late.status, 500);
  t.match(await late.text(), /mount Lateral before body parsers/);
  const stopped = createLateral({ databaseUrl, logLevel: 'silent' });
  await stopped.start({ listen: false });
  await stopped.stop();
  const gone = await listen(toNodeHandler(stopped));
  t.equal((await fetch(`${gone.url}/server/ping`)).status, 503);
});

t.test('an administrator whom the program names reads as another caller', async (t) => {
  const fetchAs = (as: 'administrator' | 'public', method = 'GET') => {
    const headers = { 'lateral-view-as': `user:${reader.id}`, 'content-type': 'application/json' };
    const body = method === 'GET' ? null : '{"name":"viewed"}';
    const path = method === 'GET' ? 'items/articles?meta=total_count' : 'items/tags';
    return lateral.fetch(new Request(`http://lateral/${path}`, { method, headers, body }), { as });
  };
  const own = await request(lateral, 'GET', '/items/articles?meta=total_count', { token: reader.token });
  const viewed = await fetchAs('administrator');
  t.strictSame([viewed.status, await viewed.json()], [200, own.json]);
  t.equal(viewed.headers.get('lateral-view-as'), `user:${reader.id}`);
  t.equal((await fetchAs('administrator', 'POST')).status, 403, 'it writes nothing');
  t.equal((await fetchAs('public')).status, 403, 'others may not');
});

t.test('changes are reported, whichever program commits them', async (t) => {
  const changes: ChangeEvent[] = [];
  const watching = createLateral({ databaseUrl, logLevel: 'silent' });
  watching.on('change', (event) => changes.push(event));
  await watching.start({ listen: false });
  t.teardown(() => watching.stop());
  const [row] = await sql`insert into authors (name) values ('by SQL') returning id`;
  await watching.items('authors', { as: 'administrator' }).update(Number(row?.['id']), { name: 'by a call' });
  await lateral.items('authors', { as: 'administrator' }).delete(Number(row?.['id']));
  const own = (): ChangeEvent[] => changes.filter(({ key }) => key === String(row?.['id']));
  await waitFor(async () => own().length === 3, 10_000);
  t.strictSame(
    own().map(({ collection, action }) => `${collection} ${action}`),
    ['authors create', 'authors update', 'authors delete'],
  );
  const off = createLateral({ databaseUrl, logLevel: 'silent', live: 'off' }).on('change', () => {});
  await t.rejects(off.start({ listen: false }), /changes cannot be reported: .*LIVE is off/);
});
