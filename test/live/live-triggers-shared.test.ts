/** Triggers that are not alone: those of another installation in the database, and what others do to ours. */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { servedTables } from '../../src/commands/served-tables.js';
import { readConfig } from '../../src/config.js';
import { ChangeStream } from '../../src/live/change-stream.js';
import { TriggerSource } from '../../src/live/trigger-source.js';
import { createObserver } from '../../src/observe.js';
import { locateSystemTables } from '../../src/postgres/migrate.js';
import { type Service, withDatabase } from '../../src/service.js';
import { EventStream } from '../support/event-stream.js';
import {
  connectSql,
  createLibrary,
  get,
  runProgram,
  startDatabase,
  startTestService,
  waitFor,
} from '../support/service.js';

const server = await startDatabase({ settings: { wal_level: 'replica' } });
const url = await createLibrary(server, 'live_triggers_shared');
const sql = connectSql(url);
t.teardown(() => sql.end());

/** Triggers of the installation in this schema, of a table or of all. */
async function triggers(system: string, table: string | null = null): Promise<number> {
  const [row] = await sql<{ count: number }[]>`
    select count(*)::int as count from pg_trigger t join pg_proc f on f.oid = t.tgfoid
    where f.proname = 'service_live_change' and f.pronamespace = (select oid from pg_namespace where nspname = ${system})
      and t.tgenabled = 'O' and (${table}::text is null or t.tgrelid = ${table}::text::regclass)`;
  return row?.count ?? 0;
}

const healthOf = async (service: Service): Promise<string> => (await get(service, '/server/health')).text;

async function readsOf(service: Service): Promise<number> {
  const { text } = await get(service, '/server/metrics');
  return Number(/^lateral_live_reads_total(?:\{[^}]*\})? (\d+)/m.exec(text)?.[1]);
}

t.test('two installations in one database have triggers of their own, also on the same table', async (t) => {
  const system = `Own "place" of a name that is nearly as long as they can be`;
  await sql`create schema other`;
  await sql`create table other.things (id int primary key, v text)`;
  await sql`insert into tags (id, name) values (1, 'first') on conflict (id) do update set name = 'first'`;
  const options = { DATABASE_SCHEMAS: 'other,public', SYSTEM_SCHEMA: system };
  const first = await startTestService({ databaseUrl: url, WORKERS: '1' });
  const second = await startTestService({ databaseUrl: url, WORKERS: '1', ...options });
  const ofFirst = (...words: string[]): ReturnType<typeof runProgram> => runProgram(words, { DATABASE_URL: url });
  const ofSecond = (...words: string[]): ReturnType<typeof runProgram> =>
    runProgram(words, { DATABASE_URL: url, ...options });

  t.match(await ofFirst('live', 'install'), { code: 0 });
  const installed = await triggers('public');
  t.match(await healthOf(first), /triggers: opened by the first subscription/);
  t.match(
    await healthOf(second),
    /off: [^"]*no triggers are installed/,
    'those of the other are not taken for own ones',
  );
  t.match((await ofSecond('doctor')).output, /there are none: wal_level is replica[\s\S]*lateral live install/);
  t.match(await ofSecond('live', 'remove'), { code: 0, output: /Nothing to do/ });
  const streams = [new EventStream(first, '/items/tags/1?fields=name')];
  t.teardown(() => streams.forEach((stream) => void stream.close()));
  await streams[0]?.count(1);
  await waitFor(async () => /triggers: changes are told by triggers/.test(await healthOf(first)), 5_000);

  t.match(await ofSecond('live', 'install'), { code: 0, output: /^other.things {2}has triggers$/m });
  t.match(await ofFirst('live', 'install'), { code: 0, output: /Nothing to do/ });
  t.equal(await triggers('public'), installed, 'those of the first stay');
  t.strictSame([await triggers('public', 'tags'), await triggers(system, 'tags')], [4, 4]);
  streams.push(new EventStream(second, '/items/public_tags/1?fields=name'));
  streams.push(new EventStream(second, '/items/things'));
  for (const stream of streams) await stream.count(1);
  await waitFor(async () => /triggers: changes are told by triggers/.test(await healthOf(second)), 5_000);
  // What is read when the stream has opened is read soon.
  await sleep(500);
  const before = [await readsOf(first), await readsOf(second)];
  await sql`update tags set name = 'to both' where id = 1`;
  for (const stream of streams.slice(0, 2)) {
    await stream.count(2);
    t.strictSame(stream.last, { data: { name: 'to both' } });
  }
  t.strictSame(
    [await readsOf(first), await readsOf(second)],
    before.map((count) => count + 1),
    'each is told once',
  );

  t.match(await ofSecond('live', 'remove'), { code: 0, output: /^public.tags {2}has no triggers any more$/m });
  t.strictSame([await triggers('public'), await triggers(system)], [installed, 0]);
  await waitFor(async () => /polled every second.*no triggers are installed/.test(await healthOf(second)), 5_000);
  await sql`update tags set name = 'to the first' where id = 1`;
  await streams[0]?.count(3);
  t.match(await healthOf(first), /triggers: changes are told by triggers/);
  await Promise.all([first.stop(), second.stop()]);
});

t.test('triggers that are disabled or dropped are made anew, and all begin anew', async (t) => {
  const config = readConfig({ DATABASE_URL: url });
  const observe = createObserver('silent');
  await withDatabase(
    config,
    observe,
    () => {},
    async (database) => {
      await locateSystemTables(database, null);
      const tables = await servedTables(database);
      let resyncs = 0;
      let losses = 0;
      const source = new TriggerSource({ database, tables: () => tables, installsFirst: false, beat: 20 });
      const listener = {
        wanted: () => null,
        committed: () => {},
        resynced: () => void resyncs++,
        lost: () => void losses++,
      };
      const stream = new ChangeStream([source], listener, observe);
      try {
        stream.open();
        await waitFor(async () => resyncs === 1, 5_000);
        for (const statement of [
          'alter table tags disable trigger user',
          'alter table tags disable trigger service_live_update_public',
          'drop trigger service_live_delete_public on tags',
          'drop trigger service_live_insert_public on tags; drop trigger service_live_truncate_public on authors',
        ]) {
          const known = resyncs;
          await sql.unsafe(statement);
          await waitFor(async () => resyncs > known, 5_000).catch(() => t.fail(statement));
          t.strictSame([await triggers('public', 'tags'), await triggers('public', 'authors')], [4, 4], statement);
          // Nothing is missing any more.
          const settled = resyncs;
          await sleep(300);
          t.equal(resyncs, settled, statement);
        }
        t.equal(losses, 0);
      } finally {
        await stream.close();
      }
    },
  );
});
