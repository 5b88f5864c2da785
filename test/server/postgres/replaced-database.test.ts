/** A database that is dropped and made again while the service runs, from a copy or empty. */
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, startService } from '../../../src/app/start.js';
import type { Event } from '../../../src/base/observe.js';
import {
  ADMIN_TOKEN,
  type Answer,
  copyDatabase,
  createLibrary,
  databaseUrl,
  get,
  loadSchemas,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

t.setTimeout(110_000);
const server = await startDatabase({ own: true });
await createLibrary(server, 'original');
// A later version of it: another schema, and another row.
await withSql(await copyDatabase(server, 'original', 'later'), async (sql) => {
  await sql`alter table articles add column subtitle text default 'restored'`;
  await sql`update articles set title = 'From the copy' where id = 1`;
});

const JSON_HEADERS = { 'content-type': 'application/json' };
const WAYS = {
  one_thread: { WORKERS: '1', LIVE: 'triggers', READ_CACHE_SIZE: '10MB' },
  two_threads: { WORKERS: '2' },
} as const;

for (const [name, options] of Object.entries(WAYS))
  t.test(`a dropped database is a 503, and is served again from a copy, with ${name}`, async (t) => {
    const events: Event[] = [];
    const service = await start(name, options, events);
    t.match(await read(service), { status: 200, json: { data: { title: 'Hello World' } } });
    await drop(name);
    await waitFor(async () => (await get(service, '/server/ready')).status === 503, 10_000);
    for (let count = 0; count < 10; count++) {
      t.match(await read(service), unavailable(/It does not exist|It cannot be reached|It was replaced/));
      t.match(await write(service, 'lost'), unavailable(/./));
    }

    await copyDatabase(server, 'later', name);
    const subtitle = '/items/articles/1?fields=title,subtitle';
    await waitFor(async () => (await get(service, subtitle)).status === 200, 20_000);
    t.match(await get(service, subtitle), { json: { data: { title: 'From the copy', subtitle: 'restored' } } });
    t.match(await read(service), { status: 200, json: { data: { title: 'From the copy' } } });
    t.match(await write(service, 'kept'), { status: 200 });
    await waitFor(async () => (await get(service, '/server/ready')).status === 200, 10_000);
    await alter(name, 'alter table articles add column later text');
    await waitFor(async () => (await get(service, '/items/articles/1?fields=later')).status === 200, 10_000);
    t.strictSame(faults(events), [], 'no request failed in another way');
  });

for (const [way, options] of Object.entries(WAYS))
  t.test(`a database without the tables of the service is a 503 that says so, with ${way}`, async (t) => {
    const name = `emptied_by_${way}`;
    const events: Event[] = [];
    const service = await start(name, options, events);
    t.match(await read(service), { status: 200 });
    await drop(name);
    await withSql(server.url, (sql) => sql`create database ${sql(name)}`);
    const missing = unavailable(/^It has no tables of the service: restore them, or restart the service/);
    await waitFor(async () => events.some(({ kind }) => kind === 'database-replaced'), 20_000);
    await waitFor(async () => (await get(service, '/server/ready')).status === 503, 20_000);
    await waitFor(async () => matches(await read(service), /no tables of the service/), 20_000);
    for (let count = 0; count < 10; count++) {
      t.match(await read(service), missing);
      t.match(await write(service, 'lost'), missing);
      t.match(await get(service, '/items/articles', { token: null }), missing);
    }
    t.match(await get(service, '/server/ping'), { status: 200 });
    t.match(await get(service, '/server/health'), { status: 503 });

    const other = await startTestService({ databaseUrl: databaseUrl(server, name), WORKERS: '1' });
    await other.stop();
    await loadSchemas(databaseUrl(server, name), ['library.sql']);
    await waitFor(async () => (await read(service)).status === 200, 20_000);
    t.match(await write(service, 'kept'), { status: 200 });
    await waitFor(async () => (await get(service, '/server/ready')).status === 200, 10_000);
    t.strictSame(faults(events), []);
    const obstacles = events.flatMap((event) => (event.kind === 'database-replaced' ? [event.obstacle] : []));
    t.equal(obstacles.at(-1), null, 'the log says that it is served again');
    t.ok(obstacles.length <= 5, `and has a line for each change: ${obstacles.length}`);
  });

async function start(name: string, options: Record<string, string>, events: Event[]): Promise<Service> {
  const url = await copyDatabase(server, 'original', name);
  const config = readConfig({ PORT: '0', LOG_LEVEL: 'silent', ADMIN_TOKEN, ...options, DATABASE_URL: url });
  const service = await startService(
    config,
    (event) => events.push(event),
    () => {},
  );
  t.teardown(() => service.stop());
  return service;
}

async function drop(name: string): Promise<void> {
  await withSql(server.url, (sql) => sql`drop database ${sql(name)} with (force)`);
}

async function alter(name: string, text: string): Promise<void> {
  await withSql(databaseUrl(server, name), (sql) => sql.unsafe(text));
}

function read(service: Service): Promise<Answer> {
  return get(service, '/items/articles/1?fields=title');
}

function write(service: Service, name: string): Promise<Answer> {
  return request(service, 'POST', '/items/tags', { body: JSON.stringify({ name }), headers: JSON_HEADERS });
}

function unavailable(reason: RegExp) {
  return {
    status: 503,
    headers: { 'retry-after': /^\d+$/ },
    json: { errors: [{ extensions: { code: 'SERVICE_UNAVAILABLE', service: 'database', reason } }] },
  };
}

function matches({ text }: Answer, pattern: RegExp): boolean {
  return pattern.test(text);
}

/** Requests that failed, but not because the database was unavailable. */
function faults(events: readonly Event[]): unknown[] {
  return events.flatMap((event) => (event.kind === 'request-failed' && !event.unavailable ? [event.error] : []));
}
