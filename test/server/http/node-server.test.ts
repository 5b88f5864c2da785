/** The same service over `node:http`, which serves where uWebSockets does not load. `SERVER=node` runs every other test file with it. */
import { once } from 'node:events';
import { Agent, get as httpGet, request as openRequest } from 'node:http';
import { connect } from 'node:net';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { chooseTransport } from '../../../src/server/http/listen.js';
import { EventStream } from '../../support/event-stream.js';
import { MessageSocket } from '../../support/message-socket.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  sendRaw,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'node_server');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql`create table wide (id int primary key, body text not null)`;
await sql`insert into wide select n, repeat(chr(97 + n % 26), 1000) from generate_series(1, 5000) n`;
const service = await startTestService({ databaseUrl, SERVER: 'node', WORKERS: '1' });
const other = await startTestService({ databaseUrl, SERVER: 'auto', WORKERS: '1' });
const JSON_BODY = { 'content-type': 'application/json' };

/** Headers that differ from response to response, or from server to server. */
const OWN_HEADERS = ['date', 'x-request-id', 'server-timing', 'uwebsockets', 'connection', 'transfer-encoding'];

function withoutOwn({ status, text, headers }: Answer): object {
  const kept = Object.entries(headers).filter(([name]) => !OWN_HEADERS.includes(name));
  return { status, text, headers: Object.fromEntries(kept.sort()) };
}

const LARGE = `GET /items/wide?limit=-1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\n\r\n`;

/** A client of its own service that asks for more than the buffers of the system hold, and does not read until the last test. */
const stalling = await startTestService({ databaseUrl, SERVER: 'node', WORKERS: '1' });
const stalled = connect(Number(new URL(stalling.url).port), new URL(stalling.url).hostname);
const stalledSince = performance.now();
stalled.on('error', () => {}).write(LARGE.repeat(4));

t.test('both servers give the same answers', async (t) => {
  const reads: [path: string, headers?: Record<string, string>][] = [
    ['/server/ping'],
    ['/items/articles?fields=id,title,author.name&sort=id&limit=5'],
    ['/items/articles/1'],
    ['/items/articles/1', { 'accept-encoding': 'gzip' }],
    ['/items/articles?limit=-1', { 'accept-encoding': 'br' }],
    ['/items/nothing'],
    ['/items/articles?filter[nothing]=1'],
    ['/no/such/route'],
    ['/items/wide?limit=-1&sort=id'],
    ['/items/wide?limit=300&sort=id'],
    ['/items/wide?limit=-1&sort=id&export=csv'],
    ['/items/articles?limit=2', { origin: 'https://example.com', cookie: 'a=b' }],
  ];
  for (const [path, headers = {}] of reads) {
    const [expected, found] = [await get(other, path, { headers }), await get(service, path, { headers })];
    t.strictSame(withoutOwn(found), withoutOwn(expected), path);
    const head = await request(service, 'HEAD', path, { headers });
    t.equal(head.status, expected.status, `HEAD ${path}`);
    t.equal(head.text, '');
  }
  const { etag = '' } = (await get(service, '/items/articles/1')).headers;
  t.match(await get(service, '/items/articles/1', { headers: { 'if-none-match': etag } }), { status: 304, text: '' });
});

t.test('writes, their errors and bodies that are too large', async (t) => {
  const write = (method: string, path: string, body: string): Promise<Answer> =>
    request(service, method, path, { headers: JSON_BODY, body });
  const made = await write('POST', '/items/tags', '{"name":"over node"}');
  t.match(made, { status: 200, json: { data: { name: 'over node' } } });
  const { id } = (made.json as { data: { id: number } }).data;
  t.match(await write('PATCH', `/items/tags/${id}`, '{"name":"changed"}'), { status: 200 });
  t.match(await write('SEARCH', '/items/tags', `{"query":{"filter":{"id":{"_eq":${id}}}}}`), {
    json: { data: [{ name: 'changed' }] },
  });
  t.match(await request(service, 'DELETE', `/items/tags/${id}`), { status: 204, text: '' });
  t.match(await write('POST', '/items/tags', '{"name":'), { status: 400 });
  const small = await startTestService({ databaseUrl, SERVER: 'node', MAX_PAYLOAD_SIZE: '1kb' });
  t.match(
    await request(small, 'POST', '/items/tags', { headers: JSON_BODY, body: `{"name":"${'x'.repeat(100_000)}"}` }),
    { status: 400, headers: { connection: 'close' } },
  );
  await small.stop();
});

t.test('a client that reads slowly gets the whole body', async (t) => {
  for (const path of ['/items/wide?limit=-1&sort=id', '/items/wide?limit=-1&sort=id&export=csv']) {
    const expected = await get(other, path);
    const read = await new Promise<string>((resolve, reject) => {
      const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };
      httpGet(service.url + path, { headers }, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (piece: string) => {
          text += piece;
          response.pause();
          setTimeout(() => response.resume(), 1);
        });
        response.on('end', () => resolve(text)).on('error', reject);
      }).on('error', reject);
    });
    t.equal(read.length, expected.text.length, path);
    t.equal(read, expected.text);
  }
});

t.test('a client that leaves does not disturb the others', async (t) => {
  for (let each = 0; each < 20; each++)
    await new Promise<void>((resolve) => {
      const headers = { authorization: `Bearer ${ADMIN_TOKEN}` };
      const left = httpGet(`${service.url}/items/wide?limit=-1`, { headers }, (response) => {
        response.once('data', () => left.destroy());
      });
      left.on('error', () => {}).on('close', () => resolve());
    });
  t.match(await get(service, '/server/health'), { status: 200, json: { status: 'ok' } });
});

t.test('connections are kept, and several requests may be sent at once', async (t) => {
  const one = `GET /server/ping HTTP/1.1\r\nHost: a\r\n\r\n`;
  const last = `GET /server/ping HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`;
  const text = await sendRaw(service, [one + one + last]);
  t.equal(text.match(/HTTP\/1\.1 200 OK/g)?.length, 3);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const kept = await get(service, '/items/tags?limit=1', { agent });
  t.match(kept.headers, { 'keep-alive': 'timeout=8' });
  agent.destroy();
});

t.test('requests whose end is not certain are refused', async (t) => {
  for (const head of [
    'POST /items/tags HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n{}{}',
    'POST /items/tags HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    'GET /server/ping HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n',
    'GET / nonsense\r\n\r\n',
  ]) {
    const text = await sendRaw(service, [head]);
    t.match(text, /^HTTP\/1\.1 400 Bad Request\r\n/, head);
    t.match(text, /"errors":\[\{"message":"Invalid payload. The request /);
    t.match(text, /^connection: close\r$/im);
  }
});

t.test('WebSockets and events', async (t) => {
  const socket = await new MessageSocket(service).opened();
  t.match(await socket.signIn(ADMIN_TOKEN), { type: 'auth', status: 'ok' });
  t.match(await socket.ask({ type: 'items', collection: 'tags', action: 'read', query: { limit: 1 } }), {
    data: [{ id: Number }],
  });
  const stream = new EventStream(service, '/items/tags?live=true&limit=1&sort=-id');
  await stream.count(1);
  stream.close();
  socket.close();
  const refused = await new MessageSocket(service, { headers: { origin: 'https://elsewhere.example' } }).opened();
  t.equal(refused.status, 403);
  const protocols = await new MessageSocket(service, { path: '/graphql', protocols: 'graphql-transport-ws' }).opened();
  t.equal(protocols.socket.protocol, 'graphql-transport-ws');
  protocols.close();
  const elsewhere = await new MessageSocket(service, { path: '/items/tags' }).opened();
  t.equal(elsewhere.status, 403, 'the request is answered as one without an upgrade');
});

t.test('an upgrade to another protocol is answered as a request', async (t) => {
  const send = (method: string, path: string, body: string): Promise<number> =>
    new Promise((resolve, reject) => {
      const authorization = `Bearer ${ADMIN_TOKEN}`;
      const headers = { ...JSON_BODY, authorization, connection: 'upgrade, http2-settings', upgrade: 'h2c' };
      openRequest(service.url + path, { method, headers }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode ?? 0));
      })
        .on('error', reject)
        .end(body);
    });
  t.equal(await send('GET', '/items/wide?limit=-1', ''), 200, 'a large body');
  t.equal(await send('POST', '/items/tags', '{"name":"by h2c"}'), 200);
  t.match((await get(service, '/items/tags?filter[name][_eq]=by%20h2c')).json, { data: [{ name: 'by h2c' }] });
});

t.test('upgrades that follow another request, or lack a key, do no harm', async (t) => {
  const socket = (lines: string): string =>
    `GET /websocket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${lines}\r\n`;
  const valid = socket('Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n');
  await sendRaw(service, [LARGE + valid]);
  await sendRaw(service, [LARGE.repeat(2) + valid]);
  t.match(await sendRaw(service, [socket('Connection: close\r\n')]), /^HTTP\/1\.1 40[34] /);
  t.match(await get(service, '/server/ping'), { text: 'pong' });
});

t.test('a body that breaks ends its request at once', async (t) => {
  const head = `POST /items/tags HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\nContent-Type: application/json\r\n`;
  const start = performance.now();
  await sendRaw(service, [`${head}Transfer-Encoding: chunked\r\n\r\n5\r\n{"nam\r\nzz\r\n`]);
  t.ok(performance.now() - start < 5_000, 'not after BODY_TIMEOUT');
});

t.test('clients that leave give their memory and their places back', async (t) => {
  const limited = await startTestService({ databaseUrl, SERVER: 'node', WORKERS: '1', RESPONSE_MEMORY: '24mb' });
  for (let turn = 0; turn < 10; turn++) {
    const { hostname, port } = new URL(limited.url);
    const socket = connect(Number(port), hostname, () => socket.write(LARGE.repeat(3)));
    await once(socket, 'data');
    socket.destroy();
  }
  await waitFor(async () => (await get(limited, '/items/wide?limit=-1')).status === 200, 5_000);
  const start = performance.now();
  await limited.stop();
  t.ok(performance.now() - start < 3_000, 'no request is running');
});

t.test('the service says which server runs', async (t) => {
  t.match((await get(service, '/server/info')).json, { data: { server: 'node' } });
  const { transport, obstacle } = await chooseTransport(readConfig({}));
  t.match((await get(other, '/server/info')).json, { data: { server: transport.name } });
  t.equal(obstacle === null, transport.name === 'uws', 'auto says why it is not uWebSockets');
});

t.test('a version of Node that cannot share ports is refused before the database is touched', async (t) => {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const shares = major > 22 || (major === 22 && minor >= 12);
  for (const sharing of [{ WORKERS: '2' }, { REUSE_PORT: 'true' }]) {
    const choice = chooseTransport(readConfig({ SERVER: 'node', ...sharing }));
    if (shares) t.equal((await choice).transport.name, 'node');
    else await t.rejects(choice, { message: 'WORKERS and REUSE_PORT need Node 22.12 or newer with SERVER=node' });
  }
});

t.test('a client that does not read is disconnected', async (t) => {
  // Node looks every ten seconds whether it has written something.
  await passTime(Math.max(0, 22_000 - (performance.now() - stalledSince)), 'a client that stalls');
  let bytes = 0;
  stalled.on('data', (piece) => {
    bytes += piece.length;
  });
  await once(stalled, 'close', { signal: AbortSignal.timeout(5_000) });
  t.ok(bytes < 4 * 5_000_000, `${bytes} bytes of four responses`);
});

t.teardown(async () => {
  await service.stop();
  await other.stop();
  await stalling.stop();
});
