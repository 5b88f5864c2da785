/**
 * Databases of earlier versions, also next to an instance of such a version, and tables of features that the service does not have: they
 * stay hidden, and the start and the doctor report them.
 */
import t from 'tap';
import { features } from '../../../src/app/features.js';
import { openTables } from '../../../src/server/feature/tables.js';
import { runCommand } from '../../support/command.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createDatabase,
  get,
  type Sql,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase({ own: true });
const { migrations } = openTables(features);

/** The last migration of each version that must upgrade. */
const VERSIONS = {
  '34789d2': '008_activity.sql',
  '4796c14': '023_live_channels.sql',
  '2ac6b1e5': '030_token_note.sql',
};

for (const [version, last] of Object.entries(VERSIONS))
  t.test(`a database of ${version} upgrades, and an instance of that version applies nothing again`, async (t) => {
    const url = await createDatabase(server, `version_${version}`);
    const sql = connectSql(url);
    t.teardown(() => sql.end());
    await sql`create table orders (id serial primary key)`;
    await sql`create table service_migrations (name text primary key, applied_at timestamptz not null default now())`;
    const earlier = migrations.filter(({ name }) => name <= last);
    for (const { name, text } of earlier) {
      await sql.unsafe(text).simple();
      await sql`insert into service_migrations (name) values (${name})`;
    }
    await sql`insert into orders default values`;
    const service = await startTestService({ databaseUrl: url, ADMIN_TOKEN });
    t.match(await get(service, '/items/orders'), { json: { data: [{ id: 1 }] } });
    t.match(await get(service, '/webhooks'), { status: 200, json: { data: [] } });
    const applied = (await sql`select name from service_migrations`).map(({ name }) => String(name));
    t.strictSame(
      earlier.filter(({ name }) => !applied.includes(name)),
      [],
      'the earlier version finds each of its files',
    );
    const recorded = (await sql`select name from service_tables`).map(({ name }) => String(name));
    for (const name of ['service_files', 'service_versions', 'service_webhooks', 'service_adopted'])
      t.ok(recorded.includes(name), `${name} is recorded`);
    await service.stop();
  });

t.test('tables of a feature that the service does not have stay hidden', async (t) => {
  const url = await createDatabase(server, 'leftovers');
  const sql = connectSql(url);
  t.teardown(() => sql.end());
  await (await startTestService({ databaseUrl: url, ADMIN_TOKEN })).stop();
  await addReminders(sql);
  for (const WORKERS of ['1', '2']) {
    const service = await startTestService({ databaseUrl: url, ADMIN_TOKEN, WORKERS });
    t.match(await get(service, '/items/service_reminders'), { status: 403 });
    t.match(await get(service, '/reminders'), { status: 404 });
    const { text } = await get(service, '/server/specs/graphql/system');
    t.notMatch(text, /reminders/);
    t.notMatch((await get(service, '/schema/snapshot')).text, /reminders/);
    await service.stop();
  }
  const { output } = await runCommand(['doctor'], { DATABASE_URL: url });
  t.match(output, /note +tables of features that this service does not have stay hidden:\s+service_reminders$/m);
  t.match(output, /drop trigger "remind" on public\.orders;/);
  await sql`drop trigger remind on orders`;
  t.notMatch((await runCommand(['doctor'], { DATABASE_URL: url })).output, /triggers use tables/);
});

/** Makes what a feature would have made. */
async function addReminders(sql: Sql): Promise<void> {
  await sql.unsafe(`
    create table orders (id serial primary key);
    create table service_reminders (id serial primary key, secret text);
    insert into service_tables (name) values ('service_reminders');
    create function service_remind() returns trigger language plpgsql as $$
      begin insert into service_reminders (secret) values ('x'); return null; end $$;
    create trigger remind after insert on orders for each row execute function service_remind()`);
}
