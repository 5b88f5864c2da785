/** The log of requests: one line for each, on where it is asked for, and readable in a terminal. */
import { execFile } from 'node:child_process';
import { connect } from 'node:net';
import { promisify } from 'node:util';
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, startService } from '../../../src/app/start.js';
import type { Event } from '../../../src/base/observe.js';
import { readableLine } from '../../../src/base/observe.js';
import { packagePath } from '../../../src/base/package-files.js';
import {
  ADMIN_TOKEN,
  createLibrary,
  get,
  request,
  startDatabase,
  waitFor,
  ways,
  withSql,
} from '../../support/service.js';

const run = promisify(execFile);
const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'logged');

type Completed = Extract<Event, { kind: 'request-completed' }>;

async function startLogged(options: Record<string, string>): Promise<{ service: Service; lines: () => Completed[] }> {
  const events: Event[] = [];
  const given = { PORT: '0', LOG_LEVEL: 'silent', ADMIN_TOKEN, ...ways(), ...options, DATABASE_URL: databaseUrl };
  const service = await startService(
    readConfig(given),
    (event) => events.push(event),
    () => {},
  );
  t.teardown(() => service.stop());
  return { service, lines: () => events.flatMap((event) => (event.kind === 'request-completed' ? event : [])) };
}

for (const workers of ['1', '2']) {
  t.test(`with ${workers} threads each request is logged once, with its route and never its path`, async (t) => {
    const { service, lines } = await startLogged({ REQUEST_LOG: 'true', WORKERS: workers });
    const headers = { 'content-type': 'application/json', 'x-request-id': 'my-own-id' };
    const answers = [
      await get(service, '/items/articles/1?fields=id&access_token='),
      await request(service, 'PATCH', '/items/articles/1', { headers, body: '{"title":"Logged"}' }),
      await get(service, '/items/articles/nonsense'),
      await get(service, '/no/such/secret'),
      await request(service, 'HEAD', '/server/ping'),
    ];
    const ids = answers.map((answer) => String(answer.headers['x-request-id']));
    t.equal(ids[1], 'my-own-id');
    t.equal(new Set(ids).size, 5);
    await waitFor(async () => lines().length >= 5, 20_000);
    // The lines of two threads are written as they arrive from each, behind the answers.
    const ordered = lines().sort((one, other) => ids.indexOf(one.id) - ids.indexOf(other.id));
    t.strictSame(
      ordered.map(({ id, method, route, status }) => [id, method, route, status]),
      [
        [ids[0], 'GET', '/items/:collection/:key', 200],
        [ids[1], 'PATCH', '/items/:collection/:key', 200],
        [ids[2], 'GET', '/items/:collection/:key', 403],
        [ids[3], 'GET', null, 404],
        [ids[4], 'HEAD', '/server/ping', 200],
      ],
    );
    for (const { ms } of lines()) t.ok(ms > 0 && ms < 60_000, `${ms} ms`);
  });
}

t.test('a client that leaves before its answer is logged with 499', async (t) => {
  await withSql(databaseUrl, async (sql) => {
    await sql`create view sleepers as select id, (select id from pg_sleep(1)) as slept from articles`;
    await sql`insert into service_collections (collection, primary_key) values ('sleepers', 'id')`;
  });
  const { service, lines } = await startLogged({ REQUEST_LOG: 'true' });
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname, () => {
    socket.write(`GET /items/sleepers/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${ADMIN_TOKEN}\r\n\r\n`);
  });
  await withSql(databaseUrl, (sql) => {
    const sleeping = () =>
      sql`select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`;
    return waitFor(async () => (await sleeping()).length > 0, 10_000);
  });
  socket.destroy();
  await waitFor(async () => lines().length > 0, 10_000);
  t.match(lines(), [{ method: 'GET', route: '/items/:collection/:key', status: 499 }]);
});

t.test('it is on at LOG_LEVEL=debug, and off by default', async (t) => {
  const debug = await startLogged({ LOG_LEVEL: 'debug' });
  await get(debug.service, '/server/ping');
  await waitFor(async () => debug.lines().length === 1, 5_000);
  const usual = await startLogged({ LOG_LEVEL: 'info' });
  await get(usual.service, '/server/ping');
  await get(usual.service, '/items/articles/1');
  t.strictSame(usual.lines(), []);
});

/** The log of one request, written by a process of its own. */
const PROGRAM = `
  const { createObserver } = await import(${JSON.stringify(packagePath('dist', 'src', 'base', 'observe.js'))});
  createObserver('info')({ kind: 'request-completed', id: 'a-1', method: 'GET', route: '/server/ping', status: 200, ms: 0.5 });
`;

t.test('a line is JSON for a file, and readable in a terminal', async (t) => {
  const words = ['--input-type=module', '-e', PROGRAM];
  const { stderr } = await run(process.execPath, words);
  const { time, ...line } = JSON.parse(stderr);
  t.type(time, 'number');
  t.strictSame(line, {
    level: 30,
    method: 'GET',
    route: '/server/ping',
    status: 200,
    ms: 0.5,
    id: 'a-1',
    msg: 'request',
  });
  if (process.platform !== 'linux') return;
  // The command of util-linux runs a program in a terminal of its own.
  const quoted = [process.execPath, ...words].map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
  const terminal = await run('script', ['-qec', quoted, '/dev/null']).catch((error: { code?: string }) => error);
  if (!('stdout' in terminal)) return t.comment('there is no "script" here');
  t.match(
    terminal.stdout,
    /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO {2}request method=GET route=\/server\/ping status=200 ms=0\.5 id=a-1\s*$/,
  );
});

t.test('readable lines hold no control characters of others, and a stack in lines of its own', async (t) => {
  const time = Date.UTC(2026, 0, 1);
  const line = (fields: object): string => readableLine(JSON.stringify({ time, ...fields }));
  const cases: readonly (readonly [fields: object, expected: string])[] = [
    [{ level: 30, msg: 'stopped' }, '2026-01-01 00:00:00.000 INFO  stopped\n'],
    [{ level: 40, msg: 'a\u001b[2Jb' }, '2026-01-01 00:00:00.000 WARN  a\\u001b[2Jb\n'],
    [
      { level: 50, msg: 'failed', path: '/a b\n', error: { message: 'no', stack: 'Error: no\n  at x' } },
      '2026-01-01 00:00:00.000 ERROR failed path="/a b\\n"\n    Error: no\n      at x\n',
    ],
    [{ level: 50, msg: 'failed', error: 'plain' }, '2026-01-01 00:00:00.000 ERROR failed error=plain\n'],
  ];
  for (const [fields, expected] of cases) t.equal(line(fields), expected);
});
