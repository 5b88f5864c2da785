/** How much may be asked: per address, by all together, and of the login; and what a client is told then. */
import { Agent } from 'node:http';
import t from 'tap';
import { networkOf, normalizeAddress } from '../../../src/server/access/addresses.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { failure, login, makeUser, PASSWORD, post } from '../../support/users.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'limiter');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const proxied = { databaseUrl, IP_TRUST_PROXY: 'loopback', LOGIN_STALL_TIME: '0' };

const from = (address: string): RequestOptions => ({ headers: { 'x-forwarded-for': address } });

t.test('off by default', async (t) => {
  const service = await startTestService({ databaseUrl });
  const answers = await Promise.all(Array.from({ length: 120 }, () => get(service, '/server/ping')));
  t.ok(answers.every(({ status }) => status === 200));
  t.match(await get(service, '/server/info'), { json: { data: { rateLimit: false, rateLimitGlobal: false } } });
});

t.test('without a proxy, the address is that of the socket', async (t) => {
  const service = await startTestService({
    databaseUrl,
    WORKERS: '1',
    RATE_LIMITER_ENABLED: 'true',
    RATE_LIMITER_POINTS: '2',
    RATE_LIMITER_DURATION: '60',
  });
  const agents = ['127.0.0.2', '127.0.0.3'].map((localAddress) => new Agent({ keepAlive: true, localAddress }));
  t.teardown(() => {
    for (const agent of agents) agent.destroy();
  });
  for (const expected of [200, 200, 429])
    for (const agent of agents)
      t.equal(
        (await get(service, '/items/tags?limit=1', { agent, headers: { 'x-forwarded-for': '9.9.9.9' } })).status,
        expected,
      );
});

t.test('each address has its own count, which begins anew', async (t) => {
  const service = await startTestService({
    ...proxied,
    RATE_LIMITER_ENABLED: 'true',
    RATE_LIMITER_POINTS: '4',
    RATE_LIMITER_DURATION: '2',
  });
  const asked = ['/server/ping', '/items/tags', '/nothing', '/items/tags?limit=x'];
  const statuses = await Promise.all(asked.map((path) => get(service, path, from('192.0.2.1'))));
  t.strictSame(
    statuses.map(({ status }) => status),
    [200, 200, 404, 400],
    'whatever is asked counts',
  );
  const refused = await get(service, '/server/ping', from('192.0.2.1'));
  t.match(refused, failure(429, 'REQUESTS_EXCEEDED'));
  const [error] = (refused.json as { errors: [{ message: string; extensions: Record<string, unknown> }] }).errors;
  t.match(error.message, /^Too many requests, retry after \d+ms\.$/);
  t.equal(error.extensions['limit'], 4);
  t.match(error.extensions['reset'], /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
  t.ok(['1', '2'].includes(refused.headers['retry-after'] ?? ''), `Retry-After: ${refused.headers['retry-after']}`);
  t.match(await get(service, '/server/ping', from('192.0.2.2')), { status: 200 }, 'another address is another matter');
  t.match(await get(service, '/server/ping', from('192.0.2.1')), { status: 429 });
  t.match(await get(service, '/server/info', from('192.0.2.3')), {
    json: { data: { rateLimit: { points: 4, duration: 2 }, rateLimitGlobal: false } },
  });
  await waitFor(async () => (await get(service, '/server/ping', from('192.0.2.1'))).status === 200, 10_000);
});

t.test('an address that nobody trusted has named is the one of the socket', async (t) => {
  const service = await startTestService({
    databaseUrl,
    RATE_LIMITER_ENABLED: 'true',
    RATE_LIMITER_POINTS: '2',
    RATE_LIMITER_DURATION: '60',
  });
  const answers: Answer[] = [];
  for (const address of ['192.0.2.1', '192.0.2.2', '192.0.2.3'])
    answers.push(await get(service, '/server/ping', from(address)));
  t.strictSame(
    answers.map(({ status }) => status),
    [200, 200, 429],
  );
});

t.test('a header of its own, and proxies by number', async (t) => {
  const limits = { RATE_LIMITER_ENABLED: 'true', RATE_LIMITER_POINTS: '1', RATE_LIMITER_DURATION: '60' };
  const named = await startTestService({ ...proxied, ...limits, IP_CUSTOM_HEADER: 'X-Client' });
  const asClient = (address: string): RequestOptions => ({ headers: { 'x-client': address } });
  t.match(await get(named, '/server/ping', asClient('192.0.2.1')), { status: 200 });
  t.match(await get(named, '/server/ping', asClient('192.0.2.2')), { status: 200 });
  t.match(await get(named, '/server/ping', asClient('192.0.2.1')), { status: 429 });
  t.match(await get(named, '/server/ping', asClient('[2001:db8::1]:4711')), { status: 200 });
  t.match(await get(named, '/server/ping', asClient('2001:db8::ffff')), { status: 429 }, 'of the same network');
  const counted = await startTestService({ databaseUrl, ...limits, IP_TRUST_PROXY: '2' });
  t.match(await get(counted, '/server/ping', from('10.9.9.9, 192.0.2.1, 10.0.0.1')), { status: 200 });
  t.match(await get(counted, '/server/ping', from('10.8.8.8, 192.0.2.1, 10.0.0.2')), { status: 429 });
  await t.rejects(startTestService({ databaseUrl, IP_CUSTOM_HEADER: 'X-Client' }), /IP_TRUST_PROXY/);
  await t.rejects(startTestService({ databaseUrl, IP_TRUST_PROXY: '10.0.0.0/99' }), /not an address, network or range/);
});

t.test('all addresses together', async (t) => {
  const service = await startTestService({
    ...proxied,
    RATE_LIMITER_ENABLED: 'true',
    RATE_LIMITER_POINTS: '3',
    RATE_LIMITER_DURATION: '60',
    RATE_LIMITER_GLOBAL_ENABLED: 'true',
    RATE_LIMITER_GLOBAL_POINTS: '5',
    RATE_LIMITER_GLOBAL_DURATION: '60',
  });
  const flood = await Promise.all(Array.from({ length: 20 }, () => get(service, '/server/ping', from('192.0.2.1'))));
  t.equal(flood.filter(({ status }) => status === 200).length, 3);
  t.match(await get(service, '/server/ping', from('192.0.2.2')), { status: 200 }, 'who was refused uses up nothing');
  t.match(await get(service, '/server/ping', from('192.0.2.3')), { status: 200 });
  const refused = await get(service, '/server/ping', from('192.0.2.4'));
  t.match(refused, {
    status: 429,
    json: { errors: [{ extensions: { limit: 5, option: /^RATE_LIMITER_.*POINTS$/ } }] },
  });
});

t.test('guessing passwords has a limit of its own, which the owner does not meet', async (t) => {
  const { email } = await makeUser(sql, 'limited');
  const service = await startTestService({ ...proxied, RATE_LIMITER_LOGIN_POINTS: '3' });
  const attempt = (address: string, password = 'nope'): Promise<Answer> =>
    login(service, email, { password }, from(address));
  for (let index = 0; index < 6; index++) t.match(await attempt('192.0.2.1', PASSWORD), { status: 200 });
  const guesses = await Promise.all(Array.from({ length: 8 }, () => attempt('192.0.2.1')));
  t.equal(guesses.filter(({ status }) => status === 401).length, 3, 'also when they come together');
  t.equal(guesses.filter(({ status }) => status === 429).length, 5);
  const refused = await attempt('192.0.2.1', PASSWORD);
  t.match(refused, failure(429, 'REQUESTS_EXCEEDED'));
  t.match(refused.headers['retry-after'], /^\d+$/);
  t.match(await attempt('192.0.2.2', PASSWORD), { status: 200 });
  t.match(await get(service, '/items/tags', from('192.0.2.1')), { status: 200 }, 'all else goes on');
  const ask = (): Promise<Answer> => post(service, '/auth/password/request', { email }, from('192.0.2.5'));
  t.strictSame(
    (await Promise.all([ask(), ask(), ask(), ask()])).map(({ status }) => status).sort(),
    [204, 204, 204, 429],
    'nobody is flooded with mails',
  );
});

t.test('bodies arrive whole behind a limit', async (t) => {
  const service = await startTestService({ ...proxied, RATE_LIMITER_ENABLED: 'true', RATE_LIMITER_POINTS: '1000' });
  const rows = Array.from({ length: 20_000 }, (_, index) => `{"name":"Tag ${index}"}`).join('\n');
  const imported = await request(service, 'POST', '/utils/import/tags', {
    headers: { 'content-type': 'application/x-ndjson', authorization: `Bearer ${ADMIN_TOKEN}` },
    body: rows,
  });
  t.match(imported, { status: 200, json: { data: { imported: 20_000 } } });
  const body = JSON.stringify({ query: { filter: { name: { _in: ['Tag 1', 'x'.repeat(200_000)] } } } });
  const found = await request(service, 'SEARCH', '/items/tags', {
    headers: { 'content-type': 'application/json' },
    body,
  });
  t.match(found, { status: 200, json: { data: [{ name: 'Tag 1' }] } });
});

t.test('addresses have one spelling, and IPv6 ones a network', async (t) => {
  const cases: readonly (readonly [text: string, address: string, network: string])[] = [
    ['192.0.2.1', '192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1', '192.0.2.1'],
    ['0000:0000:0000:0000:0000:ffff:c000:0201', '192.0.2.1', '192.0.2.1'],
    ['2001:0DB8:0000:0000:0000:0000:0000:0001', '2001:db8::1', '2001:db8:0:0'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
    ['::1', '::1', '0:0:0:0'],
    ['fe80::1%eth0', 'fe80::1', 'fe80:0:0:0'],
    ['nonsense', '', ''],
    ['1.2.3', '', ''],
    ['', '', ''],
  ];
  for (const [text, address, network] of cases) {
    t.equal(normalizeAddress(text), address, text);
    t.equal(networkOf(normalizeAddress(text)), network, text);
  }
});
