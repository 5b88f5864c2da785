/** A failover of PostgreSQL while changes are made and delivered: every acknowledged change arrives, and the changes of an item in order. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { pidOf, promote, startPrimary, startStandby } from '../../support/cluster.js';
import { connectSql, createDatabase, request, startTestService, waitFor } from '../../support/service.js';
import { startReceiver } from '../../support/webhook-receiver.js';

const MINUTE_MS = 60_000;
const ITEMS = 50;
/** Milliseconds of writes before the failover and after it. */
const WRITING_MS = Number(process.env['WEBHOOK_WRITING_MS'] ?? 4_000);
t.setTimeout(10 * MINUTE_MS);

const primary = await startPrimary();
const url = new URL(await createDatabase(primary, 'webhook_failover'));
const before = connectSql(url.href);
await before`create table counters (id int primary key, n int not null)`;
await before`insert into counters select n, 0 from generate_series(1, ${ITEMS}) n`;
const standby = await startStandby(primary, { name: 'second' });
await before.unsafe(`alter system set synchronous_standby_names = 'FIRST 1 (second)'`);
await before`select pg_reload_conf()`;
await waitFor(
  async () => (await before`select from pg_stat_replication where sync_state = 'sync'`).length === 1,
  MINUTE_MS,
);

const standbyUrl = new URL(url.href);
standbyUrl.host = new URL(standby.url).host;
const both = url.href.replace(url.host, `${url.host},${standbyUrl.host}`);
const service = await startTestService({
  databaseUrl: both,
  WORKERS: '1',
  WEBHOOKS_ALLOW_LOCAL: 'true',
  WEBHOOK_TIMEOUT: '2s',
  WEBHOOK_RETRY_DELAYS: Array.from({ length: 100 }, () => '200ms').join(),
});
const receiver = await startReceiver();
const headers = { 'content-type': 'application/json' };

/** The changes that were acknowledged, by item. */
const acknowledged = new Map<number, number>();
let isWriting = true;

/** Each writer has items of its own, so that the answer shows how far its item is. */
async function write(number: number, writers: number): Promise<void> {
  for (let id = 1 + number; isWriting; id = ((id - 1 + writers) % ITEMS) + 1) {
    const body = '{"n":{"_increment":1}}';
    const answer = await request(service, 'PATCH', `/items/counters/${id}?fields=n`, { headers, body }).catch(
      () => null,
    );
    if (answer?.status === 200)
      acknowledged.set(id, Math.max(acknowledged.get(id) ?? 0, (answer.json as { data: { n: number } }).data.n));
    else await sleep(50);
  }
}

t.test('a standby that is promoted delivers what the primary had recorded', async (t) => {
  const webhook = JSON.stringify({
    name: 'failover',
    url: receiver.url,
    collections: ['counters'],
    events: ['update'],
  });
  const created = await request(service, 'POST', '/webhooks', { headers, body: webhook });
  t.equal(created.status, 200, created.text);
  const writers = Array.from({ length: 5 }, (_, number) => write(number, 5));
  await sleep(WRITING_MS);
  const early = [...acknowledged.values()].reduce((sum, n) => sum + n, 0);
  process.kill(await pidOf(primary), 'SIGKILL');
  await before.end().catch(() => {});
  await promote(standby);
  await sleep(WRITING_MS);
  isWriting = false;
  await Promise.all(writers);
  const sql = connectSql(standbyUrl.href);
  t.teardown(() => sql.end());
  await waitFor(async () => {
    const [row] = await sql`select (select count(*) from service_webhook_changes)
      + (select count(*) from service_webhook_deliveries where status = 'pending') as left`;
    return Number(row?.['left']) === 0;
  }, 3 * MINUTE_MS);
  const rows = await sql<{ id: number; n: number }[]>`select id, n from counters`;
  const total = rows.reduce((sum, { n }) => sum + n, 0);
  t.ok(early > 0 && total > early, `${early} changes before the failover, ${total} in all`);
  const lost = rows.filter(({ id, n }) => n < (acknowledged.get(id) ?? 0));
  t.strictSame(lost, [], 'every acknowledged change is in the table');
  const last = new Map<string, number>();
  const ids = new Map<string, unknown>();
  let [disordered, otherIds] = [0, 0];
  for (const { headers: sent, json } of receiver.received) {
    const [key, n] = [String(json.key), Number(json.data?.['n'])];
    const change = `${key} ${n}`;
    if (ids.has(change)) {
      if (ids.get(change) !== sent['webhook-id']) otherIds++;
      continue;
    }
    ids.set(change, sent['webhook-id']);
    if (n !== (last.get(key) ?? 0) + 1) disordered++;
    last.set(key, n);
  }
  t.equal(ids.size, total, 'every change has arrived');
  t.equal(disordered, 0, 'changes that arrived before an older one of their item');
  t.equal(otherIds, 0, 'changes that arrived twice with different ids');
  t.match(await sql`select status, incomplete_reason from service_webhooks`, [
    { status: 'active', incomplete_reason: null },
  ]);
});
