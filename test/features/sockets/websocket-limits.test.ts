/**
 * WebSockets under pressure: the ways to sign in, clients that say nothing, frames that mean nothing, and clients that do not read.
 * HOSTILE_FRAMES says how many frames are sent.
 */
import { once } from 'node:events';
import { createConnection, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { addPermission, inForce, makeCaller } from '../../support/callers.js';
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

const SECRET = 'the-secret-that-signs-the-tokens-of-tests';
const FRAMES = Number(process.env['HOSTILE_FRAMES'] ?? 2_000);

const server = await startDatabase({ own: true });
const url = await createLibrary(server, 'limits');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql`create table large (id int primary key, text text)`;
const service = await startTestService({
  databaseUrl: url,
  WORKERS: '1',
  SECRET,
  WEBSOCKETS_REST_AUTH: 'strict',
  WEBSOCKETS_HEARTBEAT_PERIOD: '1s',
  WEBSOCKETS_MAX_FRAME_SIZE: '64kb',
  WEBSOCKETS_REST_CONN_LIMIT: '60',
  WEBSOCKETS_GRAPHQL_CONN_LIMIT: '60',
});
const path = `/websocket?access_token=${ADMIN_TOKEN}`;

async function open(options: MessageSocketOptions = { path }): Promise<MessageSocket> {
  const socket = new MessageSocket(service, options);
  t.teardown(() => socket.close());
  return socket.opened();
}

t.test('strict: without a token there is no connection', async (t) => {
  t.equal((await open({})).status, 401);
  t.equal((await open({ headers: { authorization: 'Basic eDp5' } })).status, 401, 'nor with what is no token');
  const socket = await open();
  t.match(await socket.ask({ type: 'ping', uid: 1 }), { type: 'pong', uid: 1 });
  socket.close();
});

t.test('public: nobody has to sign in, and a wrong token does no harm', async (t) => {
  const other = await startTestService({ databaseUrl: url, WORKERS: '1', WEBSOCKETS_REST_AUTH: 'public' });
  const socket = new MessageSocket(other);
  t.teardown(() => socket.close());
  await socket.opened();
  const read = { type: 'items', collection: 'tags', action: 'read', uid: 'r' };
  t.match(await socket.ask(read), { error: { code: 'FORBIDDEN' } });
  t.match(await socket.signIn('wrong'), { error: { code: 'AUTH_FAILED' } });
  t.match(await socket.signIn(ADMIN_TOKEN), { status: 'ok' });
  t.match(await socket.ask(read), { data: [] });
  await other.stop();
  await socket.ended();
  t.equal(socket.closed?.code, 1001, 'the service stops');
});

t.test('a token of the URL or of the session cookie counts in every mode', async (t) => {
  const headers = { 'content-type': 'application/json' };
  const account = JSON.stringify({ email: 'cora@example.com', password: 'a long password', mode: 'session' });
  t.equal((await request(service, 'POST', '/users', { body: account.replace(/,"mode.*/, '}'), headers })).status, 200);
  const answer = await request(service, 'POST', '/auth/login', { body: account, headers, token: null });
  const cookie = answer.headers['set-cookie']?.[0]?.split(';', 1)[0] ?? '';
  for (const mode of ['public', 'handshake', 'strict']) {
    const other = await startTestService({
      databaseUrl: url,
      WORKERS: '1',
      SECRET,
      WEBSOCKETS_REST_AUTH: mode,
      WEBSOCKETS_GRAPHQL_AUTH: mode,
    });
    const credentials = [{ query: `?access_token=${ADMIN_TOKEN}` }, { headers: { cookie, origin: other.url } }];
    for (const { query = '', ...options } of credentials) {
      const socket = await new MessageSocket(other, { path: `/websocket${query}`, ...options }).opened();
      // The one who came by a cookie may read nothing, and is somebody all the same.
      const read = { type: 'items', collection: 'service_users', action: 'read', uid: 'r' };
      const subscribe = { type: 'subscribe', collection: 'tags', uid: 's' };
      const seen = await socket.ask(query === '' ? { type: 'ping' } : subscribe);
      t.match(seen, query === '' ? { type: 'pong' } : { event: 'init' }, `/websocket, ${mode}`);
      t.match(await socket.ask(read), { type: 'items' }, `/websocket, ${mode}`);
      socket.close();
      const path = `/graphql${query}`;
      const graphql = await new MessageSocket(other, { path, protocols: 'graphql-transport-ws', ...options }).opened();
      graphql.send({ type: 'connection_init' });
      t.match(await graphql.next(({ type }) => type === 'connection_ack'), {}, `/graphql, ${mode}`);
      graphql.close();
    }
    const basic = await new MessageSocket(other, { headers: { authorization: 'Basic eDp5' } }).opened();
    if (mode === 'handshake') {
      basic.send({ type: 'ping' });
      t.match(await basic.next(() => true), { error: { code: 'AUTH_FAILED' } }, 'what is no token signs nobody in');
    }
    basic.close();
    await other.stop();
  }
});

t.test('a client that answers no ping is disconnected, one that does is not', async (t) => {
  const silent = await open();
  const lively = await open();
  const answering = setInterval(() => {
    if (lively.messages.splice(0).some(({ type }) => type === 'ping')) lively.send({ type: 'pong' });
  }, 50);
  await silent.ended(10_000);
  t.match(silent.messages[0], { type: 'ping' });
  t.equal(lively.closed, null);
  clearInterval(answering);
  lively.close();
});

/** What somebody else does meanwhile: how often they were answered, and how long that took at most. */
async function readBeside(isOver: () => boolean): Promise<{ readonly answers: number; readonly longest: number }> {
  let answers = 0;
  let longest = 0;
  while (!isOver()) {
    const begun = performance.now();
    if ((await get(service, '/items/tags?limit=1')).status === 200) answers++;
    longest = Math.max(longest, performance.now() - begun);
    await sleep(20);
  }
  return { answers, longest };
}

const junk = (number: number): Buffer => {
  const size = (number * 7_919) % 300;
  return Buffer.from(Array.from({ length: size + 1 }, (_, index) => (number * 31 + index * 17) % 256));
};

interface Hostile extends MessageSocketOptions {
  readonly first: string | null;
  readonly texts: readonly string[];
}

const operation = (query: string, more: object = {}): string =>
  JSON.stringify({ id: 'a', type: 'subscribe', payload: { query, ...more } });

const HOSTILE: Readonly<Record<string, Hostile>> = {
  '/websocket': {
    path,
    first: null,
    texts: [
      '',
      '{',
      '[]',
      '{"type":"subscribe"}',
      '{"type":"items","collection":"tags","action":"read","id":{}}',
      '"'.repeat(60_000),
    ],
  },
  '/graphql': {
    path: `/graphql?access_token=${ADMIN_TOKEN}`,
    protocols: 'graphql-transport-ws',
    first: '{"type":"connection_init"}',
    // Those that end the connection are rare: others would not be looked at.
    texts: [
      operation('{'),
      operation('subscription { nothing }'),
      operation(`{${'tags{'.repeat(5_000)}`),
      operation('subscription ($a: Int!) { tags(limit: $a) { id } }', { variables: { a: {} } }),
      operation('subscription { tags_mutated(event: never) { key } }'),
      operation('', { extensions: { persistedQuery: 5 } }),
      '{"type":"complete","id":"a"}',
      '{"type":"pong","payload":{}}',
      `{"type":"ping","payload":{"a":"${'x'.repeat(50_000)}"}}`,
      operation('"'.repeat(50_000)),
    ],
  },
};

for (const [name, { first, texts, ...options }] of Object.entries(HOSTILE))
  t.test(`${name}: frames that mean nothing harm nobody else`, async (t) => {
    const port = Number(new URL(service.url).port);
    let broken = 0;
    let sent = 0;
    let isOver = false;
    const beside = readBeside(() => isOver);
    const before = process.memoryUsage().rss;
    const begun = performance.now();
    while (sent < FRAMES) {
      // What is no frame at all, behind a proper handshake.
      const raw = await handshake(port, options.path ?? '', options.protocols);
      raw.on('close', () => broken++);
      for (let each = 0; each < 20; each++, sent++) raw.write(junk(sent));
      const proper = await open(options);
      if (first !== null) {
        proper.send(first);
        await proper.next(({ type }) => type === 'connection_ack');
      }
      for (let each = 0; each < 20 && proper.closed === null; each++, sent++) {
        if (each % 3 === 0 && (first === null || each > 15)) proper.socket.send(junk(sent));
        else proper.send(texts[sent % texts.length] ?? '');
      }
      // The service has read all of it, or ended the connection.
      proper.socket.ping();
      await Promise.race([once(proper.socket, 'pong'), once(proper.socket, 'close')]);
      raw.destroy();
      proper.close();
    }
    isOver = true;
    const { answers, longest } = await beside;
    const grown = Math.round((process.memoryUsage().rss - before) / 1_048_576);
    const seconds = Math.round((performance.now() - begun) / 100) / 10;
    t.comment(
      `${sent} frames in ${seconds} s, ${grown} MiB more; ${answers} reads beside, at most ${Math.round(longest)} ms`,
    );
    t.ok(grown < 300, 'memory stays bounded');
    t.ok(answers > 0 && longest < 1_000, `others are served: ${Math.round(longest)} ms`);
    const large = await open(options);
    large.send('x'.repeat(100_000));
    await large.ended();
    await waitFor(async () => broken > 0, 5_000);
    t.equal((await get(service, '/items/tags')).status, 200);
    const after = await open(options);
    after.send('{"type":"ping"}');
    t.match(await after.next(({ type }) => type === 'pong'), { type: 'pong' });
    after.close();
  });

t.test('too many connections, and too many messages at a time', async (t) => {
  const many = await Promise.all(Array.from({ length: 70 }, () => open()));
  const refused = many.filter(({ status }) => status === 403);
  t.ok(refused.length >= 10, `${refused.length} were refused`);
  for (const socket of many) socket.close();
  await waitFor(async () => {
    const socket = await open();
    socket.close();
    return socket.status === 101;
  }, 5_000);
  const socket = await open();
  const read = JSON.stringify({ type: 'items', collection: 'articles', action: 'read' });
  for (let each = 0; each < 1_000; each++) socket.send(read);
  t.match(await socket.next(({ type }) => type === 'server', 10_000), { error: { code: 'REQUESTS_EXCEEDED' } });
  socket.close();
});

/** The longest that others waited until as many answers have come. The client answers pings meanwhile. */
async function longestBeside(socket: MessageSocket, isAnswer: (message: Message) => boolean, count: number) {
  const isOver = (): boolean => socket.closed !== null || socket.messages.filter(isAnswer).length >= count;
  const answering = setInterval(() => socket.send('{"type":"pong"}'), 100);
  const begun = performance.now();
  const { longest } = await readBeside(() => isOver() || performance.now() - begun > 30_000);
  clearInterval(answering);
  const answers = socket.messages.filter(isAnswer).length;
  return { longest: Math.round(longest), answers, took: Math.round(performance.now() - begun) };
}

t.test('a burst of subscriptions on one connection delays nobody else', async (t) => {
  const socket = await open({ ...HOSTILE['/graphql'] });
  socket.send('{"type":"connection_init"}');
  await socket.next(({ type }) => type === 'connection_ack');
  for (let each = 0; each < 1_000; each++) {
    const field = each % 2 ? 'articles_mutated { key event }' : `tags(limit: ${1 + (each % 50)}) { id name }`;
    socket.send({ id: `${each}`, type: 'subscribe', payload: { query: `subscription Q${each} { ${field} }` } });
  }
  const first = await longestBeside(socket, ({ type }) => type === 'next' || type === 'error', 200);
  socket.close();
  t.ok(first.answers >= 200 && first.longest < 600, `graphql-transport-ws: ${JSON.stringify(first)}`);

  const other = await open();
  for (let each = 0; each < 1_000; each++) {
    const query = { fields: ['id', 'title', 'author.name'], filter: { id: { _gt: each } }, limit: 1 + (each % 90) };
    other.send({ type: 'subscribe', collection: 'articles', query, uid: each });
  }
  const second = await longestBeside(other, ({ event, status }) => event === 'init' || status === 'error', 900);
  other.close();
  t.ok(second.answers >= 900 && second.longest < 600, `/websocket: ${JSON.stringify(second)}`);
});

t.test('answers that wait are bounded', async (t) => {
  const socket = await open();
  // The first state keeps a distance from answers, and those behind it wait.
  socket.send({ type: 'subscribe', collection: 'tags', uid: 's' });
  for (let turn = 0; turn < 200 && socket.closed === null; turn++) {
    for (let each = 0; each < 500; each++) socket.send('{"type":"ping"}');
    await sleep(5);
  }
  await socket.ended();
  t.equal(socket.closed?.code, 1013);
});

t.test('a sign-in that fails for the moment is not the end of the connection', async (t) => {
  const socket = await open();
  await sql`alter table service_users rename to elsewhere`;
  const failed = await socket
    .ask({ type: 'auth', access_token: 'not-looked-up-before', uid: 'a' })
    .finally(async () => {
      await sql`alter table elsewhere rename to service_users`;
    });
  t.match(failed, { status: 'error', error: { code: /INTERNAL_SERVER_ERROR|SERVICE_UNAVAILABLE/ } });
  t.match(await socket.ask({ type: 'ping', uid: 'p' }), { type: 'pong' });
  await waitFor(async () => (await socket.signIn(ADMIN_TOKEN))['status'] === 'ok', 5_000);
  socket.close();
});

t.test('upgrades count as requests do, and cookies from another origin only where credentials do', async (t) => {
  const origin = 'https://app.example';
  const cookie = `service_session_token=${ADMIN_TOKEN}`;
  const other = await startTestService({
    databaseUrl: url,
    WORKERS: '1',
    WEBSOCKETS_REST_AUTH: 'strict',
    CORS_ENABLED: 'true',
    CORS_ORIGIN: origin,
    CORS_CREDENTIALS: 'false',
    RATE_LIMITER_ENABLED: 'true',
    RATE_LIMITER_POINTS: '3',
    RATE_LIMITER_DURATION: '60',
  });
  for (const [options, status] of [
    [{ headers: { origin, cookie } }, 401],
    [{ headers: { origin: other.url, cookie } }, 101],
    [{ headers: { origin }, path }, 101],
    [{ path }, 429],
  ] as const) {
    const socket = new MessageSocket(other, options);
    t.teardown(() => socket.close());
    t.equal((await socket.opened()).status, status, JSON.stringify(options));
  }
});

t.test('a client that does not read gets the newest state when it does, and costs little until then', async (t) => {
  await sql`insert into large values (1, 'first')`;
  const reader = await open();
  const slow = await open();
  for (const socket of [reader, slow]) {
    await socket.ask({ type: 'subscribe', collection: 'large', query: { fields: ['text'] }, uid: 's' });
    // Heartbeats are not what is tested.
    setInterval(() => socket.closed === null && socket.send({ type: 'pong' }), 300).unref();
  }
  slow.socket.pause();
  const before = process.memoryUsage().rss;
  for (let turn = 0; turn < 60; turn++) {
    await sql`update large set text = ${`${turn} ${'x'.repeat(400_000)}`}`;
    await reader.next(({ event }) => event === 'update', 10_000);
  }
  await sql`update large set text = 'last'`;
  await reader.next(({ event, data }) => event === 'update' && JSON.stringify(data).includes('last'), 10_000);
  t.ok(process.memoryUsage().rss - before < 250_000_000, 'memory stays bounded');
  slow.socket.resume();
  await slow.next(({ data }) => JSON.stringify(data)?.includes('last') === true, 10_000);
  const updates = slow.messages.filter(({ event }) => event === 'update').length;
  t.ok(updates < 50, `it was spared some: ${updates} of 61`);
});

/** Two that follow the same over GraphQL. */
async function followers(query: string, token = ADMIN_TOKEN): Promise<readonly [MessageSocket, MessageSocket]> {
  const options = { path: `/graphql?access_token=${token}`, protocols: 'graphql-transport-ws' };
  const sockets = [await open(options), await open(options)] as const;
  for (const socket of sockets) {
    socket.send('{"type":"connection_init"}');
    await socket.next(({ type }) => type === 'connection_ack');
    socket.send(operation(query));
    setInterval(() => socket.closed === null && socket.send('{"type":"pong"}'), 300).unref();
  }
  return sockets;
}

t.test('over GraphQL such a client gets the newest answer of each live query', async (t) => {
  await sql`update large set text = 'first'`;
  const sockets = await followers('subscription { large { text } }');
  const [reader, slow] = sockets;
  for (const socket of sockets) await socket.next(({ type }) => type === 'next');
  slow.socket.pause();
  const before = process.memoryUsage().rss;
  for (let turn = 0; turn < 12; turn++) {
    await sql`update large set text = ${`${turn} ${'x'.repeat(2_000_000)}`}`;
    await reader.next(({ type }) => type === 'next', 10_000);
  }
  await sql`update large set text = 'last'`;
  await reader.next(({ payload }) => JSON.stringify(payload)?.includes('last') === true, 10_000);
  t.ok(process.memoryUsage().rss - before < 250_000_000, 'memory stays bounded');
  // What waits was read before it: it is read anew.
  await inForce(service, await makeCaller(sql, 'unconcerned', [{ permissions: [LARGE] }]), '/items/large?fields=id');
  slow.socket.resume();
  await slow.next(({ payload }) => JSON.stringify(payload)?.includes('last') === true, 10_000);
  const answers = slow.messages.filter(({ type }) => type === 'next').length;
  t.ok(answers < 12, `it was spared some: ${answers} of 13`);
});

/** Bytes that are in use, without what is only not collected yet. */
function heldMemory(): number {
  setFlagsFromString('--expose-gc');
  runInNewContext('gc')();
  return process.memoryUsage().heapUsed;
}

t.test('over GraphQL what it begins and ends meanwhile does not pile up', async (t) => {
  const sockets = await followers('subscription { large { text } }');
  const [reader, slow] = sockets;
  for (const socket of sockets) await socket.next(({ type }) => type === 'next');
  slow.socket.pause();
  for (let turn = 0; turn < 8; turn++) {
    await sql`update large set text = ${`${turn} ${'y'.repeat(2_000_000)}`}`;
    await reader.next(({ type }) => type === 'next', 10_000);
  }
  const query = `{ large { id } } #${'x'.repeat(50_000)}`;
  const before = heldMemory();
  for (let turn = 0; turn < 2_000; turn++) {
    slow.send({ id: `turn ${turn}`, type: 'subscribe', payload: { query } });
    slow.send({ id: `turn ${turn}`, type: 'complete' });
    if (turn % 50 === 0) await sleep(5);
  }
  await waitFor(async () => slow.socket.bufferedAmount === 0, 10_000);
  t.equal(slow.closed, null);
  t.ok(heldMemory() - before < 40_000_000, 'memory stays bounded: what was sent is 100 MB');
  for (const socket of sockets) socket.close();
});

const LARGE = { collection: 'large', action: 'read' } as const;
const EVENTS = 'subscription { large_mutated(event: create) { data { text } } }';
let made = 1;

/** How many large items it was told of. */
const told = ({ messages }: MessageSocket): number =>
  messages.filter(({ payload }) => Object(payload).data?.large_mutated?.data.text.length > 1_000).length;

/** 300 items are created while one of two does not read; the other has been told of them all. */
async function missing300(token?: string): Promise<MessageSocket> {
  const sockets = await followers(EVENTS, token);
  const [reader, slow] = sockets;
  // Nothing says when it has begun.
  await waitFor(async () => {
    await sql`insert into large values (${++made}, 'small')`;
    await sleep(50);
    return sockets.every(({ messages }) => messages.some(({ type }) => type === 'next'));
  }, 10_000);
  slow.socket.pause();
  await sql`insert into large select ${made}::int + n, repeat('x', 100000) from generate_series(1, 300) n`;
  made += 300;
  await waitFor(async () => told(reader) === 300, 20_000).catch(() => {
    const resyncs = reader.messages.filter(({ payload }) => Object(payload).extensions?.resync).length;
    throw new Error(`who reads was told of ${told(reader)} of 300, and ${resyncs} times that some may be missing`);
  });
  reader.close();
  return slow;
}

t.test('over GraphQL it is told of each event when it reads again', async (t) => {
  const slow = await missing300();
  slow.socket.resume();
  await waitFor(async () => told(slow) === 300, 10_000).catch(() => {});
  t.equal(told(slow), 300);
  slow.close();
});

t.test('waiting messages are not sent to a client that may no longer read them', async (t) => {
  const caller = await makeCaller(sql, 'former', [{ permissions: [LARGE] }]);
  const policy = caller.policies[0] ?? '';
  await inForce(service, caller, '/items/large?fields=id');
  const slow = await missing300(caller.token);
  await sql`delete from service_permissions where policy = ${policy}`;
  await waitFor(async () => (await get(service, '/items/large', { token: caller.token })).status === 403, 5_000);
  slow.socket.resume();
  // What had left arrives.
  await passTime(300, 'what had left arrives');
  await addPermission(sql, policy, LARGE);
  await slow.next(({ payload }) => Object(payload).extensions?.resync === true, 10_000);
  t.ok(told(slow) < 300, `${told(slow)} of 300 had left`);
});

async function handshake(port: number, target: string, protocols: string | null = null): Promise<Socket> {
  const socket = createConnection(port, '127.0.0.1');
  socket.on('error', () => {});
  socket.write(
    `GET ${target} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n${protocols ? `Sec-WebSocket-Protocol: ${protocols}\r\n` : ''}\r\n`,
  );
  await new Promise((resolve) => socket.once('data', resolve));
  return socket;
}
