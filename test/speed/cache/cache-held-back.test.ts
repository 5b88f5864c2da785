/** A transaction that is open since before changes are reported keeps every answer out of memory: the service says which one. */
import t from 'tap';
import { connectSql, createLibrary, get, startDatabase, startTestService, waitFor } from '../../support/service.js';

t.setTimeout(120_000);
const TAG = '/items/tags/1?fields=id,name';
const server = await startDatabase({ own: true, settings: { max_prepared_transactions: '10' } });
const databaseUrl = await createLibrary(server, 'cache_held_back');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end({ timeout: 1 }));

type Place = Awaited<ReturnType<typeof startTestService>>;

async function explained(service: Place): Promise<{ readonly kept: boolean; readonly reason: string | null }> {
  return JSON.parse((await get(service, TAG, { headers: { prefer: 'explain' } })).text).data.cache;
}

async function heldSeconds(service: Place): Promise<number> {
  const { text } = await get(service, '/server/metrics');
  return Number(/^lateral_read_cache_held_back_seconds (\S+)$/m.exec(text)?.[1]);
}

async function cacheCheck(service: Place): Promise<{ readonly status: string; readonly output?: string }> {
  const { status, checks } = JSON.parse((await get(service, '/server/health')).text);
  return { ...checks['live:cache'][0], status: `${status}, ${checks['live:cache'][0].status}` };
}

async function isServed(service: Place): Promise<boolean> {
  return (await get(service, TAG)).headers['cache-status'] === 'lateral; hit';
}

t.test('a prepared transaction that was forgotten is named', async (t) => {
  await sql.unsafe('create schema hidden; create table hidden.notes (text text)').simple();
  await sql.unsafe(`begin; insert into hidden.notes values ('x'); prepare transaction 'forgotten'`).simple();
  const service = await startTestService({
    databaseUrl,
    LIVE: 'triggers',
    WORKERS: '1',
    READ_CACHE_SIZE: '16mb',
  });
  await waitFor(async () => (await explained(service)).kept === false, 20_000);
  await waitFor(async () => /prepared transaction "forgotten"/.test((await explained(service)).reason ?? ''), 20_000);
  t.match(await explained(service), { kept: false, reason: /until transactions have ended/ });
  t.ok((await heldSeconds(service)) > 0);
  await waitFor(async () => (await cacheCheck(service)).status === 'degraded, degraded', 30_000);
  t.match(await cacheCheck(service), { output: /prepared transaction "forgotten" of database "cache_held_back"/ });
  t.notOk(await isServed(service));
  await sql`rollback prepared 'forgotten'`;
  await waitFor(() => isServed(service), 20_000);
  t.strictSame(await explained(service), { kept: true, reason: null });
  t.equal(await heldSeconds(service), 0);
  t.match(await cacheCheck(service), { status: 'ok, ok' });
});

t.test('a session is named too', async (t) => {
  const idle = connectSql(databaseUrl);
  t.teardown(() => idle.end({ timeout: 1 }));
  await idle`begin`;
  await idle`insert into hidden.notes values ('y')`;
  const service = await startTestService({ databaseUrl, LIVE: 'triggers', WORKERS: '1', READ_CACHE_SIZE: '16mb' });
  const [row] = await idle`select pg_backend_pid() as pid`;
  const pattern = new RegExp(`session ${row?.['pid']} of database "cache_held_back"`);
  await waitFor(async () => pattern.test((await explained(service)).reason ?? ''), 20_000);
  await idle`rollback`;
  await waitFor(() => isServed(service), 20_000);
});
