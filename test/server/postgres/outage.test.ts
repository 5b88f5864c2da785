/**
 * A database that is away, locked, or lost in the middle of a write: the start waits for it, requests are answered 503 with a
 * time to come again, nobody is told more than is known, and the log says it once.
 */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, startService } from '../../../src/app/start.js';
import type { Event } from '../../../src/base/observe.js';
import { packagePath } from '../../../src/base/package-files.js';
import { Network } from '../../support/network-proxy.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  databaseUrl as urlOf,
  waitFor,
  ways,
} from '../../support/service.js';

t.setTimeout(110_000);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'outages');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());

const JSON_HEADERS = { 'content-type': 'application/json' };
const UNAVAILABLE = {
  status: 503,
  headers: { 'retry-after': /^\d+$/ },
  json: { errors: [{ extensions: { code: 'SERVICE_UNAVAILABLE', service: 'database' } }] },
};

function start(url: string, said: Event[], options: Record<string, string> = {}): Promise<Service> {
  const given = { PORT: '0', LOG_LEVEL: 'silent', ADMIN_TOKEN, ...ways(), ...options };
  const config = readConfig({ ...given, DATABASE_URL: url });
  return startService(
    config,
    (event) => said.push(event),
    () => {},
  );
}

t.test('a start waits for a database that cannot be reached, and says so', async (t) => {
  const network = await new Network(databaseUrl).open();
  await network.close();
  const said: Event[] = [];
  const starting = start(network.url, said);
  await waitFor(async () => said.filter(({ kind }) => kind === 'database-awaited').length >= 2, 20_000);
  t.match(said[0], { kind: 'database-awaited', reason: /^nothing answers at 127\.0\.0\.1:\d+ \(ECONNREFUSED\)$/ });
  await network.open();
  const service = await starting;
  t.teardown(() => service.stop());
  t.ok(said.some(({ kind }) => kind === 'database-reached'));
  t.match(await get(service, '/items/articles/1?fields=id'), { status: 200 });

  await network.close();
  const before = performance.now();
  await t.rejects(start(network.url, [], { DATABASE_START_TIMEOUT: '600ms' }), /nothing answers at/);
  t.ok(performance.now() - before >= 500, 'and gives up in the end');
});

t.test('a start waits for a database that answers too slowly to see what is in between', async (t) => {
  const network = await new Network(databaseUrl).open();
  network.muted = /listen lateral_session/;
  const said: Event[] = [];
  const starting = start(network.url, said, { DATABASE_CONNECT_TIMEOUT: '3s' });
  await waitFor(async () => said.some(({ kind }) => kind === 'database-awaited'), 20_000);
  t.match(said[0], { kind: 'database-awaited', reason: 'two connections to it did not answer in time' });
  network.muted = null;
  const service = await starting;
  t.teardown(() => service.stop());
  t.match(await get(service, '/items/articles/1?fields=id'), { status: 200 });
});

t.test('a start that will never succeed is refused at once', async (t) => {
  const wrong = urlOf(server, 'outages', { user: 'lateral', password: 'wrong' });
  for (const [url, reason] of [
    [wrong, /password authentication failed/],
    [urlOf(server, 'nowhere'), /database "\w*nowhere" does not exist/],
    [`${databaseUrl}?sslmode=require`, /TLS/],
  ] as const) {
    const said: Event[] = [];
    await t.rejects(start(url, said), reason);
    t.strictSame(said, [], 'without another attempt');
  }
});

t.test('a start that waits can be stopped', async (t) => {
  const network = await new Network(databaseUrl).open();
  await network.close();
  const run = launch(network.url);
  await waitFor(async () => /waiting for the database \(at most \d+ s more\)/.test(run.complaints()), 20_000);
  run.child.kill('SIGTERM');
  t.equal(await run.ended, 0);
});

function launch(url: string): {
  readonly child: ReturnType<typeof spawn>;
  readonly output: () => string;
  readonly complaints: () => string;
  readonly ended: Promise<number | null>;
} {
  const env = { PATH: process.env['PATH'] ?? '', ...ways(), DATABASE_URL: url, PORT: '0', ADMIN_TOKEN };
  const child = spawn(process.execPath, [packagePath('dist', 'src', 'main.js')], { env, stdio: 'pipe' });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  let complaints = '';
  child.stdout.on('data', (piece) => {
    output += piece;
  });
  child.stderr.on('data', (piece) => {
    complaints += piece;
  });
  const ended = once(child, 'exit').then(([code]) => code as number | null);
  return { child, output: () => output, complaints: () => complaints, ended };
}

t.test(
  'while it is away requests are 503, and the log has a line for lost and back and none per request',
  async (t) => {
    const network = await new Network(databaseUrl).open();
    const run = launch(network.url);
    await waitFor(async () => /is ready at/.test(run.output()), 30_000);
    const service = { url: /is ready at (\S+)/.exec(run.output())?.[1] ?? '' };
    const read = (): Promise<Answer> => get(service, '/items/articles/1?fields=id');
    t.equal((await read()).status, 200);
    await network.close();
    for (let count = 0; count < 20; count++) t.match(await read(), UNAVAILABLE);
    const body = JSON.stringify({ name: 'lost' });
    t.match(await request(service, 'POST', '/items/tags', { body, headers: JSON_HEADERS }), UNAVAILABLE);
    await network.open();
    await waitFor(async () => (await read()).status === 200, 15_000);
    await waitFor(async () => /LISTEN connection restored/.test(run.complaints()), 15_000);
    const lines = run.complaints().trim().split('\n');
    t.equal(lines.filter((line) => /lost the LISTEN connection/.test(line)).length, 1);
    t.notMatch(run.complaints(), /stack/, 'and no stack');
    t.ok(lines.length < 15, `${lines.length} lines:\n${run.complaints()}`);
    run.child.kill('SIGTERM');
    await run.ended;
  },
);

t.test('a write whose fate is unknown says so, and can be repeated by its key', async (t) => {
  const network = await new Network(databaseUrl).open();
  const service = await startTestService({ databaseUrl: network.url });
  const unknown = {
    ...UNAVAILABLE,
    json: { errors: [{ extensions: { code: 'SERVICE_UNAVAILABLE', outcome: 'unknown' } }] },
  };
  const count = async (name: string): Promise<number> =>
    (await sql`select count(*)::int as count from tags where name = ${name}`)[0]?.['count'];

  const name = randomUUID();
  const post = (): Promise<Answer> =>
    request(service, 'POST', '/items/tags', {
      body: JSON.stringify({ name }),
      headers: { ...JSON_HEADERS, 'idempotency-key': name },
    });
  network.unanswered = /service_receipts/;
  t.match(await post(), unknown, 'the backend has committed, and nobody heard of it');
  network.unanswered = null;
  t.equal(await count(name), 1);
  t.match(await post(), { status: 200, json: { data: { name } } });
  t.match(await post(), { status: 200, json: { data: { name } } });
  t.equal(await count(name), 1, 'exactly one row');

  const other = randomUUID();
  network.unanswered = /insert into "public"\."tags"/;
  const body = JSON.stringify({ name: other });
  t.match(await request(service, 'POST', '/items/tags', { body, headers: JSON_HEADERS }), unknown, 'in one round trip');
  const mutation = JSON.stringify({ query: `mutation { create_tags_item(data: { name: "${other}" }) { id } }` });
  const answer = await request(service, 'POST', '/graphql', { body: mutation, headers: JSON_HEADERS });
  network.unanswered = null;
  t.match(answer, { status: 503, json: { errors: [{ extensions: { code: 'SERVICE_UNAVAILABLE' } }] } });
  t.notMatch(answer.text, /unknown/, 'lost before the end of its transaction: it is known that nothing was done');
  t.equal(await count(other), 1);
});

t.test('a lock that another session holds is 503, not an error of the query', async (t) => {
  const service = await startTestService({ databaseUrl, DATABASE_STATEMENT_TIMEOUT: '1s' });
  const locked = { ...UNAVAILABLE, json: { errors: [{ extensions: { reason: /Another session holds a lock/ } }] } };
  const holder = connectSql(databaseUrl);
  t.teardown(() => holder.end());
  await holder.begin(async (transaction) => {
    await transaction`lock table comments in access exclusive mode`;
    await transaction`update articles set title = title where id = 1`;
    const body = JSON.stringify({ title: 'waits' });
    const answers = await Promise.all([
      get(service, '/items/comments?limit=1'),
      request(service, 'PATCH', '/items/articles/1', { body, headers: JSON_HEADERS }),
    ]);
    for (const answer of answers) t.match(answer, locked);
  });
  t.equal((await get(service, '/items/comments?limit=1')).status, 200);
});
