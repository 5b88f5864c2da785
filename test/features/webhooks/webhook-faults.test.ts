/**
 * Changes by the API and by SQL while instances, receivers and PostgreSQL are killed: every committed change arrives, the changes of an
 * item in order, and what arrives twice has the same id. In full, for about ten minutes:
 *
 *   WEBHOOK_CHANGES=100000 WEBHOOK_KILLS=200 node dist/test/run.js webhook-faults
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { packagePath } from '../../../src/base/package-files.js';
import { freePort } from '../../support/programs.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createDatabase,
  makeFolder,
  request,
  startDatabase,
  waitFor,
  ways,
} from '../../support/service.js';

const CHANGES = Number(process.env['WEBHOOK_CHANGES'] ?? 15_000);
const KILLS = Number(process.env['WEBHOOK_KILLS'] ?? 30);
const ITEMS = 300;
const INSTANCES = 2;
const SQL_WRITERS = 2;
const API_WRITERS = 4;
const MINUTE_MS = 60_000;
t.setTimeout(30 * MINUTE_MS);

/** Writes what it receives to a file before it answers. */
const RECEIVER = `
  const { appendFileSync } = require('node:fs');
  require('node:http').createServer((request, response) => {
    let body = '';
    request.on('data', (piece) => { body += piece; });
    request.on('end', () => {
      const { key, event, data } = JSON.parse(body);
      appendFileSync(process.argv[1], JSON.stringify([request.headers['webhook-id'], event, key, data.n]) + '\\n');
      response.writeHead(204).end();
    });
  }).listen(Number(process.argv[2]), '127.0.0.1');`;

interface Program {
  readonly start: () => void;
  readonly kill: () => Promise<void>;
}

function programOf(words: readonly string[], environment: Readonly<Record<string, string>> = {}): Program {
  let child: ChildProcess | null = null;
  const kill = async (): Promise<void> => {
    const killed = child;
    child = null;
    if (!killed || killed.exitCode !== null || killed.signalCode !== null) return;
    const closed = once(killed, 'close');
    killed.kill('SIGKILL');
    await closed;
  };
  t.teardown(kill);
  const env = { PATH: process.env['PATH'] ?? '', ...environment };
  return {
    start: () => {
      child = spawn(process.execPath, [...words], { env, stdio: 'ignore' });
    },
    kill,
  };
}

const server = await startDatabase({ own: true });
const databaseUrl = await createDatabase(server, 'webhook_faults');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql`create table counters (id int primary key, n int not null)`;
await sql`insert into counters select n, 0 from generate_series(1, ${ITEMS}) n`;

const folder = await makeFolder();
const file = join(folder, 'received');
const receiverPort = await freePort();
const receiver = programOf(['-e', RECEIVER, file, String(receiverPort)]);
const ports = await Promise.all(Array.from({ length: INSTANCES }, freePort));
const instances = ports.map((port) =>
  programOf([packagePath('dist', 'src', 'main.js'), 'start'], {
    ...ways(),
    DATABASE_URL: databaseUrl,
    PORT: String(port),
    ADMIN_TOKEN,
    WEBHOOKS_ALLOW_LOCAL: 'true',
    WEBHOOK_TIMEOUT: '2s',
    WEBHOOK_RETRY_DELAYS: Array.from({ length: 100 }, () => '500ms').join(),
    WEBHOOK_MAX_BACKLOG: '10000000',
  }),
);
const places = ports.map((port) => ({ url: `http://127.0.0.1:${port}` }));

const headers = { 'content-type': 'application/json' };
const isServing = (place: { url: string }): Promise<boolean> =>
  request(place, 'GET', '/server/ping').then(
    ({ status }) => status === 200,
    () => false,
  );
const anItem = (): number => 1 + Math.floor(Math.random() * ITEMS);
let written = 0;

/** Whether a change that failed was committed is not known: the table is the truth. */
async function changeBySql(): Promise<void> {
  while (written < CHANGES) {
    const isBulk = Math.random() < 0.01;
    const id = anItem();
    await (isBulk
      ? sql`update counters set n = n + 1 where id between ${id} and ${id + 9}`
      : sql`update counters set n = n + 1 where id = ${id}`
    ).then(
      () => {
        written += isBulk ? 10 : 1;
      },
      () => sleep(50),
    );
  }
}

async function changeByApi(position: number): Promise<void> {
  const place = places[position % places.length] ?? { url: '' };
  const body = '{"n":{"_increment":1}}';
  while (written < CHANGES) {
    const answer = await request(place, 'PATCH', `/items/counters/${anItem()}`, { headers, body }).catch(() => null);
    if (answer?.status === 200) written++;
    else await sleep(50);
  }
}

/** PostgreSQL ends all sessions and recovers if one of its processes is killed. */
async function crashDatabase(): Promise<void> {
  const [row] = await sql`select pid from pg_stat_activity where backend_type = 'walwriter'`;
  process.kill(Number(row?.['pid']), 'SIGKILL');
}

async function disturb(): Promise<void> {
  for (let kill = 0; kill < KILLS; kill++) {
    await waitFor(async () => written >= (CHANGES * (kill + 0.5)) / KILLS, 10 * MINUTE_MS);
    const victim = kill % 5 === 4 ? null : kill % 5 === 3 ? receiver : instances[kill % instances.length];
    if (!victim) await crashDatabase().catch(() => {});
    else {
      await victim.kill();
      await sleep(Math.random() * 500);
      victim.start();
    }
  }
}

t.test(`${CHANGES} changes and ${KILLS} kills: nothing is lost, and items are in order`, async (t) => {
  receiver.start();
  for (const instance of instances) instance.start();
  for (const place of places) await waitFor(() => isServing(place), MINUTE_MS);
  const url = `http://127.0.0.1:${receiverPort}/`;
  const body = JSON.stringify({ name: 'counted', url, collections: ['counters'], events: ['update'] });
  const created = await request(places[0] ?? { url: '' }, 'POST', '/webhooks', { headers, body });
  t.equal(created.status, 200, created.text);
  const start = Date.now();
  await Promise.all([
    ...Array.from({ length: SQL_WRITERS }, changeBySql),
    ...Array.from({ length: API_WRITERS }, (_, position) => changeByApi(position)),
    disturb(),
  ]);
  const isDelivered = async (): Promise<boolean> => {
    // PostgreSQL may still recover from the last crash.
    const [row] = await sql`select
      (select count(*) from service_webhook_changes) + (select count(*) from service_webhook_deliveries where status = 'pending') as left`.catch(
      () => [],
    );
    return Number(row?.['left']) === 0;
  };
  t.comment(`written after ${Date.now() - start} ms`);
  await waitFor(isDelivered, 15 * MINUTE_MS);
  t.comment(`delivered after ${Date.now() - start} ms`);
  const [dead] = await sql`select count(*)::int as count from service_webhook_deliveries where status <> 'delivered'`;
  t.equal(dead?.['count'], 0);
  const [webhook] = await sql`select status, incomplete_reason from service_webhooks`;
  t.match(webhook, { status: 'active', incomplete_reason: null });
  await checkReceived(t);
});

async function checkReceived(t: {
  equal: typeof import('tap').default.equal;
  comment(text: string): void;
}): Promise<void> {
  const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
  const ids = new Map<string, string>();
  const last = new Map<string, number>();
  let [duplicates, otherIds, disordered] = [0, 0, 0];
  for (const line of lines) {
    const [id, , key, n] = JSON.parse(line) as [string, string, string, number];
    const change = `${key} ${n}`;
    const known = ids.get(change);
    if (known === undefined) {
      ids.set(change, id);
      if (n !== (last.get(key) ?? 0) + 1) disordered++;
      last.set(key, n);
    } else {
      duplicates++;
      if (known !== id) otherIds++;
    }
  }
  const rows = await sql<{ id: number; n: number }[]>`select id, n from counters`;
  const lost = rows.filter(({ id, n }) => (last.get(String(id)) ?? 0) !== n).length;
  const total = rows.reduce((sum, { n }) => sum + n, 0);
  t.comment(`${total} changes, ${lines.length} deliveries, ${duplicates} of them twice`);
  t.equal(lost, 0, 'items whose last change did not arrive');
  t.equal(ids.size, total, 'every change has arrived');
  t.equal(disordered, 0, 'changes that arrived before an older one of their item');
  t.equal(otherIds, 0, 'changes that arrived twice with different ids');
}
