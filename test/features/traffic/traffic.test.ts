/** Recording and replaying the traffic of a service: nothing secret in the file, the same shapes, rates and statuses in the replay. */
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { gunzipSync, gzipSync } from 'node:zlib';
import t from 'tap';
import {
  headerLine,
  type RecordedRequest,
  requestLine,
  TrafficReader,
} from '../../../src/features/traffic/traffic-file.js';
import { makeCaller } from '../../support/callers.js';
import { runCommand } from '../../support/command.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  makeFolder,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { countsOf, type MixedRequest, rateOf, recordRaw, sendMix } from '../../support/traffic-mix.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'traffic');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql`alter table authors add column ssn text`;
await sql`insert into service_fields (collection, field, special) values ('authors', 'ssn', 'conceal')`;
await sql`create table vaults (code text primary key, title text)`;
await sql`insert into service_fields (collection, field, special) values ('vaults', 'code', 'conceal')`;
await sql`alter table tags add column vault text references vaults, add column "pin/no" text`;
await sql`insert into service_fields (collection, field, special) values ('tags', 'pin/no', 'conceal')`;
const READABLE = ['articles', 'authors', 'comments', 'tags'];
const reader = await makeCaller(sql, 'reader', [
  { permissions: READABLE.map((collection) => ({ collection, action: 'read' })) },
]);
const writer = await makeCaller(sql, 'writer', [
  {
    permissions: [
      { collection: 'articles', action: 'read', permissions: { status: { _eq: 'published' } } },
      { collection: 'tags', action: 'read' },
      { collection: 'tags', action: 'create' },
    ],
  },
]);
const service = await startTestService({ databaseUrl, WORKERS: '2' });
const folder = await makeFolder();
const credentials = ['--url', service.url, '--token', ADMIN_TOKEN];

/** Sixty shapes over the library: reads by key and by filter, of several callers, GraphQL and SEARCH. */
function mix(): MixedRequest[] {
  const tokens = [ADMIN_TOKEN, reader.token, writer.token];
  const fields = ['id', 'title', 'status', 'views', 'rating', 'slug'];
  const lists = fields.flatMap((field, index) => [
    `/items/articles?fields=id,${field}&sort=${field}&limit=${index + 1}`,
    `/items/articles/${(index % 3) + 1}?fields=${field}`,
    `/items/articles?filter[${field}][_nnull]=true&fields=${field}`,
    `/items/articles?aggregate[count]=${field}&groupBy=status`,
    `/items/comments?fields=id,article.${field}&limit=${index + 1}`,
  ]);
  const reads = lists.flatMap((path, index) => [
    { method: 'GET', path, token: tokens[index % 3] ?? null },
    { method: 'GET', path: `${path}&search=${index % 2 ? 'a' : 'b'}`, token: tokens[(index + 1) % 3] ?? null },
  ]);
  const graphql = fields.map((field) => ({
    method: 'POST',
    path: '/graphql',
    body: JSON.stringify({ query: `{ articles(limit: 2) { id ${field} } }` }),
    token: reader.token,
  }));
  const searches = fields.map((field) => ({
    method: 'SEARCH',
    path: '/items/articles',
    body: JSON.stringify({ query: { fields: ['id', field], filter: { id: { _lt: 3 } } } }),
    token: reader.token,
  }));
  const refused = [
    { method: 'GET', path: '/items/authors', token: null },
    { method: 'GET', path: '/items/authors', token: writer.token },
    { method: 'GET', path: '/items/articles/99999', token: reader.token },
    { method: 'GET', path: '/items/articles?filter[nothing][_eq]=1', token: reader.token },
  ];
  return [...reads, ...graphql, ...searches, ...refused];
}

const SECONDS = Number(process.env['TRAFFIC_SECONDS'] ?? 3);
const RATE = Number(process.env['TRAFFIC_RATE'] ?? 100);

t.test('a recording is replayed with the same shapes, statuses and rate', async (t) => {
  const requests = mix();
  // Statements are compiled once before: what is measured is the usual work.
  t.ok((await sendMix(service.url, requests, 200, requests.length / 200)).every((status) => status > 0));
  const file = join(folder, 'mix.lateral');
  const recording = runCommand(['record', ...credentials, '--for', `${SECONDS + 3}s`, '-o', file]);
  await waitFor(async () => (await countRecordings()) > 0, 5_000);
  const statuses = await sendMix(service.url, requests, RATE, SECONDS);
  t.match(await recording, { code: 0, complaints: /requests of \d+ shapes/ });
  const recorded = await readFile(file);
  t.strictSame([...recorded.subarray(0, 2)], [0x1f, 0x8b], 'compressed');
  const first = linesOf(recorded);
  const ours = first.filter(({ path }) => !path.startsWith('/server'));
  t.equal(ours.length, statuses.length, 'all requests');
  t.ok(new Set(ours.map(({ shape }) => shape)).size >= 60, `${new Set(ours.map(({ shape }) => shape)).size} shapes`);
  t.ok(
    ours.every(({ stages, status }) => status !== 200 || stages !== undefined),
    'stages',
  );
  const again = recordRaw(service.url, (SECONDS + 3) * 1_000);
  const json = await runCommand(['replay', file, ...credentials, '--json', '--slo', 'p99=5s,errors=0%,status=0%']);
  t.equal(json.code, 0, json.output + json.complaints);
  const result = JSON.parse(json.output);
  t.match(result, { ok: true, replayed: [{ requests: ours.length, errors: 0, different_status: 0 }] });
  const second = (await again).recorded.filter(({ path }) => !path.startsWith('/server'));
  const [before, after] = [countsOf(ours), countsOf(second)];
  for (const [key, count] of before)
    t.ok(Math.abs((after.get(key) ?? 0) - count) <= count / 100, `${key}: ${after.get(key)} of ${count}`);
  t.equal(after.size, before.size, 'no other shapes');
  t.ok(Math.abs(rateOf(second) / rateOf(ours) - 1) < 0.02, `${rateOf(second)}/s, recorded ${rateOf(ours)}/s`);
  t.strictSame(callersOf(second), callersOf(ours), 'as the recorded callers');
});

async function countRecordings(): Promise<number> {
  const { text } = await get(service, '/server/metrics');
  return Number(/^lateral_traffic_recordings (\d+)$/m.exec(text)?.[1]);
}

function callersOf(requests: readonly RecordedRequest[]): string[] {
  return [...new Set(requests.map(({ user }) => String(user)))].sort();
}

function linesOf(file: Buffer): RecordedRequest[] {
  const reader = new TrafficReader('the file');
  for (const line of gunzipSync(file).toString().split('\n')) reader.add(line);
  return [...reader.finish().recorded];
}

t.test('only administrators record, and bad numbers are refused', async (t) => {
  t.match(await get(service, '/server/traffic', { token: null }), { status: 403 });
  t.match(await get(service, '/server/traffic', { token: reader.token }), { status: 403 });
  t.match(await get(service, '/server/traffic', { headers: { 'lateral-view-as': 'public' } }), { status: 403 });
  for (const query of ['for=0s', 'for=2h', 'for=x', 'for=-1s', 'sample=0', 'sample=1.1', 'sample=x', 'sample=-1'])
    t.match(
      await get(service, `/server/traffic?${query}`),
      { status: 400, json: { errors: [{ message: /"(for|sample)"/ }] } },
      query,
    );
});

t.test('a recording ends when its client leaves, and there are four at most', async (t) => {
  const clients = Array.from({ length: 4 }, () => new AbortController());
  const begin = async (signal: AbortSignal): Promise<Response> =>
    fetch(`${service.url}/server/traffic?for=1m`, { signal, headers: { Authorization: `Bearer ${ADMIN_TOKEN}` } });
  const open = await Promise.all(clients.map(({ signal }) => begin(signal)));
  t.strictSame(
    open.map(({ status }) => status),
    [200, 200, 200, 200],
  );
  await waitFor(async () => (await get(service, '/server/traffic?for=1s')).status === 503, 5_000);
  for (const client of clients) client.abort();
  for (const { body } of open) await body?.cancel().catch(() => {});
  await waitFor(async () => (await countRecordings()) === 0, 5_000);
  t.match(await get(service, '/server/traffic?for=1s'), { status: 200, text: /"end":true/ });
});

const CANARY = 'canary-value';
const CANARY_CURSOR = Buffer.from(`["${CANARY}"]`).toString('base64url');

/** Secrets in every part of a request that may carry one. */
async function sendSecrets(): Promise<number> {
  const encoded = encodeURIComponent(JSON.stringify({ authors: { ssn: { _eq: CANARY } } }));
  const json = (body: unknown): string => JSON.stringify(body);
  const requests: (readonly [method: string, path: string, body?: string])[] = [
    ['GET', `/items/tags?access_token=${CANARY}`],
    ['GET', `/items/tags?access%5Ftoken=${CANARY}`],
    ['GET', `/items/authors?filter[ssn][_eq]=${CANARY}`],
    ['GET', `/items/authors?filter%5Bs%73n%5D%5B_eq%5D=${CANARY}`],
    ['GET', `/items/articles?filter=${encoded}`],
    ['GET', `/items/authors?filter=${encodeURIComponent(`{"s\\u0073n":{"_eq":"${CANARY}"}}`)}`],
    ['GET', `/items/articles?deep[comments][_filter][author][ssn][_eq]=${CANARY}`],
    ['GET', `/items/vaults/${CANARY}`],
    ['GET', `/ITEMS/%76aults/${CANARY}/`],
    ['GET', `/items/vault/${CANARY}`],
    ['GET', `/items/vaults?cursor=${CANARY_CURSOR}`],
    ['GET', `/items/tags?sort=-vault&cursor=${CANARY_CURSOR}`],
    ['SEARCH', '/items/tags', json({ query: { sort: ['vault'], cursor: CANARY_CURSOR } })],
    ['GET', `/rpc/open_vaults?cursor=${CANARY_CURSOR}`],
    ['GET', `/revisions?filter[collection][_eq]=vaults&filter[item][_eq]=${CANARY}`],
    ['GET', `/items/tags?filter[vault][_eq]=${CANARY}`],
    ['GET', `/items/tags&access_token=${CANARY}`],
    ['GET', `/items/tags%3Faccess_token=${CANARY}`],
    ['GET', `/items/authors?filter%255Bssn%255D%255B_eq%255D=${CANARY}`],
    ['GET', `/items/tags?api-key=${CANARY}`],
    ['GET', `/items/tags?filter["pin/no"][_eq]=${CANARY}`],
    ['GET', `/items/authors?{"filter":{"ssn":{"_eq":"${CANARY}"}}}`],
    ['GET', `/items/authors?filter[ssn][${CANARY}]=`],
    ['SEARCH', '/items/vaults', json({ keys: [CANARY] })],
    ['PATCH', '/items/vaults', json({ keys: [CANARY], data: { title: 'x' } })],
    ['DELETE', '/items/vaults', json([CANARY])],
    ['POST', '/items/tags', json({ name: 'x', vault: CANARY })],
    ['POST', '/items/tags', json({ name: 'x', 'pin/no': CANARY })],
    ['GET', `/shares/${CANARY}`],
    ['GET', `/nowhere/${CANARY}`],
    ['GET', `/users?filter[token][_eq]=${CANARY}`],
    ['GET', `/users/register/verify-email?token=${CANARY}`],
    ['GET', `/rpc/log_in?password=${CANARY}`],
    ['GET', `/graphql?query={tags{id}}&variables=${encodeURIComponent(json({ password: CANARY }))}`],
    ['SEARCH', '/items/authors', json({ query: { filter: { _and: [{ ssn: { _eq: CANARY } }] } } })],
    ['POST', '/items/authors', json({ name: 'x', ssn: CANARY })],
    ['POST', '/items/authors', `{"name": "x", "s\\u0073n": "${CANARY}"}`],
    ['POST', '/items/authors', `{"name": "x", "ssn": "${CANARY}`],
    ['POST', '/items/comments', json([{ body: 'x', author: { name: 'y', ssn: CANARY } }])],
    ['PATCH', '/items/authors/1', json({ ssn: CANARY })],
    [
      'POST',
      '/transactions',
      json({ operations: [{ method: 'PATCH', path: '/items/authors/1', body: { ssn: CANARY } }] }),
    ],
    ...[
      { method: 'PATCH', path: `/items/vaults/${CANARY}`, body: { title: 'x' } },
      { method: 'PATCH', path: `/items/%76aults/${CANARY}`, body: { title: 'x' } },
      { method: 'DELETE', path: '/items/vaults', key: CANARY },
      { method: 'DELETE', path: '/items/vaults', body: [CANARY] },
      { method: 'PATCH', path: `/items/authors?filter[s%73n][_eq]=${CANARY}`, body: { name: 'x' } },
    ].map((operation) => ['POST', '/transactions', json({ operations: [operation] })] as const),
    ...[
      { query: `{ vaults_by_id(id: "${CANARY}") { title } }` },
      { query: `query ($id: ID!) { vaults_by_id # comment\n (id: $id) { title } }`, variables: { id: CANARY } },
      { query: `mutation { delete_vaults_items(ids: ["${CANARY}"]) { ids } }` },
      { query: `mutation { update_vaults_item(id: "${CANARY}", data: {title: "x"}) { title } }` },
      { query: `mutation { create_tags_item(data: {name: "x", vault: "${CANARY}"}) { id } }` },
      { query: `{ authors(filter: {ssn_func: {year: {_eq: "${CANARY}"}}}) { id } }` },
      { query: `mutation { create_tags_item(data: {name: "{\\"password\\": \\"${CANARY}\\"}"}) { id } }` },
      { query: `mutation { create_tags_item(data: {name: """{"password": "${CANARY}"}"""}) { id } }` },
      { query: `{ tags(filter: {name: {_eq: "password ${CANARY}}}) { id } }` },
      [{ variables: { id: CANARY }, extensions: { persistedQuery: { version: 1, sha256Hash: '0'.repeat(64) } } }],
      { variables: { id: CANARY }, extensions: { persistedQuery: { version: 1, sha256Hash: '0'.repeat(64) } } },
      [{ query: `mutation { create_authors_item(data: {ssn: "${CANARY}"}) { id } }` }],
    ].map((body) => ['POST', '/graphql', json(body)] as const),
    ['GET', `/graphql?query=${encodeURIComponent(`{ vaults_by_id(id: "${CANARY}") { title } }`)}`],
    ['GET', `/graphql?query[]=${encodeURIComponent(`query { authors(filter: {ssn: {_eq: "${CANARY}"}}) { id } }`)}`],
    ['GET', `/graphql?variables=${encodeURIComponent(json({ id: CANARY }))}&extensions={}`],
    [
      'POST',
      '/graphql',
      `{"query": "mutation { create_authors_item(data: {ssn: \\"${CANARY}\\"}) { id } }", "query": "{ tags { id } }"}`,
    ],
    ['POST', '/auth/login', json({ email: 'a@example.com', password: CANARY })],
    ['POST', '/auth/refresh', json({ refresh_token: CANARY })],
    ['POST', '/auth/password/reset', json({ token: CANARY, password: CANARY })],
    ['POST', '/users', json({ email: 'canary@example.com', password: CANARY })],
    ['PATCH', '/users/me', json({ password: CANARY, description: CANARY })],
    ['POST', '/users/me/tfa/generate', json({ password: CANARY })],
    ['POST', '/shares/auth', json({ share: 'x', password: CANARY })],
    ['POST', '/utils/hash/generate', json({ string: CANARY })],
    ['POST', '/rpc/log_in', json({ email: 'a@example.com', userPassword: CANARY })],
    [
      'POST',
      '/graphql/system',
      json({ query: `mutation { auth_login(email: "a@example.com", password: "${CANARY}") { access_token } }` }),
    ],
    ['POST', '/graphql/system', json({ query: `mutation { utils_hash_generate(string: "${CANARY}") }` })],
    ['POST', '/graphql', json({ query: `{ authors(filter: {ssn: {_eq: "${CANARY}"}}) { id } }` })],
    ['POST', '/graphql', json({ query: `{ authors(filter: {ssn # comment\n: {_eq: "${CANARY}"}}) { id } }` })],
    [
      'POST',
      '/graphql',
      json({
        query: 'mutation ($p: String) { create_authors_item(data: {name: "x", ssn: $p}) { id } }',
        variables: { p: CANARY },
      }),
    ],
    [
      'POST',
      '/graphql',
      json({
        query: 'mutation ($d: create_authors_input!) { create_authors_item(data: $d) { id } }',
        variables: { d: { name: 'x', ssn: CANARY } },
      }),
    ],
  ];
  for (const [method, path, body] of requests)
    await request(service, method, path, {
      ...(body === undefined ? {} : { body, headers: { 'content-type': 'application/json' } }),
    });
  await get(service, '/items/tags', { token: CANARY });
  await get(service, '/items/tags', { token: null, headers: { cookie: `lateral_session_token=${CANARY}` } });
  await get(service, '/items/tags', {
    headers: { prefer: `return="${CANARY}"`, 'idempotency-key': CANARY, 'x-request-id': CANARY },
  });
  await get(service, '/items/tags', { headers: { prefer: `canary=${CANARY}` } });
  return requests.length + 4;
}

t.test('no token, password or concealed value is in a recording, redacted or not', async (t) => {
  const begun = performance.now();
  await sendSecrets();
  const seconds = 2 + Math.ceil((3 * (performance.now() - begun)) / 1_000);
  for (const redact of [[], ['--redact']]) {
    const file = join(folder, 'secrets.lateral');
    const recording = runCommand(['record', ...credentials, '--for', `${seconds}s`, ...redact, '-o', file]);
    await waitFor(async () => (await countRecordings()) > 0, 5_000);
    const sent = await sendSecrets();
    await get(service, '/items/tags?filter[name][_eq]=harmless');
    t.match(await recording, { code: 0 });
    const text = gunzipSync(await readFile(file)).toString();
    const lines = linesOf(await readFile(file)).filter(({ path }) => !path.startsWith('/server'));
    t.equal(lines.length, sent + 1, 'every request is counted');
    const hidden = [CANARY, CANARY_CURSOR, ADMIN_TOKEN, reader.token];
    for (const secret of hidden)
      t.strictSame(
        text.split('\n').filter((line) => line.includes(secret)),
        [],
      );
    t.equal(
      lines.some(({ query }) => query?.includes('harmless') ?? false),
      redact.length === 0,
      'other values are, unless redacted',
    );
    t.match(
      lines.find(({ path }) => path === '/auth/login'),
      { omitted: 'route', status: 401 },
    );
    t.match(lines.filter(({ omitted }) => omitted === 'secret').length > 15, true);
    t.notOk(
      lines.some(({ query, body }) => `${query}${body}`.includes('ssn')),
      'nor the names of concealed fields with a value',
    );
  }
});

t.test('limits, reports and a comparison of two targets', async (t) => {
  const file = await recordingOf([
    { method: 'GET', path: '/items/tags', query: 'limit=1' },
    { method: 'GET', path: '/items/articles/1', query: 'fields=title' },
    { method: 'POST', path: '/items/tags', body: '{"name":"replayed"}', write: true, status: 204 },
    { method: 'POST', path: '/auth/login', omitted: 'route', status: 200 },
  ]);
  const [junit, html] = [join(folder, 'junit.xml'), join(folder, 'page.html')];
  const words = ['replay', file, ...credentials, '--rate', '50/s', '--for', '1s'];
  const missed = await runCommand([
    ...words,
    '--slo',
    'p99=1ms,errors=1%',
    '--junit',
    junit,
    '--html',
    html,
    '--compare',
    service.url,
  ]);
  t.equal(missed.code, 1, missed.complaints);
  t.match(missed.output, /all requests +50 .*\n.*MISSED .*p99=1ms/s);
  t.match(missed.output, /Left out: 1 \(writes: --writes.*1 \(routes/);
  t.match(missed.complaints, /1 s of 2 s: \d+ requests/, 'progress');
  t.match(await readFile(junit, 'utf8'), /<testsuite name="lateral replay" tests="8" failures="2">/);
  t.match(
    await readFile(html, 'utf8'),
    /^<!doctype html>[\s\S]*A limit was missed[\s\S]*\/items\/articles\/:key\?fields/,
  );
  t.notMatch(await readFile(html, 'utf8'), /src=|https?:\/\/(?!127)/, 'the page needs no other file');
  const [before] = await sql`select count(*)::int from tags where name = 'replayed'`;
  t.equal(before?.['count'], 0, 'no write was sent');
  const written = await runCommand([...words, '--writes', '--json']);
  const { replayed, shapes } = JSON.parse(written.output);
  t.match(replayed, [{ requests: 50, errors: 0 }], written.output);
  t.equal(shapes.length, 3);
  const [after] = await sql`select count(*)::int from tags where name = 'replayed'`;
  t.equal(after?.['count'], 16, 'every third request');
  t.equal((await runCommand([...words, '--slo', 'p99=30s,errors=0%'])).code, 0);
});

t.test('a shape fails in JUnit only if a limit asks for it, and errors have causes', async (t) => {
  const answers = createServer((request, response) => {
    if (request.url?.startsWith('/items/tags')) request.socket.destroy();
    else response.writeHead(request.url?.startsWith('/items') ? 503 : 200).end('{"data":[]}');
  }).listen(0, '127.0.0.1');
  await once(answers, 'listening');
  t.teardown(() => answers.close());
  const url = `http://127.0.0.1:${Object(answers.address()).port}`;
  const file = await recordingOf([{ path: '/items/tags' }, { path: '/items/articles', shape: 'abcdef0123456789' }]);
  const junit = join(folder, 'causes.xml');
  const words = ['replay', file, '--url', url, '--token', 'x', '--rate', '20/s', '--for', '1s', '--junit', junit];
  const free = await runCommand(words);
  t.match(free, { code: 0, output: /20 errors: 10 connection closed, 10 status 503\./ });
  t.match(free.output, /GET \/items\/articles +abcdef012345 +10 /, 'the digest of the shape');
  t.notMatch(free.output, /faster machine/);
  t.match(await readFile(junit, 'utf8'), /failures="0"/);
  t.equal((await runCommand([...words, '--slo', 'errors=1%'])).code, 1);
  t.match(await readFile(junit, 'utf8'), /tests="3" failures="3"/);
  t.match(await runCommand([...words, '--html', join(folder, 'none', 'x')]), { code: 2, complaints: /--html: .*none/ });
});

t.test('the time of the last responses does not lower the rate, but a backlog does', async (t) => {
  let free = Promise.resolve();
  const answers = createServer((request, response) => {
    const end = (): unknown => response.end('{"data":[]}');
    if (request.url?.startsWith('/items/tags')) void setTimeout(800).then(end);
    else if (!request.url?.startsWith('/items')) end();
    else
      free = free
        .then(() => setTimeout(100))
        .then(end)
        .then(() => undefined);
  }).listen(0, '127.0.0.1');
  await once(answers, 'listening');
  t.teardown(() => answers.close());
  const url = `http://127.0.0.1:${Object(answers.address()).port}`;
  const rateAt = async (path: string): Promise<number> => {
    const file = await recordingOf([{ path }]);
    const words = ['replay', file, '--url', url, '--token', 'x', '--rate', '20/s', '--for', '1s', '--json'];
    const { output } = await runCommand(words);
    return JSON.parse(output).replayed[0].rate;
  };
  const [slow, piledUp] = [await rateAt('/items/tags'), await rateAt('/items/articles')];
  t.ok(slow > 20 * 0.97, `${slow} of 20 requests per second with slow responses`);
  t.ok(piledUp < 20 * 0.8, `${piledUp} of 20 requests per second with a backlog`);
});

t.test('record and replay name the same factor for the rate of the service', async (t) => {
  const header = headerLine({ started: new Date(), sample: 0.5, service: '1.0.0' });
  const line = requestLine({ t: 5, method: 'GET', path: '/items/tags', status: 200, bytes: 1, ms: 1, ...asReader });
  const answers = createServer((request, response) => {
    const lines = [header, line, line, '{"end":true,"milliseconds":1000,"requests":2,"dropped":3}'];
    response.end(request.url?.startsWith('/server/traffic') ? `${lines.join('\n')}\n` : '{"data":[]}');
  }).listen(0, '127.0.0.1');
  await once(answers, 'listening');
  t.teardown(() => answers.close());
  const url = `http://127.0.0.1:${Object(answers.address()).port}`;
  const file = join(folder, 'dropped.lateral');
  const recorded = await runCommand(['record', '--url', url, '--token', 'x', '--for', '1s', '-o', file]);
  t.match(recorded, { code: 0, complaints: /left out 3 .*; lateral replay --rate 5x has the rate of the service/ });
  const replayed = await runCommand(['replay', file, '--url', url, '--token', 'x', '--rate', '20/s', '--for', '1s']);
  t.match(replayed, { code: 0, complaints: /lacks 3 requests.*sample of 0\.5 .*--rate 5x has the rate of the/s });
});

t.test('Ctrl-C ends a replay and a search without errors and recommendations', async (t) => {
  const file = await recordingOf([{ path: '/items/tags' }]);
  const interrupted = async (...words: string[]) => {
    const running = runCommand([...words, ...credentials]);
    await waitFor(async () => process.listenerCount('SIGINT') > listeners, 5_000);
    await setTimeout(500);
    // Only the listener of the command: the test itself goes on.
    process.listeners('SIGINT').at(-1)?.('SIGINT');
    return running;
  };
  const listeners = process.listenerCount('SIGINT');
  const replayed = await interrupted('replay', file, '--rate', '200/s', '--for', '30s', '--json');
  t.match(replayed, { code: 130 });
  t.match(JSON.parse(replayed.output), { ok: false, interrupted: true, replayed: [{ errors: 0 }] });
  const found = await interrupted('capacity', file, '--slo', 'p99=1s', '--from', '50/s');
  t.match(found, { code: 130, output: /^Interrupted: the search has not ended\.\n$/ });
});

/** A recording with these requests, one each ten milliseconds. */
async function recordingOf(requests: readonly Partial<RecordedRequest>[], header = HEADER): Promise<string> {
  const lines = requests.map((each, index) =>
    requestLine({
      t: index * 10,
      method: 'GET',
      path: '',
      status: 200,
      bytes: 1,
      ms: 1,
      ...asReader,
      ...each,
    }),
  );
  const file = join(folder, 'made.lateral');
  await writeFile(
    file,
    gzipSync([header, ...lines, '{"end":true,"milliseconds":100,"requests":4,"dropped":0}'].join('\n')),
  );
  return file;
}

const HEADER = headerLine({ started: new Date(), sample: 1, service: '1.0.0' });
const asReader = { user: reader.user, role: reader.role };

t.test('bad files, options and targets are refused with a reason', async (t) => {
  const made = await recordingOf([{ method: 'GET', path: '/items/tags' }]);
  const cases: (readonly [words: readonly string[], code: number, complaint: RegExp])[] = [
    [['replay'], 2, /takes one recording/],
    [['replay', made, '--token', 'x'], 2, /--url is missing/],
    [['replay', made, '--url', 'nowhere', '--token', 'x'], 2, /--url must be a URL/],
    [['replay', made, ...credentials, '--rate', 'fast'], 2, /--rate must be a factor/],
    [['replay', made, ...credentials, '--rate', '0x'], 2, /--rate must be a factor/],
    [['replay', made, ...credentials, '--for', 'ever'], 2, /--for must be a duration/],
    [['replay', made, ...credentials, '--slo', 'p98=1ms'], 2, /--slo has limits such as/],
    [['replay', made, ...credentials, '--slo', 'errors=3'], 2, /percentage/],
    [['replay', made, ...credentials, '--connections', '0'], 2, /--connections must be/],
    [['replay', made, ...credentials, '--speed', '3'], 2, /Unknown option '--speed'/],
    [['capacity', made, ...credentials], 2, /--slo is missing/],
    [['capacity', made, ...credentials, '--slo', 'p99=1s', '--step', '10ms'], 2, /--step must be at least 1s/],
    [['capacity', made, ...credentials, '--slo', 'p99=1s', '--from', '2x'], 2, /--from must be a rate/],
    [['capacity', made, '--url', service.url, '--token', reader.token, '--slo', 'p99=1s'], 1, /an administrator's/],
    [['record', ...credentials], 2, /--output is missing/],
    [['record', ...credentials, '-o', join(folder, 'x'), '--sample', '2'], 2, /--sample must be/],
    [['record', ...credentials, '-o', join(folder, 'x'), '--for', '3h'], 2, /--for must be from 1s to 1h/],
    [['record', ...credentials, '-o', join(folder, 'nofolder', 'x')], 2, /nofolder\/x cannot be written/],
    [['record', '--url', `${service.url}/api`, '--token', 'x', '-o', join(folder, 'x')], 1, /\/api\/server\/traffic/],
    [['statistics'], 2, /needs a file/],
    [['statistics', '--speed', '3'], 2, /unknown option/],
    [['advise', '--speed', '3'], 2, /unknown option/],
    [['advise', '--traffic', 'package.json'], 2, /neither a recording/],
    [['advise', '--traffic', await written('object', '{"name":"x"}')], 2, /is no recording/],
    [['plans', 'check', '--accept', '--traffic', await written('head', `${HEADER}\n`)], 2, /has no requests/],
    [
      ['record', '--url', service.url, '--token', reader.token, '-o', join(folder, 'x')],
      1,
      /must be an administrator's/,
    ],
    [['record', '--url', 'http://127.0.0.1:1', '--token', 'x', '-o', join(folder, 'x')], 1, /does not answer/],
    [['replay', made, '--url', 'http://127.0.0.1:1', '--token', 'x'], 1, /does not answer/],
    [['replay', made, '--url', service.url, '--token', reader.token], 1, /must be an administrator's/],
    [['replay', join(folder, 'missing'), ...credentials], 2, /there is no file/],
    [['replay', 'package.json', ...credentials], 2, /is no recording/],
    [
      ['replay', await written('version', `${HEADER.replace('"version":1', '"version":2')}\n`), ...credentials],
      2,
      /has version 2 of the format/,
    ],
    [['replay', await written('garbage', `${HEADER}\n{"t":1}\n`), ...credentials], 2, /has no request in line 2/],
    [['replay', await written('text', `${HEADER}\nnothing\n`), ...credentials], 2, /no JSON object in line 2/],
    [['replay', await written('empty', ''), ...credentials], 2, /is empty/],
    [
      ['replay', await written('cut', (await readFile(made)).subarray(0, 60)), ...credentials],
      2,
      /cannot be read: unexpected end of file/,
    ],
    [['replay', await written('none', `${HEADER}\n`), ...credentials], 2, /no requests that can be replayed/],
  ];
  for (const [words, code, complaint] of cases)
    t.match(
      await runCommand(words),
      { code, complaints: complaint, output: '' },
      words.slice(0, 2).join(' ') + String(complaint),
    );
});

async function written(name: string, content: string | Buffer): Promise<string> {
  const file = join(folder, name);
  await writeFile(file, content);
  return file;
}

t.test('a recording that the service ends too early is kept', async (t) => {
  const short = await startTestService({ databaseUrl, WORKERS: '1' });
  const file = join(folder, 'short.lateral');
  const recording = runCommand(['record', '--url', short.url, '--token', ADMIN_TOKEN, '--for', '30s', '-o', file]);
  await waitFor(async () => /^lateral_traffic_recordings 1$/m.test((await get(short, '/server/metrics')).text), 5_000);
  await get(short, '/items/tags');
  await short.stop();
  t.match(await recording, { code: 1, complaints: /the service ended the recording after \d s of 30 s/ });
  t.ok(linesOf(await readFile(file)).some(({ path }) => path === '/items/tags'));
});

t.test('a recording whose stream breaks off is kept with its real length', async (t) => {
  const file = join(folder, 'broken.lateral');
  const line = requestLine({ t: 5, method: 'GET', path: '/items/tags', status: 200, bytes: 1, ms: 1, ...asReader });
  const broken = createServer((_, response) => {
    response.write(`${HEADER}\n${line}\n{"t":6,"met`);
    void setTimeout(1_000).then(() => response.destroy());
  }).listen(0, '127.0.0.1');
  await once(broken, 'listening');
  t.teardown(() => broken.close());
  const url = `http://127.0.0.1:${Object(broken.address()).port}`;
  const outcome = await runCommand(['record', '--url', url, '--token', 'x', '--for', '30s', '-o', file]);
  t.match(outcome, { code: 1, complaints: /^1 request of 1 shape in 1 s.*\nthe service ended .* 1 s of 30 s/ });
  const reader = new TrafficReader('the file');
  for (const each of gunzipSync(await readFile(file))
    .toString()
    .split('\n'))
    reader.add(each);
  const { milliseconds, recorded } = reader.finish();
  t.equal(recorded.length, 1);
  t.ok(milliseconds >= 900 && milliseconds < 5_000, `${milliseconds} ms`);
});
