/**
 * Changes of a user, a policy and the schema on one of three instances: the others know of them within a second; also when the
 * connections that they hear of them on were ended, and when they could not be opened again for a while.
 */
import t, { type Test } from 'tap';
import type { Service } from '../../../src/app/start.js';
import { makeCaller } from '../../support/callers.js';
import { startThree } from '../../support/counted.js';
import { Network } from '../../support/network-proxy.js';
import { connectSql, createLibrary, get, request, startDatabase, waitFor } from '../../support/service.js';
import { passTime } from '../../support/time.js';
import { makeUser } from '../../support/users.js';

const server = await startDatabase();
const libraryUrl = await createLibrary(server, 'three');
const sql = connectSql(libraryUrl);
t.teardown(() => sql.end());
const network = await new Network(libraryUrl).open();
const user = await makeUser(sql, 'eve');
const caller = await makeCaller(sql, 'reader', [{ permissions: [{ collection: 'tags', action: 'read' }] }]);
const services = await startThree({ databaseUrl: network.url, DATABASE_DIRECT_URL: network.url, WORKERS: '1' });

/** Each instance has a connection on which it hears of changes. */
async function allListen(): Promise<void> {
  await waitFor(async () => {
    const listeners = await sql`
      select from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and query like '%pg_listening_channels()%'`;
    return listeners.length >= services.length;
  }, 10_000);
}

/** Ends the connections on which changes are heard of, as soon as each instance has one: it may know of a change before that. */
async function cut(): Promise<void> {
  const end = (): Promise<readonly object[]> => sql`
    with listeners as (
      select pid from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and query like '%pg_listening_channels()%'
    )
    select pg_terminate_backend(pid) from listeners where (select count(*) from listeners) >= ${services.length}`;
  await waitFor(async () => (await end()).length > 0, 10_000);
}

async function send(service: Service, method: string, path: string, body: object): Promise<void> {
  const headers = { 'content-type': 'application/json' };
  const { status, text } = await request(service, method, path, { headers, body: JSON.stringify(body) });
  if (status !== 200 && status !== 204) throw new Error(text);
}

interface Change {
  readonly make: (round: number) => Promise<void>;
  /** Whether an instance knows of it. */
  readonly isKnown: (service: Service, round: number) => Promise<boolean>;
}

const [one, two, three] = services as [Service, Service, Service];
const statusOf = async (service: Service, path: string, token?: string): Promise<number> =>
  (await get(service, path, token === undefined ? {} : { token })).status;
const isOn = (round: number): boolean => round % 2 === 0;

const CHANGES: Readonly<Record<string, Change>> = {
  user: {
    make: (round) => send(one, 'PATCH', `/users/${user.id}`, { status: isOn(round) ? 'active' : 'suspended' }),
    isKnown: async (service, round) => ((await statusOf(service, '/users/me', user.token)) === 200) === isOn(round),
  },
  policy: {
    make: async (round) => {
      const [row] = await sql`select id from service_permissions where policy = ${caller.policies[0] ?? ''}`;
      await send(two, 'PATCH', `/permissions/${row?.['id']}`, { action: isOn(round) ? 'read' : 'delete' });
    },
    isKnown: async (service, round) => ((await statusOf(service, '/items/tags', caller.token)) === 200) === isOn(round),
  },
  schema: {
    make: (round) => send(three, 'POST', '/fields/tags', { field: `note_${round}`, type: 'string' }),
    isKnown: async (service, round) => (await statusOf(service, `/items/tags?fields=note_${round}`)) === 200,
  },
};

/** What a question takes on a machine that is busy with other things is not what this is about. */
async function patience(): Promise<number> {
  const asked = performance.now();
  for (const service of services) await statusOf(service, '/users/me', user.token);
  return 1_000 + 3 * (performance.now() - asked);
}

/** Within a second from now on all of them know of it. */
async function expectKnown(t: Pick<Test, 'ok'>, { isKnown }: Change, round: number, limit: number): Promise<void> {
  const times = await Promise.all(services.map((service) => waitFor(() => isKnown(service, round), 8_000)));
  const taken = Math.max(...times);
  t.ok(taken < limit, `within ${Math.round(taken)} ms`);
}

let round = 0;
for (const [name, change] of Object.entries(CHANGES)) {
  t.test(`a change of the ${name} is known to all`, async (t) => {
    const limit = await patience();
    await change.make(++round);
    await expectKnown(t, change, round, limit);
  });

  t.test(`a change of the ${name} is known to all after the connections were ended`, async (t) => {
    const limit = await patience();
    await cut();
    await change.make(++round);
    await expectKnown(t, change, round, limit);
  });

  t.test(`a change of the ${name} is known to all as soon as they can be reached again`, async (t) => {
    const limit = await patience();
    // An instance that still connects again could not, and had no connection to end.
    await allListen();
    network.unanswered = /listen /i;
    await cut();
    await change.make(++round);
    await passTime(3_000, 'they cannot listen for a while');
    network.unanswered = null;
    await expectKnown(t, change, round, limit);
  });
}
