/** DATABASE_DIRECT_URL with several hosts: changes are heard from the primary, and from the next one after a failover. */
import t from 'tap';
import { promote, startPrimary, startStandby } from '../../support/cluster.js';
import {
  createLibrary,
  databaseUrl,
  get,
  startTestService,
  type TestServer,
  waitFor,
  withSql,
} from '../../support/service.js';

const NAME = 'direct';
const primary = await startPrimary();
const url = await createLibrary(primary, NAME);
const standby = await startStandby(primary);
const hostOf = (server: TestServer): string => new URL(server.url).host;
const hosts = url.replace(hostOf(primary), `${hostOf(standby)},${hostOf(primary)}`);
// Nothing but a notification tells of a change in time.
const options = { databaseUrl: hosts, DATABASE_DIRECT_URL: hosts, SCHEMA_POLL_INTERVAL: '0', MAX_STALENESS: '10m' };
// Where attempts take turns among the hosts, one of two meets the standby first.
const services = [await startTestService(options), await startTestService(options)];

/** Milliseconds until both instances have it. */
async function hearOf(column: string, server: TestServer): Promise<number> {
  await withSql(databaseUrl(server, NAME), (sql) => sql.unsafe(`alter table articles add ${column} integer`));
  const isServed = async (): Promise<boolean> => {
    const answers = await Promise.all(services.map((service) => get(service, `/items/articles/1?fields=${column}`)));
    return answers.every(({ status }) => status === 200);
  };
  return waitFor(isServed, 15_000);
}

t.test('a change is heard from the primary', async (t) => {
  t.ok((await hearOf('before', primary)) < 15_000);
});

t.test('after a failover it is heard from the next one', async (t) => {
  await primary.stop();
  await promote(standby);
  t.ok((await hearOf('behind', standby)) < 15_000);
});
