/**
 * Publications that another role has made (docs/live-setup.md): the role of the service owns its own tables alone. The tables of the
 * publication are live, before and after a restart; others are refused, and begin when they are published.
 */
import t from 'tap';
import { EventStream } from '../../support/event-stream.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  get,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase({ own: true });
const url = await createDatabase(server, 'published');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`create role app login password 'app' replication; grant create on schema public to app;
  create table notes (id serial primary key, text text); create table others (id serial primary key, text text);
  grant all on notes, others to app; grant usage on all sequences in schema public to app`);
const appUrl = new URL(url);
[appUrl.username, appUrl.password] = ['app', 'app'];
const service = await startTestService({ databaseUrl: appUrl.href, WORKERS: '1' });

function open(path: string): EventStream {
  const stream = new EventStream(service, path);
  t.teardown(() => stream.close());
  return stream;
}

function subscribe(path: string): Promise<Answer> {
  return get(service, path, { headers: { accept: 'text/event-stream' } });
}

/** Subscribes until the stream begins. */
async function waitForLive(path: string): Promise<void> {
  await waitFor(async () => {
    const stream = open(path);
    await waitFor(async () => stream.status !== 0, 5_000);
    stream.close();
    return stream.status === 200;
  }, 20_000);
}

t.test('without publications nothing is live, and the response names the reason', async (t) => {
  t.match(await subscribe('/items/notes'), { status: 503, text: /may not create the publication lateral_live/ });
});

t.test('a running service finds publications that somebody makes', async (t) => {
  await sql.unsafe(`create publication lateral_live for table notes with (publish_via_partition_root);
    create publication lateral_live_keyless`);
  await waitForLive('/items/notes');
  const stream = open('/items/notes?fields=text');
  await stream.count(1);
  await sql`insert into notes (text) values ('by SQL')`;
  await stream.count(2);
  t.strictSame(stream.last, { data: [{ text: 'by SQL' }] });
});

t.test('a table that nobody has published is refused until it is', async (t) => {
  t.match(await subscribe('/items/others'), { status: 422, text: /others.*not published/ });
  await sql`alter publication lateral_live add table others`;
  await waitForLive('/items/others');
});
