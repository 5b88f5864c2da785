/** `lateral capacity` finds the highest rate, and names the resource that was made scarce. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { endLine, headerLine, requestLine } from '../../src/traffic/traffic-file.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  makeFolder,
  runProgram,
  startDatabase,
  startTestService,
} from '../support/service.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'capacity');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create function nap() returns integer stable language sql as 'select 1 from pg_sleep(0.02)';
  create function burn() returns bigint stable language sql as 'select sum(n) from generate_series(1, 60000) n';
  create table counters (id integer primary key, value integer);
  insert into counters values (1, 0);
  create function count_up() returns integer volatile language sql as $$
    update counters set value = value + 1 where id = 1;
    select 1 from pg_sleep(0.02);
  $$;
  insert into service_functions (name) values ('nap'), ('burn'), ('count_up');
`);
const folder = await makeFolder();
const [administrator] = await sql`select id from service_users where token is not null limit 1`;

interface Found {
  readonly rate: number;
  readonly exhausted: string;
  readonly reason: string;
  readonly requests_per_processor_second: number;
  readonly recommended: readonly { readonly name: string; readonly value: number }[];
}

async function capacityOf(
  options: Readonly<Record<string, string>>,
  request: { readonly method: string; readonly path: string; readonly write?: boolean },
  words: readonly string[],
): Promise<Found> {
  const service = await startTestService({ databaseUrl, WORKERS: '1', ...options });
  const file = join(folder, 'one.lateral');
  const user = administrator?.['id'] ?? null;
  const recorded = { t: 0, ...request, user, role: null, status: 200, bytes: 1, ms: 1 };
  const end = endLine({ milliseconds: 100, requests: 1, dropped: 0 });
  const header = headerLine({ started: new Date(), sample: 1, service: '1' });
  await writeFile(file, gzipSync([header, requestLine(recorded), end].join('\n')));
  const target = ['--url', service.url, '--token', ADMIN_TOKEN];
  const { code, output, complaints } = await runProgram(['capacity', file, ...target, ...words, '--json']);
  await service.stop();
  t.equal(code, 0, complaints);
  t.comment(complaints);
  const found: Found = JSON.parse(output);
  t.comment(`${found.rate}/s: ${found.exhausted} (${found.reason})`);
  return found;
}

t.test('two connections whose statements take 20 ms serve a hundred requests per second', async (t) => {
  const words = ['--slo', 'p90=250ms,errors=0%', '--from', '40/s', '--step', '3s'];
  const found = await capacityOf(
    { DATABASE_POOL_SIZE: '2', READ_BATCHING: 'false' },
    { method: 'GET', path: '/rpc/nap' },
    words,
  );
  t.equal(found.exhausted, 'connections', found.reason);
  t.ok(found.rate > 75 && found.rate < 110, `${found.rate}/s`);
  t.match(found.recommended[0], { name: 'DATABASE_POOL_SIZE', value: 4 });
});

t.test('statements that compute exhaust the processor of PostgreSQL', async (t) => {
  const words = ['--slo', 'p90=100ms,errors=0%', '--from', '10/s', '--step', '3s'];
  const found = await capacityOf({ DATABASE_POOL_SIZE: '8' }, { method: 'GET', path: '/rpc/burn' }, words);
  t.equal(found.exhausted, 'PostgreSQL processor', found.reason);
});

t.test('writes of one row wait for its lock', async (t) => {
  const request = { method: 'POST', path: '/rpc/count_up', write: true };
  const found = await capacityOf({}, request, [
    '--slo',
    'p90=250ms,errors=0%',
    '--from',
    '10/s',
    '--step',
    '3s',
    '--writes',
  ]);
  t.equal(found.exhausted, 'locks', found.reason);
  t.ok(found.rate > 30 && found.rate < 52, `${found.rate}/s`);
});

t.test('small reads exhaust the thread of the service', async (t) => {
  const words = ['--slo', 'p90=50ms,errors=1%', '--from', '400/s', '--step', '3s'];
  const found = await capacityOf({}, { method: 'GET', path: '/items/tags/1' }, words);
  t.match(found.exhausted, /^(?:service processor|client)$/, found.reason);
  t.ok(found.requests_per_processor_second > 0);
});

t.test('the load of the service is for administrators', async (t) => {
  const service = await startTestService({ databaseUrl, WORKERS: '2' });
  t.match(await get(service, '/server/load', { token: null }), { status: 403 });
  t.match(await get(service, '/server/load'), {
    status: 200,
    json: {
      data: {
        process_cpu_seconds: Number,
        threads: [{ busy_seconds: Number }, { busy_seconds: Number }],
        pools: { read: { max: Number, busy: Number, waiting: Number } },
        database: { active_ms: Number, connections: Number, max_connections: Number },
      },
    },
  });
});
