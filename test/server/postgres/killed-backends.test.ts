/**
 * 500 backends of the service are killed while it is asked for GraphQL mutations, PATCH with a query, imports, nested writes,
 * schema changes and reads: every request is answered, nothing is lost or half done, and afterwards every connection is there.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { Load, prepareLoad } from '../../faults/load.js';
import { makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  withSql,
} from '../../support/service.js';

t.setTimeout(170_000);
const KILLS = 500;
const KILLS_PER_WRITE = 20;
const WRITERS = 8;
const IMPORTS = 2;

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'killed');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await prepareLoad(sql);
// One caller has at most a quarter of the connections for writes that take several locks, as mutations of GraphQL do.
const others = ['second', 'third', 'fourth'].map((name) => makeCaller(sql, name, [{ admin_access: true }]));
const tokens = [ADMIN_TOKEN, ...(await Promise.all(others)).map(({ token }) => token)];
const service = await startTestService({
  databaseUrl,
  WORKERS: '1',
  DATABASE_WRITE_POOL_SIZE: String(WRITERS),
  IMPORT_MAX_CONCURRENCY: String(IMPORTS),
});

async function metric(name: string, pool: string): Promise<number> {
  const { text } = await get(service, '/server/metrics');
  return Number(new RegExp(`^${name}\\{pool="${pool}"\\} (\\d+)$`, 'm').exec(text)?.[1]);
}

t.test(`${KILLS} killed backends`, async (t) => {
  const load = new Load(service, {
    clients: { graphql: 4, patch: 3, import: 3, create: 2, schema: 2, read: 2 },
    patience: 60_000,
  });
  await load.start(sql);
  let kills = 0;
  const deadline = performance.now() + 90_000;
  while (kills < KILLS && performance.now() < deadline) {
    // Those in the midst of something first, every other time.
    const killed = await sql`
      select pg_terminate_backend(pid) from pg_stat_activity
      where application_name like 'lateral%' and datname = current_database()
      order by ${kills % 4 < 2} and state = 'idle', random() limit ${Math.min(2, KILLS - kills)}`;
    kills += killed.length;
    // Where a connection takes longer to open than it is left alone, nothing would be in the midst of anything.
    do await sleep(20);
    while (load.answered < kills / KILLS_PER_WRITE && performance.now() < deadline);
  }
  await load.stop();
  const report = await load.report(sql);
  t.comment(JSON.stringify({ ...report, hung: report.hung.length }));
  t.equal(kills, KILLS);
  t.strictSame(report.hung, [], 'every request was answered');
  t.strictSame(report.wrong, [], 'with what was asked for, or with 503');
  t.strictSame(report.lost, [], 'what was acknowledged is there');
  t.strictSame(report.halfDone, [], 'nothing is there in part');
  t.ok(load.answered > KILLS / KILLS_PER_WRITE, `${load.answered} writes were carried out`);
});

t.test('afterwards all connections can be used at the same time', async (t) => {
  const headers = { 'content-type': 'application/json' };
  const tokenOf = (n: number): string => tokens[n % tokens.length] ?? '';
  const graphql = (n: number): ReturnType<typeof request> => {
    const query = `mutation { create_tags_item(data: { name: "after ${n}" }) { id } }`;
    return request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query }), token: tokenOf(n) });
  };
  const load = (n: number): ReturnType<typeof request> =>
    request(service, 'POST', '/utils/import/tags', {
      headers,
      body: JSON.stringify([{ name: `import ${n}` }]),
      token: tokenOf(n),
    });
  // Connections that died unused are found out now.
  await waitFor(async () => (await graphql(WRITERS)).status === 200, 10_000);
  const requests = await withSql(databaseUrl, (other) =>
    other.begin(async (transaction) => {
      await transaction`lock table tags`;
      const sent = [
        ...Array.from({ length: WRITERS }, (_, n) => graphql(n)),
        ...Array.from({ length: IMPORTS }, (_, n) => load(n)),
      ];
      await waitFor(async () => (await metric('lateral_pool_connections_busy', 'write')) === WRITERS, 10_000);
      await waitFor(async () => (await metric('lateral_pool_connections_busy', 'import')) === IMPORTS, 10_000);
      const waiting = (): Promise<readonly unknown[]> =>
        sql`select from pg_stat_activity where application_name like 'lateral%' and wait_event_type = 'Lock'`;
      await waitFor(async () => (await waiting()).length === WRITERS + IMPORTS, 10_000);
      return sent;
    }),
  );
  for (const { status, text } of await Promise.all(requests)) t.notMatch(`${status} ${text}`, /errors|^[345]/);
  for (const pool of ['write', 'import', 'stream', 'catalog', 'own'])
    t.equal(await metric('lateral_pool_connections_busy', pool), 0, pool);
  await waitFor(async () => {
    const { status, json } = await get(service, '/server/health');
    return status === 200 && (json as { status: string }).status === 'ok';
  }, 30_000);
});
