/**
 * Compression: off unless it is asked for, by the operator and by the client; what arrives is what would have arrived
 * without it, whole or streamed, over REST, GraphQL and as an export; tags tell the codings apart; clients that leave or
 * read slowly are treated as ever.
 */
import { once } from 'node:events';
import { Agent, type IncomingHttpHeaders, type IncomingMessage, request as openRequest } from 'node:http';
import { brotliDecompressSync, createBrotliDecompress, createGunzip, gunzipSync } from 'node:zlib';
import t from 'tap';
import { negotiateEncoding } from '../../../src/server/http/compress.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

t.setTimeout(120_000);
const ROWS = 15_000;
/** COMPRESSED_COPIES sets how long the longest answer is, COMPRESSED_READS how many are compressed at the same time. */
const COPIES = Number(process.env['COMPRESSED_COPIES'] ?? 12);
const TOGETHER = Number(process.env['COMPRESSED_READS'] ?? 500);
const MEBIBYTE = 1_048_576;

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'compression');
const plain = await startTestService({ databaseUrl });
await withSql(databaseUrl, (sql) =>
  sql
    .unsafe(`
      create table notes (id integer primary key, label text not null, text text not null);
      insert into notes select n, 'note ' || n, repeat(md5(n::text), 3) from generate_series(1, ${ROWS}) n;
      create view fragile as select id, 1 / (10000 - id) as part from notes;
      create view vast as
        select id, md5(id || 'a' || copy) || md5(id || 'b' || copy) || md5(id || 'c' || copy) as text
        from notes, generate_series(1, ${COPIES}) copy;
      insert into service_collections (collection, primary_key) values ('fragile', 'id'), ('vast', 'id');
      analyze;`)
    .simple(),
);
const service = await startTestService({ databaseUrl, COMPRESSION: 'brotli,gzip' });
const observer = connectSql(databaseUrl);
t.teardown(() => observer.end());
await waitFor(async () => (await get(plain, '/items/notes/1')).status === 200, 20_000);

t.test('an Accept-Encoding is read as RFC 9110 says', async (t) => {
  const cases: readonly [header: string, encoding: 'gzip' | 'brotli' | null, always?: boolean][] = [
    ['', null],
    ['gzip', 'gzip'],
    ['GZip', 'gzip'],
    ['x-gzip', 'gzip'],
    ['br', 'brotli'],
    ['gzip, deflate, br', 'brotli'],
    ['gzip;q=1.0, br;q=0.9', 'gzip'],
    ['gzip;q=0, br;q=0', null],
    ['gzip;q=0.001', 'gzip'],
    ['deflate', null],
    ['*', 'brotli'],
    ['*;q=0.5, br;q=0', 'gzip'],
    ['*;q=0', null],
    ['gzip, *;q=0', 'gzip', true],
    ['identity', null],
    ['identity;q=0', null],
    ['identity;q=0, gzip', 'gzip', true],
    ['identity;q=0.9, gzip;q=0.5', null],
    ['identity;q=0.5, gzip;q=0.5', 'gzip'],
    ['gzip;q=2', null],
    ['gzip;q=0.1234', null],
    ['gzip;q=-1, br;q=nan', null],
    ['gzip;level=3', null],
    [' gzip ; q=0.5 ', 'gzip'],
    [';q=1,,;,q', null],
    ['gzip;;q=1', null],
    ['"gzip"', null],
  ];
  for (const [header, encoding, always = false] of cases) {
    t.strictSame(negotiateEncoding(header, ['brotli', 'gzip']), encoding && { name: encoding, always }, `"${header}"`);
  }
  t.equal(negotiateEncoding('gzip, br', ['gzip', 'brotli'])?.name, 'gzip', 'the operator breaks a tie');
});

t.test('the body that arrives is the same in every coding', async (t) => {
  const document = '{ notes(limit: 200) { id label text } }';
  const asked: readonly [title: string, path: string, method?: string, body?: string][] = [
    ['a list', '/items/notes?limit=500'],
    ['a large list', '/items/notes?limit=9000'],
    ['an item', '/items/notes/1?fields=id,text,label&alias[again]=text&alias[more]=text'],
    ['SEARCH', '/items/notes', 'SEARCH', '{"query":{"limit":500}}'],
    ['a stream', '/items/notes?limit=-1'],
    ['a stream with counts', '/items/notes?limit=-1&meta=*'],
    ['a stream of nothing', '/items/notes?limit=-1&filter[id][_eq]=0'],
    ['JSON export', '/items/notes?export=json&limit=-1'],
    ['CSV export', '/items/notes?export=csv&limit=-1'],
    ['NDJSON export', '/items/notes?export=ndjson&limit=-1'],
    ['XML export', '/items/notes?export=xml&limit=2000'],
    ['GraphQL', '/graphql', 'POST', JSON.stringify({ query: document })],
    ['GraphQL by URL', `/graphql?query=${encodeURIComponent(document)}`],
  ];
  for (const [title, path, method = 'GET', body] of asked) {
    const expected = await send(plain, method, path, {}, body);
    t.equal(expected.headers['content-encoding'], undefined);
    t.equal(expected.headers.vary, undefined, `${title}: off, nothing varies`);
    for (const [header, coding] of [
      ['gzip', 'gzip'],
      ['gzip, br', 'br'],
    ] as const) {
      const answer = await send(service, method, path, { 'accept-encoding': header }, body);
      const isSmall = expected.bytes.length < 1_024 && expected.headers['content-length'] !== undefined;
      t.equal(answer.status, 200);
      t.equal(answer.headers['content-encoding'], isSmall ? undefined : coding, `${title}: ${coding}`);
      t.match(answer.headers.vary, /accept-encoding/i);
      t.equal(answer.headers['content-type'], expected.headers['content-type']);
      t.equal(answer.headers['content-disposition'], expected.headers['content-disposition']);
      t.ok(decode(answer).equals(expected.bytes), `${title}: the same bytes`);
      if (expected.bytes.length > 20_000)
        t.ok(answer.bytes.length < expected.bytes.length * 0.7, 'and fewer on the way');
    }
    const declined = await send(service, method, path, {}, body);
    t.equal(declined.headers['content-encoding'], undefined, `${title}: not for a client that does not ask`);
    t.match(declined.headers.vary, /accept-encoding/i);
    t.ok(declined.bytes.equals(expected.bytes));
  }
});

t.test('small bodies, secrets and files stay as they are', async (t) => {
  const headers = { 'accept-encoding': 'gzip' };
  const small = await send(service, 'GET', '/items/notes/1', headers);
  t.equal(small.headers['content-encoding'], undefined);
  t.match(small.headers.vary, /accept-encoding/i);
  const insisting = await send(service, 'GET', '/items/notes/1', { 'accept-encoding': 'identity;q=0, gzip' });
  t.equal(insisting.headers['content-encoding'], 'gzip', 'unless the client refuses them');
  t.ok(decode(insisting).equals(small.bytes));
  const refused = await send(service, 'GET', '/items/missing', { 'accept-encoding': 'identity;q=0, br' });
  t.equal(refused.status, 403);
  t.equal(JSON.parse(decode(refused).toString()).errors[0].extensions.code, 'FORBIDDEN', 'an error can be compressed');
  const nothing = await send(service, 'GET', '/items/missing', { 'accept-encoding': 'identity;q=0' });
  t.equal(nothing.status, 403);
  t.equal(nothing.headers['content-encoding'], undefined, 'there is nothing better to offer');
  const always = await startTestService({ databaseUrl, COMPRESSION: 'gzip', COMPRESSION_MIN_SIZE: '0' });
  t.equal((await send(always, 'GET', '/items/notes/1', headers)).headers['content-encoding'], 'gzip');
  t.equal(
    (await send(always, 'GET', '/items/notes/1', { 'accept-encoding': 'br' })).headers['content-encoding'],
    undefined,
  );
  const login = JSON.stringify({ email: 'admin@example.com', password: 'wrong' });
  const failed = await send(always, 'POST', '/auth/login', headers, login);
  t.equal(failed.status, 401);
  const page = await send(always, 'GET', '/graphql', { ...headers, accept: 'text/html' });
  t.equal(page.status, 200);
  t.equal(page.headers['content-encoding'], undefined, 'the IDE');
  const written = await send(always, 'PATCH', '/items/notes/1', headers, '{"label":"note 1"}');
  t.equal(JSON.parse(decode(written).toString()).data.label, 'note 1', 'the answer to a write');
});

t.test('each coding has its tag, and either spares the transfer', async (t) => {
  const path = '/items/notes?limit=100';
  const bare = String((await send(service, 'GET', path)).headers.etag);
  const zipped = await send(service, 'GET', path, { 'accept-encoding': 'gzip' });
  const tag = String(zipped.headers.etag);
  t.equal(tag, bare.replace(/"$/, '-gzip"'));
  t.equal(bare, (await send(plain, 'GET', path)).headers.etag);
  const asked: readonly [held: string, accept: string, tag: string][] = [
    [tag, 'gzip', tag],
    [`W/${tag}`, 'gzip', tag],
    [bare, 'gzip', bare],
    [tag, '', tag],
    [`"other", ${bare}, ${tag}`, 'gzip', tag],
    [`"other", ${bare}, ${tag}`, '', bare],
    ['*', 'gzip', bare],
  ];
  for (const [held, accept, expected] of asked) {
    const answer = await send(service, 'GET', path, { 'if-none-match': held, 'accept-encoding': accept });
    t.equal(answer.status, 304, `${held} by "${accept}"`);
    t.equal(answer.headers.etag, expected);
    t.equal(answer.headers['content-encoding'], undefined);
    t.match(answer.headers.vary, /accept-encoding/i);
    t.equal(answer.bytes.length, 0);
  }
  const other = await send(service, 'GET', path, { 'if-none-match': '"other-gzip"', 'accept-encoding': 'gzip' });
  t.equal(other.status, 200);
  t.equal((await send(plain, 'GET', path, { 'if-none-match': tag })).status, 304, 'also after it was turned off');

  const file = '/graphql/ide/assets/i18n/en-US.json';
  const zippedFile = await send(service, 'GET', file, { 'accept-encoding': 'gzip' });
  const bareFile = await send(service, 'GET', file);
  t.equal(zippedFile.headers['content-encoding'], 'gzip');
  t.equal(zippedFile.headers.etag, String(bareFile.headers.etag).replace(/"$/, '-gzip"'), 'files of the IDE too');
  t.equal(zippedFile.headers.vary, 'Accept, Accept-Encoding');
  const held = { 'if-none-match': String(zippedFile.headers.etag), 'accept-encoding': 'gzip' };
  const again = await send(service, 'GET', file, held);
  t.match(again, { status: 304, headers: { etag: zippedFile.headers.etag, vary: 'Accept, Accept-Encoding' } });
});

t.test('HEAD says what GET would', async (t) => {
  for (const path of ['/items/notes?limit=500', '/items/notes?limit=-1', '/items/notes/1', '/items/notes?export=csv']) {
    const headers = { 'accept-encoding': 'gzip' };
    const [head, got] = [await send(service, 'HEAD', path, headers), await send(service, 'GET', path, headers)];
    t.equal(head.status, 200);
    t.equal(head.bytes.length, 0);
    for (const name of ['content-encoding', 'etag', 'vary', 'content-type']) {
      t.equal(head.headers[name], got.headers[name], `${path}: ${name}`);
    }
    const length = head.headers['content-length'];
    t.ok(length === undefined || length === got.headers['content-length'], 'a length is right or not there');
  }
});

t.test('a connection serves one coding after another', async (t) => {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const expected = (await send(plain, 'GET', '/items/notes?limit=2000')).bytes;
  for (const header of ['gzip', '', 'br', 'gzip', 'br', '']) {
    const answer = await send(
      service,
      'GET',
      '/items/notes?limit=2000',
      { 'accept-encoding': header },
      undefined,
      agent,
    );
    t.ok(decode(answer).equals(expected), `"${header}"`);
  }
  agent.destroy();
});

t.test('answers that are compressed at the same time do not mix', async (t) => {
  const read = async (key: number): Promise<boolean> => {
    const path = `/items/notes?filter[id][_gte]=${key}&sort=id&limit=${10 + (key % 30)}`;
    const coding = { 'accept-encoding': key % 2 === 0 ? 'gzip' : 'br' };
    const answer = await send(service, 'GET', path, coding, undefined, agent);
    const { data } = JSON.parse(decode(answer).toString()) as { data: { id: number }[] };
    return answer.headers['content-encoding'] !== undefined && data.every(({ id }, position) => id === key + position);
  };
  const agent = new Agent({ keepAlive: true, maxSockets: 32 });
  const right = await Promise.all(Array.from({ length: TOGETHER }, (_, index) => read(1 + index * 7)));
  t.equal(right.filter((each) => each).length, TOGETHER);
  agent.destroy();
});

t.test('the first rows can be read while the rest is produced, and a failure breaks the transfer', async (t) => {
  for (const [header, decoder] of [
    ['gzip', createGunzip()],
    ['br', createBrotliDecompress()],
  ] as const) {
    const response = await open('/items/fragile?limit=-1', header);
    t.equal(response.headers['content-encoding'], header);
    let text = '';
    decoder.on('data', (bytes: Buffer) => {
      text += bytes;
    });
    decoder.on('error', () => {});
    response.pipe(decoder);
    await t.rejects(once(response, 'end'), { code: 'ECONNRESET' });
    t.match(text, /^\{"data":\[\{"id":1,/, 'the rows before it');
    t.throws(() => JSON.parse(text), 'and no valid end');
  }
  const early = await send(service, 'GET', '/items/fragile?limit=-1&filter[id][_gte]=10000', {
    'accept-encoding': 'gzip',
  });
  t.ok(early.status >= 400, 'before the first row it is an ordinary error');
  t.ok(JSON.parse(decode(early).toString()).errors);
  t.equal((await get(service, '/items/notes/1')).status, 200);
});

t.test('a client that leaves ends the statement', async (t) => {
  for (const header of ['gzip', 'br']) {
    const response = await open('/items/vast?limit=-1', header);
    await once(response, 'data');
    t.equal(await readersOfVast(), 1, 'the stream holds one backend');
    response.destroy();
    t.ok((await waitFor(async () => (await readersOfVast()) === 0, 10_000)) < 10_000, header);
  }
});

t.test('pieces that a slow client does not read are not produced', async (t) => {
  const response = await open('/items/vast?limit=-1', 'gzip');
  response.pause();
  const before = process.memoryUsage().rss;
  // Suspended between two batches, and so again a moment later.
  const isSuspended = async (): Promise<boolean> => {
    for (let count = 0; count < 10; count++) {
      const [row] = await observer`
        select wait_event from pg_stat_activity
        where datname = current_database() and application_name like 'lateral%' and state <> 'idle' and query like '%"vast"%'`;
      if (row?.['wait_event'] !== 'ClientRead') return false;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return true;
  };
  t.ok((await waitFor(isSuspended, 30_000)) < 30_000, 'PostgreSQL waits for the client');
  const growth = (process.memoryUsage().rss - before) / MEBIBYTE;
  t.ok(growth < 64, `memory grew by ${growth.toFixed(1)} MiB`);
  const decoder = response.pipe(createGunzip());
  let rows = 0;
  for await (const bytes of decoder) for (const byte of bytes as Buffer) if (byte === 0x7b) rows++;
  t.equal(rows, 1 + ROWS * COPIES, 'and all rows arrive in the end');
});

t.test('options that make no sense end the start', async (t) => {
  for (const value of ['deflate', 'gzip,deflate', 'gzip,gzip', ',']) {
    await t.rejects(startTestService({ databaseUrl, COMPRESSION: value }), { message: /^COMPRESSION: must be/ }, value);
  }
  const off = await startTestService({ databaseUrl, COMPRESSION: 'off' });
  const answer = await request(off, 'GET', '/items/notes?limit=500', { headers: { 'accept-encoding': 'gzip' } });
  t.equal(answer.headers['content-encoding'], undefined);
  t.equal(answer.headers.vary, undefined);
});

interface Received {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
}

async function send(
  { url }: { readonly url: string },
  method: string,
  path: string,
  headers: Readonly<Record<string, string>> = {},
  body?: string,
  agent: Agent | false = false,
): Promise<Received> {
  const type = body === undefined ? {} : { 'content-type': 'application/json' };
  const outgoing = openRequest(`${url}${path}`, {
    agent,
    method,
    headers: { authorization: `Bearer ${ADMIN_TOKEN}`, ...type, ...headers },
  });
  outgoing.end(body);
  const [incoming] = (await once(outgoing, 'response', { signal: AbortSignal.timeout(30_000) })) as [IncomingMessage];
  const bytes = Buffer.concat((await incoming.toArray({ signal: AbortSignal.timeout(30_000) })) as Buffer[]);
  return { status: incoming.statusCode ?? 0, headers: incoming.headers, bytes };
}

/** A response of the compressing service as soon as its head has arrived. */
async function open(path: string, encoding: string): Promise<IncomingMessage> {
  const headers = { authorization: `Bearer ${ADMIN_TOKEN}`, 'accept-encoding': encoding };
  const outgoing = openRequest(`${service.url}${path}`, { agent: false, headers });
  outgoing.on('error', () => {});
  outgoing.end();
  const [response] = (await once(outgoing, 'response', { signal: AbortSignal.timeout(30_000) })) as [IncomingMessage];
  response.on('error', () => {});
  return response;
}

function decode({ headers, bytes }: Received): Buffer {
  if (headers['content-encoding'] === 'gzip') return gunzipSync(bytes);
  return headers['content-encoding'] === 'br' ? brotliDecompressSync(bytes) : bytes;
}

async function readersOfVast(): Promise<number> {
  const [row] = await observer`
    select count(*)::int as count from pg_stat_activity
    where datname = current_database() and application_name like 'lateral%' and state <> 'idle' and query like '%"vast"%'`;
  return row?.['count'];
}
