/**
 * Word of changes survives what happens to the connection that it comes on: whatever it takes, it is opened again, everything is
 * read anew, and meanwhile health says so and nothing is believed for longer than MAX_STALENESS.
 */
import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, startService } from '../../../src/app/start.js';
import type { Event } from '../../../src/base/observe.js';
import { digestToken } from '../../../src/server/access/tokens.js';
import { Listener } from '../../../src/server/postgres/pools/database.js';
import type { Session } from '../../../src/server/postgres/pools/sessions.js';
import { Network } from '../../support/network-proxy.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
  ways,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

const USER_TOKEN = 'the-token-of-a-user-to-suspend';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'listening');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const [user] = await sql`
  insert into service_users (first_name, email, token, role)
  select 'Eve', 'eve@example.com', ${digestToken(USER_TOKEN)}, role from service_users limit 1 returning id`;

/** An instance whose connections pass a network of its own; with what it has to say. */
async function startBehind(
  options: Record<string, string>,
): Promise<{ service: Service; network: Network; said: Event[] }> {
  const network = await new Network(databaseUrl).open();
  const said: Event[] = [];
  const given = { PORT: '0', LOG_LEVEL: 'silent', ADMIN_TOKEN, ...ways(), ...options };
  const service = await startService(
    readConfig({ ...given, DATABASE_URL: network.url }),
    (event) => said.push(event),
    () => {},
  );
  t.teardown(() => service.stop());
  return { service, network, said };
}

const here = await startTestService({ databaseUrl });

async function setStatus(status: string): Promise<void> {
  const body = JSON.stringify({ status });
  const headers = { 'content-type': 'application/json' };
  t.equal((await request(here, 'PATCH', `/users/${user?.['id']}`, { body, headers })).status, 200);
}

async function statusFor(service: Service): Promise<number> {
  return (await get(service, '/users/me?fields=id', { token: USER_TOKEN })).status;
}

const kinds = (said: readonly Event[]): string[] =>
  said.map(({ kind }) => kind).filter((kind) => kind.startsWith('listening-'));

t.test('after a failover that takes a while, a user suspended elsewhere is not served', async (t) => {
  const { service, network, said } = await startBehind({ MAX_STALENESS: '1h' });
  t.equal(await statusFor(service), 200);
  await network.close();
  await passTime(1_000, 'the database is away for a while');
  await setStatus('suspended');
  await network.open();
  await waitFor(async () => (await statusFor(service)) === 401, 15_000);
  await waitFor(async () => kinds(said).length > 1, 15_000);
  t.strictSame(kinds(said), ['listening-lost', 'listening-again'], 'and the log says so, once each');
  await sql`create table made_meanwhile (id int primary key)`;
  await waitFor(async () => (await get(service, '/items/made_meanwhile')).status === 200, 5_000);
  await setStatus('active');
  await waitFor(async () => (await statusFor(service)) === 200, 5_000);
  t.match(await get(service, '/server/health'), { status: 200, json: { status: 'ok' } });
});

t.test(
  'a connection that says nothing any more is found out, and health is degraded until it is replaced',
  async (t) => {
    const { service, network, said } = await startBehind({ MAX_STALENESS: '3s' });
    t.equal(await statusFor(service), 200);
    network.muted = /listen "|pg_listening_channels/;
    await waitFor(async () => kinds(said).length > 0, 10_000);
    const degraded = await get(service, '/server/health');
    t.match(degraded, { status: 200, json: { status: 'degraded' } });
    const { checks } = degraded.json as { checks: Record<string, unknown> };
    t.match(checks['listener:lost'], [{ status: 'degraded', output: /changes of the schema, policies and users/ }]);
    t.match(await get(service, '/server/health', { token: USER_TOKEN }), { status: 200, json: { status: 'degraded' } });
    t.equal(await statusFor(service), 200);
    await setStatus('suspended');
    await waitFor(async () => (await statusFor(service)) === 401, 10_000);
    t.strictSame(kinds(said), ['listening-lost'], 'it has not heard of it');
    const policy = await request(here, 'POST', '/policies', {
      body: JSON.stringify({ name: 'new', permissions: [{ collection: 'tags', action: 'read', fields: '*' }] }),
      headers: { 'content-type': 'application/json' },
    });
    t.equal(policy.status, 200);
    const id = (policy.json as { data: { id: string } }).data.id;
    t.equal((await get(service, '/items/tags?limit=1', { token: null })).status, 403);
    await sql`insert into service_access (policy) values (${id})`;
    await waitFor(async () => (await get(service, '/items/tags?limit=1', { token: null })).status === 200, 10_000);
    network.muted = null;
    await waitFor(async () => kinds(said).includes('listening-again'), 15_000);
    t.match(await get(service, '/server/health'), { status: 200, json: { status: 'ok' } });
  },
);

/** What a connection says of itself, without one: the answer to the first LISTEN behind a loss is held back. */
t.test('a channel that is asked for while the connection comes back is heard too', async (t) => {
  const losses: (() => void)[] = [];
  let [held, isHeld]: [Promise<void>, () => void] = [Promise.resolve(), () => {}];
  let channels = new Set<string>();
  const open = (_: unknown, onLost: () => void): Session => {
    const own = new Set<string>();
    channels = own;
    losses.push(onLost);
    const query = async (text: string): Promise<unknown[]> => {
      if (!text.startsWith('listen')) return [...own].map((channel) => ({ channel }));
      for (const [, name] of text.matchAll(/listen "(\w+)"/g)) own.add(String(name));
      isHeld();
      await held;
      return [];
    };
    return { query, destroy: () => {} } as unknown as Session;
  };
  const said: string[] = [];
  const listener = new Listener(open, { staleness: 30_000, observe: ({ kind }) => said.push(kind) });
  t.teardown(() => listener.close());
  const subscriber = { heard: () => {}, missed: () => {}, stale: () => {} };
  await listener.listen('first', subscriber);
  const begun = new Promise<void>((resolve) => {
    isHeld = resolve;
  });
  let release = (): void => {};
  held = new Promise((resolve) => {
    release = resolve;
  });
  losses[0]?.();
  await begun;
  await listener.listen('second', subscriber);
  release();
  await waitFor(async () => said.includes('listening-again'), 10_000);
  t.strictSame([...channels].sort(), ['first', 'second']);
});
