/** HTTP itself: what connections are told, and what cannot be told apart is refused. */
import { once } from 'node:events';
import { Agent } from 'node:http';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  type RequestOptions,
  request,
  sendRaw,
  startDatabase,
  startTestService,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'protocol');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl, STREAM_ABOVE: '5', CORS_ENABLED: 'true', CORS_ORIGIN: 'true' });

/** Beside the other tests, because it takes its time. */
const idle = (async () => {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(service.url).port) });
  let answers = '';
  socket.on('data', (piece) => {
    answers += piece.toString();
  });
  await once(socket, 'connect');
  const ask = async (count: number): Promise<void> => {
    socket.write('GET /server/ping HTTP/1.1\r\nHost: a\r\n\r\n');
    while (answers.split('pong').length <= count) await sleep(20);
  };
  await ask(1);
  // A second less than the header says, as clients do that know of it.
  await passTime(7_000, 'the connection is idle');
  await ask(2);
  socket.destroy();
  return answers.split('pong').length - 1;
})();

t.test('an answer to Connection: close says so, and clients do not use the connection again', async (t) => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  const headers = { connection: 'close' };
  const paths = [
    '/items/articles/1',
    '/items/articles?limit=-1',
    '/items/nothing',
    '/server/ping',
    '/server/specs/oas',
  ];
  for (let turn = 0; turn < 20; turn++)
    for (const path of paths) {
      const answer = await request(service, 'GET', path, { headers, agent });
      t.match(answer.headers, { connection: 'close' }, path);
      t.equal(answer.headers['keep-alive'], undefined);
    }
  const head = `GET /server/specs/oas HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\nConnection: close\r\n\r\n`;
  t.equal((await sendRaw(service, [head])).match(/connection: close/gi)?.length, 1, 'once');
});

t.test('every answer says how long its connection is kept, and is what it says it is', async (t) => {
  const agent = new Agent({ keepAlive: true });
  t.teardown(() => agent.destroy());
  const body = (name: string): RequestOptions => ({
    agent,
    body: JSON.stringify({ name }),
    headers: { 'content-type': 'application/json' },
  });
  const read = await get(service, '/items/articles/1', { agent });
  const answers = {
    'an item': read,
    'an item that has not changed': await get(service, '/items/articles/1', {
      agent,
      headers: { 'if-none-match': read.headers.etag ?? '' },
    }),
    'a stream': await get(service, '/items/articles?limit=-1', { agent }),
    'an export': await get(service, '/items/articles?export=csv', { agent }),
    'a refusal': await get(service, '/items/nothing', { agent }),
    'no route': await get(service, '/nothing', { agent }),
    'a write': await request(service, 'PATCH', '/items/tags/1', body('a')),
    'a deletion': await request(service, 'DELETE', '/items/tags/5', { agent }),
    HEAD: await request(service, 'HEAD', '/items/articles/1', { agent }),
    'a preflight': await request(service, 'OPTIONS', '/items/articles', {
      agent,
      headers: { origin: 'https://a.example.com', 'access-control-request-method': 'GET' },
    }),
    GraphQL: await request(service, 'POST', '/graphql', {
      agent,
      body: '{"query":"{ tags { id } }"}',
      headers: { 'content-type': 'application/json' },
    }),
    'the IDE': await get(service, '/graphql', { agent, headers: { accept: 'text/html' } }),
    ping: await get(service, '/server/ping', { agent }),
    ready: await get(service, '/server/ready', { agent }),
    metrics: await get(service, '/server/metrics', { agent }),
  };
  for (const [name, { headers }] of Object.entries(answers)) {
    t.equal(headers['keep-alive'], 'timeout=8', name);
    t.equal(headers['x-content-type-options'], 'nosniff', name);
  }
});

t.test('two lengths of one body are refused, and nothing behind them is read', async (t) => {
  const inner = 'GET /server/ping HTTP/1.1\r\nHost: a\r\n\r\n';
  const head = (method: string, ...lengths: readonly number[]): string =>
    `${method} /items/tags/2 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\nContent-Type: application/json\r\n${lengths
      .map((length) => `Content-Length: ${length}\r\n`)
      .join('')}\r\n`;
  const body = '{"name":"no"}';
  const cases: Readonly<Record<string, readonly string[]>> = {
    'the first is longer': [head('PATCH', body.length, 5) + body],
    'the first is shorter': [head('PATCH', 5, body.length) + body],
    'the body comes later': [head('PATCH', 5, body.length), body],
    'a request is hidden in the body': [head('PATCH', 0, inner.length) + inner],
    'a request is hidden behind the body': [head('PATCH', inner.length, 0) + inner],
    'it comes later': [head('PATCH', 0, inner.length), inner],
    'a read has a body': [head('GET', 0, inner.length) + inner],
    three: [head('PATCH', body.length, body.length, 3) + body],
  };
  for (const [name, pieces] of Object.entries(cases)) {
    // Resolves when the connection is closed.
    const answer = await sendRaw(service, pieces);
    t.match(answer, /^HTTP\/1\.1 400 Bad Request\r\n/, name);
    t.match(answer, /^connection: close\r$/im, name);
    t.match(answer, /Content-Length headers that differ/, name);
    t.equal(answer.split('HTTP/1.1 ').length, 2, `${name}: one answer`);
    t.notMatch(answer, /pong/, name);
  }
  const [row] = await sql`select name from tags where id = 2`;
  t.equal(row?.['name'], 'tech', 'nothing was written');
  const same = head('PATCH', body.length, body.length).replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
  t.match(await sendRaw(service, [same + body]), /^HTTP\/1\.1 200 OK/, 'the same length twice is one length');
  t.match(
    await sendRaw(service, [
      head('PATCH').replace('\r\n\r\n', '\r\nContent-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n'),
    ]),
    /^HTTP\/1\.1 400 /,
  );
});

t.test('a request whose end or host is not certain is refused, and nothing behind it is read', async (t) => {
  const inner = 'GET /server/ping HTTP/1.1\r\nHost: a\r\n\r\n';
  const body = '{"name":"no"}';
  const chunks = `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  const head = (method: string, path: string, ...lines: readonly string[]): string =>
    `${[
      `${method} ${path} HTTP/1.1`,
      'Host: a',
      `Authorization: Bearer ${ADMIN_TOKEN}`,
      'Content-Type: application/json',
      ...lines,
    ].join('\r\n')}\r\n\r\n`;
  const codings = ['xchunked', 'identity', 'cow', 'gzip, chunked', 'chunked, gzip', 'chunked;q=1', '"chunked"', ''];
  const framings: Readonly<Record<string, readonly string[]>> = {
    ...Object.fromEntries(codings.map((coding) => [`"${coding}"`, [`Transfer-Encoding: ${coding}`]])),
    'two codings': ['Transfer-Encoding: chunked', 'Transfer-Encoding: identity'],
    'a coding twice': ['Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'],
    'the first coding is empty': ['Transfer-Encoding:', 'Transfer-Encoding: chunked'],
    'an empty coding and a length': ['Transfer-Encoding:', `Content-Length: ${body.length}`],
    'an empty length and a coding': ['Content-Length:', 'Transfer-Encoding: chunked'],
    'an empty length': ['Content-Length:'],
    'an empty length and another': ['Content-Length:', `Content-Length: ${body.length}`],
    'a length and a coding': [`Content-Length: ${chunks.length}`, 'Transfer-Encoding: chunked'],
    'another host': ['Transfer-Encoding: chunked', 'Host: b'],
    'the host twice': ['Transfer-Encoding: chunked', 'host: a'],
    'an empty second host': ['Transfer-Encoding: chunked', 'Host:'],
  };
  const refused = async (pieces: readonly string[], name: string): Promise<void> => {
    // Resolves when the connection is closed.
    const answer = await sendRaw(service, pieces);
    t.match(answer, /^HTTP\/1\.1 400 Bad Request\r\n/, name);
    t.match(answer, /^connection: close\r$/im, name);
    t.equal(answer.split('HTTP/1.1 ').length, 2, `${name}: one answer`);
    t.notMatch(answer, /pong/, name);
  };
  for (const [name, lines] of Object.entries(framings)) {
    await refused([head('PATCH', '/items/tags/3', ...lines) + chunks + inner], name);
    await refused([head('PATCH', '/items/tags/3', ...lines), chunks, inner], `${name}, in pieces`);
    await refused([head('GET', '/items/tags/3', ...lines) + inner], `${name}, a read`);
    await refused([head('HEAD', '/items/tags/3', ...lines)], `${name}, only the head`);
    const cut = await sendRaw(service, [head('HEAD', '/server/ping', ...lines) + inner]);
    t.notMatch(cut, /pong|200 OK/, `${name}, only the head, with another request behind it`);
    const upgrade = ['Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=='];
    await refused(
      [head('GET', '/websocket', ...upgrade, 'Sec-WebSocket-Version: 13', ...lines) + inner],
      `${name}, a socket`,
    );
  }
  const [row] = await sql`select name from tags where id = 3`;
  t.not(row?.['name'], 'no', 'nothing was written');
  for (const coding of ['chunked', 'Chunked', '\tchunked ']) {
    const whole = head('PATCH', '/items/tags/3', `Transfer-Encoding: ${coding}`, 'Connection: close') + chunks;
    t.match(await sendRaw(service, [whole]), /^HTTP\/1\.1 200 OK/, `"${coding}"`);
  }
});

t.test('the head of an answer that ends its connection has the length of the body', async (t) => {
  const draining = await startTestService({ databaseUrl, DRAIN_DELAY: '400ms' });
  const head = 'HEAD /server/ping HTTP/1.1\r\nHost: a\r\n\r\n';
  const open = sendRaw(draining, [head], (received) => received.includes('\r\n\r\n'));
  t.match(await open, /^content-length: 4\r$/im);
  const stopped = draining.stop();
  const last = await sendRaw(draining, [head], (received) => received.includes('\r\n\r\n'));
  t.match(last, /^HTTP\/1\.1 200 OK\r\n/);
  t.match(last, /^content-length: 4\r$/im);
  t.match(last, /^connection: close\r$/im);
  await stopped;
});

t.test('a read that is answered from memory has one host', async (t) => {
  const head = (host: string): string => `GET /server/ping HTTP/1.1\r\nHost: a\r\n${host}\r\n`;
  const pong = (answer: string): boolean => answer.endsWith('pong');
  for (let turn = 0; turn < 3; turn++) t.match(await sendRaw(service, [head('')], pong), /^HTTP\/1\.1 200 OK/);
  t.match(await sendRaw(service, [head('Host: b\r\n')], pong), /^HTTP\/1\.1 400 /);
});

t.test('a connection that was idle for less than that is still there', async (t) => {
  t.equal(await idle, 2);
});
