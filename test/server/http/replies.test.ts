/** How replies leave: many at a time, with their headers as bytes, and with tags of what is in them. */
import { Agent } from 'node:http';
import t from 'tap';
import { tagOf } from '../../../src/server/http/etag.js';
import { errorReply } from '../../../src/server/http/reply.js';
import {
  ADMIN_TOKEN,
  type Answer,
  createLibrary,
  get,
  request,
  sendRaw,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'replies');
await withSql(databaseUrl, async (sql) => {
  await sql`create table letters (id int primary key, body text)`;
  await sql`insert into letters select n, repeat(chr(97 + n % 26), n * 7 % 5000) from generate_series(1, 3000) n`;
});

t.test('a statement of the service itself that took too long is no fault of it', async (t) => {
  const error = new Error('canceling statement due to statement timeout');
  const { status, body, headers } = errorReply(Object.assign(error, { code: '57014' }));
  t.match(
    { status, body, headers },
    { status: 503, body: /DATABASE_STATEMENT_TIMEOUT/, headers: { 'Retry-After': '1' } },
  );
});

t.test('each of many at a time gets its own body under its own name', async (t) => {
  const service = await startTestService({ databaseUrl });
  const agent = new Agent({ keepAlive: true, maxSockets: 150 });
  t.teardown(() => agent.destroy());
  const ask = async (id: number): Promise<boolean> => {
    const { headers, json } = await get(service, `/items/letters/${id}`, {
      headers: { 'x-request-id': `letter-${id}` },
      agent,
    });
    const body = String.fromCharCode(97 + (id % 26)).repeat((id * 7) % 5000);
    const { data } = json as { data: { id: number; body: string } };
    return headers['x-request-id'] === `letter-${id}` && data.id === id && data.body === body;
  };
  const right = await Promise.all(Array.from({ length: 3_000 }, (_, position) => ask(position + 1)));
  t.equal(right.filter(Boolean).length, 3_000);
});

t.test('headers that find no room beside those of others', async (t) => {
  const service = await startTestService({ databaseUrl, CORS_ENABLED: 'true', CORS_ORIGIN: 'true' });
  const agent = new Agent({ keepAlive: true, maxSockets: 200 });
  t.teardown(() => agent.destroy());
  // They all ask for the same, so that one statement answers them; their headers are eight times what there is room for.
  const answers = await Promise.all(
    Array.from({ length: 600 }, (_, position) =>
      get(service, '/items/letters?limit=1&fields=id&sort=id', {
        headers: { origin: `https://${String(position).padStart(4, '0').repeat(600)}.example.com` },
        agent,
      }),
    ),
  );
  for (const [position, { status, text, headers }] of answers.entries()) {
    const origin = `https://${String(position).padStart(4, '0').repeat(600)}.example.com`;
    if (status !== 200 || text !== '{"data":[{"id":1}]}' || headers['access-control-allow-origin'] !== origin)
      t.fail(`the answer to ${position}: ${status} ${text}`);
  }
  t.equal(answers.length, 600);
});

t.test('no character of a header becomes the end of a line', async (t) => {
  const service = await startTestService({ databaseUrl, CORS_ENABLED: 'true', CORS_ORIGIN: 'true' });
  // As numbers of two bytes, their lower ones are a carriage return and a line feed.
  const head = [
    'GET /items/letters?limit=1 HTTP/1.1',
    'Host: here',
    `Authorization: Bearer ${ADMIN_TOKEN}`,
    'Origin: https://a\u010d\u010aX-Made-Up: yes',
    'Connection: close',
  ];
  const received = await sendRaw(service, [`${head.join('\r\n')}\r\n\r\n`], (text) => text.includes(']}'));
  t.match(received, /^HTTP\/1\.1 200 OK\r\n/);
  t.match(received, /\r\nAccess-Control-Allow-Origin: https:\/\/a\?+X-Made-Up: yes\r\n/);
  t.notMatch(received, /\nX-Made-Up/);
});

t.test('a connection that is kept open goes on behind HEAD', async (t) => {
  const service = await startTestService({ databaseUrl });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.teardown(() => agent.destroy());
  for (const path of [
    '/server/ping',
    '/items/letters/7',
    '/items/letters?limit=3',
    '/items/letters?limit=-1',
    '/nowhere',
  ]) {
    const whole = await get(service, path, { agent });
    for (let turn = 0; turn < 3; turn++) {
      const head = await request(service, 'HEAD', path, { agent });
      t.strictSame([head.status, head.text], [whole.status, ''], path);
      t.equal(head.headers['content-length'], whole.headers['content-length'], `the length of ${path}`);
    }
    t.equal((await get(service, path, { agent })).text, whole.text);
  }
});

t.test('a large body whose answer begins when the service stops arrives in full', async (t) => {
  const service = await startTestService({ databaseUrl });
  const path = '/items/volumes?limit=9000&fields=id,body';
  await withSql(databaseUrl, async (sql) => {
    await sql`create table volumes (id int primary key, body text)`;
    await sql`insert into volumes select n, repeat(md5(n::text), 30) from generate_series(1, 9000) n`;
    await waitFor(async () => (await get(service, '/items/volumes?limit=1')).status === 200, 5_000);
    let asked: Promise<Answer> | undefined;
    let stopped: Promise<void> | undefined;
    await sql.begin(async (transaction) => {
      await transaction`lock table volumes`;
      asked = get(service, path);
      asked.catch(() => undefined);
      const waits = async (): Promise<boolean> =>
        (
          await transaction`
            select from pg_locks join pg_database on pg_locks.database = oid
            where datname = current_database() and not granted and relation = 'volumes'::regclass`
        ).length > 0;
      await waitFor(waits, 5_000);
      stopped = service.stop();
    });
    const answer = await asked;
    t.equal(answer?.status, 200);
    t.equal((answer?.json as { data: unknown[] } | undefined)?.data.length, 9_000);
    t.equal(answer?.headers.connection, 'close');
    await stopped;
  });
});

t.test('a tag tells bodies apart', async (t) => {
  const tags = new Set<string>();
  let bodies = 0;
  const add = (body: Buffer): void => {
    bodies++;
    tags.add(tagOf(body));
  };
  for (let length = 0; length < 40; length++) {
    add(Buffer.alloc(length));
    add(Buffer.alloc(length, 'x'));
  }
  // The two of length 0 are one.
  bodies--;
  for (let number = 0; number < 30_000; number++) {
    add(Buffer.from(`{"data":{"id":${number},"title":"one of many","views":7}}`));
    add(Buffer.from(`{"data":{"id":7,"title":"one of many","views":${number}}}.`));
  }
  t.equal(tags.size, bodies);
  const body = Buffer.from('- the same bytes elsewhere in memory');
  t.equal(tagOf(body), tagOf(Buffer.concat([Buffer.alloc(3), body]).subarray(3)));
  for (const tag of tags) if (!/^"[!#-~]+"$/.test(tag)) t.fail(`${tag} is none`);
});

t.test('QUERY reads as SEARCH does, with a cookie of another site too', async (t) => {
  const service = await startTestService({ databaseUrl, CORS_ENABLED: 'true', CORS_ORIGIN: 'true' });
  const body = JSON.stringify({ query: { filter: { id: { _in: [3, 5] } }, fields: ['id'] } });
  const ask = (method: string, type = 'application/json'): Promise<Answer> =>
    request(service, method, '/items/letters', { headers: { 'content-type': type }, token: ADMIN_TOKEN, body });
  for (const method of ['QUERY', 'SEARCH']) {
    const { status, json, headers } = await ask(method);
    t.equal(status, 200, method);
    t.same(json, { data: [{ id: 3 }, { id: 5 }] });
    t.equal(headers['accept-query'], 'application/json');
  }
  t.equal((await ask('QUERY', 'text/plain')).status, 415);
  const preflight = await request(service, 'OPTIONS', '/items/letters', {
    headers: { origin: 'https://a.example', 'access-control-request-method': 'QUERY' },
  });
  t.match(preflight.headers['access-control-allow-methods'], /QUERY/);
});

t.test('Prefer: return says whether a write answers with the item', async (t) => {
  const service = await startTestService({ databaseUrl });
  const write = (method: string, path: string, prefer: string, body: unknown): Promise<Answer> =>
    request(service, method, path, {
      headers: { 'content-type': 'application/json', prefer },
      token: ADMIN_TOKEN,
      body: JSON.stringify(body),
    });
  const made = await write('POST', '/items/letters', 'return=minimal', { id: 9_001, body: 'a' });
  t.match(made, { status: 204, text: '', headers: { 'preference-applied': 'return=minimal' } });
  const many = await write('PATCH', '/items/letters', 'handling=strict, return=minimal', [{ id: 9_001, body: 'b' }]);
  t.equal(many.status, 204);
  const shown = await write('PATCH', '/items/letters/9001?fields=body', 'return="representation"', { id: 9_001 });
  t.match(shown, { status: 200, headers: { 'preference-applied': 'return=representation' } });
  t.same(shown.json, { data: { body: 'b' } });
  const refused = await write('PATCH', '/items/letters/9001?limit=1', 'return=minimal', { body: 'c' });
  t.equal(refused.status, 400, 'the URL is checked nevertheless');
  const plain = await write('PATCH', '/items/letters/9001?fields=body', 'returns=minimal', { body: 'd' });
  t.same(plain.json, { data: { body: 'd' } });
  t.equal(plain.headers['preference-applied'], undefined);
});
