/** Triggers that are not alone: those of another installation in the database, and what others do to ours. */

import t from 'tap';
import { readConfig } from '../../../src/app/options.js';
import { type Service, withDatabase } from '../../../src/app/start.js';
import { createObserver } from '../../../src/base/observe.js';
import { packagePath } from '../../../src/base/package-files.js';
import { ChangeStream } from '../../../src/features/change-stream/change-stream.js';
import {
  inspectTriggers,
  installedTriggers,
  installTriggers,
  removeTriggers,
} from '../../../src/features/change-stream/live-triggers.js';
import { TriggerSource } from '../../../src/features/change-stream/trigger-source.js';
import { servedTables } from '../../../src/features/live/command.js';
import type { Sources, TableName } from '../../../src/server/changes/change-source.js';
import { locateSystemTables } from '../../../src/server/postgres/catalog/migrate.js';
import type { Database } from '../../../src/server/postgres/pools/database.js';
import { EventStream } from '../../support/event-stream.js';
import { installedVersions, startInstalled } from '../../support/installed-server.js';
import { MessageSocket } from '../../support/message-socket.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  get,
  runProgram,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

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

/** Of an installation beside the one in public. */
const OTHER_SYSTEM = `Own "place" of a name that is nearly as long as they can be`;

t.test('two installations in one database have triggers of their own, also on the same table', async (t) => {
  const system = OTHER_SYSTEM;
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
  await waitFor(async () => /triggers: changes are reported by triggers/.test(await healthOf(first)), 5_000);

  t.match(await ofSecond('live', 'install'), { code: 0, output: /^other.things {2}has triggers$/m });
  t.match(await ofFirst('live', 'install'), { code: 0, output: /Nothing to do/ });
  t.equal(await triggers('public'), installed, 'those of the first stay');
  t.strictSame([await triggers('public', 'tags'), await triggers(system, 'tags')], [4, 4]);
  streams.push(new EventStream(second, '/items/public_tags/1?fields=name'));
  streams.push(new EventStream(second, '/items/things'));
  for (const stream of streams) await stream.count(1);
  await waitFor(async () => /triggers: changes are reported by triggers/.test(await healthOf(second)), 5_000);
  // What is read when the stream has opened is read soon.
  await passTime(500, 'what opens with the stream is read');
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

  t.match(await ofSecond('live', 'remove'), { code: 0, output: /^public.tags {2}has no triggers now$/m });
  t.strictSame([await triggers('public'), await triggers(system)], [installed, 0]);
  await waitFor(async () => /polled every second.*no triggers are installed/.test(await healthOf(second)), 5_000);
  const socket = await new MessageSocket(second).opened();
  await socket.signIn(ADMIN_TOKEN);
  t.match(
    await socket.ask({ type: 'subscribe', collection: 'tags' }),
    { status: 'error', error: { code: 'SERVICE_UNAVAILABLE', message: /no triggers are installed/ } },
    'events would not be told',
  );
  socket.close();
  await sql`update tags set name = 'to the first' where id = 1`;
  await streams[0]?.count(3);
  t.match(await healthOf(first), /triggers: changes are reported by triggers/);
  await Promise.all([first.stop(), second.stop()]);
});

t.test('triggers of a former version, which notify nobody any more, go with the update', async (t) => {
  const [removed] = await sql`delete from service_migrations where name like '023%' returning name`;
  t.ok(removed);
  await sql`drop function service_live_change() cascade`;
  await sql.file(packagePath('sql', 'server', 'system', '021_live.sql'));
  await sql`create trigger service_live_update after update on tags referencing old table as old_rows new table as new_rows
    for each statement execute function service_live_change('id')`;
  const service = await startTestService({ databaseUrl: url, WORKERS: '1', LIVE: 'triggers' });
  t.strictSame([...(await sql`select from pg_trigger where tgname = 'service_live_update'`)], []);
  const stream = new EventStream(service, '/items/tags/1?fields=name');
  await stream.count(1);
  await waitFor(async () => /triggers: changes are reported by triggers/.test(await healthOf(service)), 5_000);
  await sql`update tags set name = 'after the update' where id = 1`;
  await stream.count(2);
  stream.close();
  await service.stop();
});

t.test('each of two threads installs what is missing, and hears of every change', async (t) => {
  t.match(await runProgram(['live', 'remove'], { DATABASE_URL: url }), { code: 0 });
  const service = await startTestService({ databaseUrl: url, WORKERS: '2', LIVE: 'triggers' });
  const streams = Array.from({ length: 8 }, () => new EventStream(service, '/items/tags/1?fields=name'));
  t.teardown(() => {
    for (const stream of streams) stream.close();
  });
  for (const stream of streams) await stream.count(1);
  await waitFor(async () => (await healthOf(service)).split('changes are reported by triggers').length === 3, 10_000);
  await sql`update tags set name = 'to all' where id = 1`;
  for (const stream of streams) {
    await waitFor(async () => stream.events.length > 1, 5_000);
    t.strictSame(stream.last, { data: { name: 'to all' } });
  }
  await service.stop();
});

t.test('through a pooler that gives each transaction another session there are none, and it is said why', async (t) => {
  const options = { DATABASE_POOLER: 'transaction', LIVE: 'triggers' };
  const service = await startTestService({ databaseUrl: url, WORKERS: '1', ...options });
  const stream = new EventStream(service, '/items/tags');
  await stream.ended();
  t.equal(stream.status, 503);
  t.match(stream.text, /notifications do not arrive through a pooler: set DATABASE_DIRECT_URL/);
  t.match(await healthOf(service), /off: notifications do not arrive through a pooler: set DATABASE_DIRECT_URL/);
  const { output } = await runProgram(['doctor'], { DATABASE_URL: url, ...options });
  t.match(
    output,
    /PROBLEM +there are none: LIVE is triggers; notifications do not arrive through a pooler: set\s+DATABASE_DIRECT_URL/,
  );
  await service.stop();
  const direct = await startTestService({ databaseUrl: url, WORKERS: '1', ...options, DATABASE_DIRECT_URL: url });
  const heard = new EventStream(direct, '/items/tags/1?fields=name');
  await heard.count(1);
  await waitFor(async () => /changes are reported by triggers/.test(await healthOf(direct)), 5_000);
  await sql`update tags set name = 'past the pooler' where id = 1`;
  await heard.count(2);
  t.strictSame(heard.last, { data: { name: 'past the pooler' } });
  heard.close();
  await direct.stop();
});

const OLDEST = '15';
const skip = installedVersions().includes(OLDEST)
  ? false
  : `PostgreSQL ${OLDEST} is not installed in /usr/lib/postgresql`;

t.test('the oldest PostgreSQL that is supported has them as well', { skip }, async (t) => {
  const oldUrl = await startInstalled(OLDEST, { wal_level: 'replica' });
  const old = connectSql(oldUrl);
  t.teardown(() => old.end());
  await old.unsafe(`
    create table parted (id int, part int, v text, primary key (id, part)) partition by range (part);
    create table parted_low partition of parted for values from (0) to (100);
    insert into parted values (1, 1, 'first'), (2, 1, 'second')`);
  const service = await startTestService({ databaseUrl: oldUrl, WORKERS: '1', LIVE: 'triggers' });
  const [followed, other] = [1, 2].map((id) => new EventStream(service, `/items/parted/${id}~1?fields=v`));
  for (const stream of [followed, other]) await stream?.count(1);
  await waitFor(async () => /changes are reported by triggers/.test(await healthOf(service)), 5_000);
  await passTime(500, 'what opens with the stream is read');
  const before = await readsOf(service);
  for (const [position, write] of [
    () => old`update parted set v = 'by its root' where id = 1`,
    () => old`update parted_low set v = 'by itself' where id = 1`,
  ].entries()) {
    await write();
    await followed?.count(position + 2);
  }
  t.strictSame([followed?.last, (await readsOf(service)) - before], [{ data: { v: 'by itself' } }, 2]);
  for (const stream of [followed, other]) stream?.close();
  await service.stop();
});

/** What a stream of changes needs, on a database that nothing else uses. */
async function withSource<Result>(
  work: (database: Database, tables: readonly TableName[]) => Promise<Result>,
  options: Readonly<Record<string, string>> = {},
): Promise<Result> {
  const config = readConfig({ DATABASE_URL: url, ...options });
  return withDatabase(
    config,
    createObserver('silent'),
    () => {},
    async (database) => {
      await locateSystemTables(database, config.SYSTEM_SCHEMA);
      return work(database, await servedTables(database));
    },
  );
}

t.test('triggers that are disabled or dropped are made anew, and all begin anew', async (t) => {
  await withSource(async (database, tables) => {
    let resyncs = 0;
    let losses = 0;
    const source = new TriggerSource({ database, tables: () => tables, installsFirst: false, ping: 20 });
    const listener = {
      wanted: () => null,
      committed: () => {},
      arriving: () => {},
      refreshing: () => {},
      resynced: () => void resyncs++,
      lost: () => void losses++,
    };
    const stream = new ChangeStream([source], listener, () => {});
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
        await passTime(300, 'nothing is repaired again');
        t.equal(resyncs, settled, statement);
      }
      t.equal(losses, 0);
    } finally {
      await stream.close();
    }
  });
});

t.test('a table that is served since the stream began to open is seen', async (t) => {
  await withSource(async (database, tables) => {
    let served: readonly TableName[] = tables.filter(({ name }) => name !== 'tags');
    let seen: readonly string[] = [];
    const listener = {
      wanted: () => null,
      committed: () => {},
      arriving: () => {},
      refreshing: () => {},
      resynced: (sources: Sources) => {
        seen = [...sources.keys()];
      },
      lost: () => {},
    };
    const source = new TriggerSource({ database, tables: () => changing(), installsFirst: true });
    const stream = new ChangeStream([source], listener, () => {});
    const changing = (): readonly TableName[] => {
      const before = served;
      if (before === tables) return tables;
      served = tables;
      stream.tablesChanged();
      return before;
    };
    try {
      stream.open();
      await waitFor(async () => seen.includes('public.tags'), 5_000).catch(() => t.fail('it is not seen'));
    } finally {
      await stream.close();
    }
  });
});

t.test('a table that is in use for a moment gets triggers at the next look at the connection', async (t) => {
  await withSource(async (database, tables) => {
    const busy = connectSql(url);
    t.teardown(() => busy.end());
    await sql`drop trigger service_live_update_public on tags`;
    await busy.unsafe('begin; lock table tags in row exclusive mode');
    const opened: number[] = [];
    const listener = {
      wanted: () => null,
      committed: () => {},
      arriving: () => {},
      refreshing: () => {},
      resynced: () => void opened.push(0),
      lost: () => {},
    };
    // Six of these are between two looks for missing ones, longer than is waited for.
    const source = new TriggerSource({ database, tables: () => tables, installsFirst: false, ping: 5_000 });
    const stream = new ChangeStream([source], listener, () => {});
    try {
      stream.open();
      await waitFor(async () => opened.length === 1, 5_000);
      t.equal(await triggers('public', 'tags'), 3);
      await busy`commit`.simple();
      await waitFor(async () => opened.length === 2, 5_000).catch(() => t.fail('not seen'));
      t.equal(await triggers('public', 'tags'), 4);
    } finally {
      await stream.close();
    }
  });
});

t.test('while triggers are removed nobody makes those again that are missing beside the others', async (t) => {
  await withSource(async (database, tables) => {
    const [first, ...others] = await installedTriggers(database);
    t.ok(first && others.length > 1);
    const { statements = [] } = first ?? {};
    await sql.unsafe(statements.join('; '));
    const { missing } = await inspectTriggers(database, tables);
    t.equal(missing.length, 1);
    // The command waits for this table when it has removed those of some others.
    const busy = connectSql(url);
    t.teardown(() => busy.end());
    const last = others.at(-1);
    await busy.unsafe(`begin; lock table ${last?.schema}.${last?.name} in row exclusive mode`);
    // What the connection that holds the lock is given, at least ten seconds elsewhere, is not enough.
    const limit = database.own.use((session) => session.query("set idle_in_transaction_session_timeout = '300ms'"));
    const removing = limit.then(() => removeTriggers(database, others, { lockTimeout: 10_000 }));
    await waitFor(async () => (await triggers('public')) === 4, 5_000);
    await passTime(600, 'the transaction is idle for longer than it may');
    const installing = { lockTimeout: 100, onlyWithOthers: true };
    t.match([...(await installTriggers(database, missing, installing)).values()], [/lock timeout/]);
    const beside = await withSource(
      async (other) => {
        const { missing: wanted } = await inspectTriggers(other, [{ schema: 'other', name: 'things' }]);
        t.equal(wanted.length, 1);
        return installTriggers(other, wanted, { lockTimeout: 1_000, onlyWithOthers: false });
      },
      { DATABASE_SCHEMAS: 'other', SYSTEM_SCHEMA: OTHER_SYSTEM },
    );
    t.strictSame([...beside], [], 'another installation does not wait for it');
    const late = installTriggers(database, missing, { ...installing, lockTimeout: 10_000 });
    await busy`commit`.simple();
    t.equal((await removing).size, 0);
    t.strictSame([...(await late).values()], ['the others were removed']);
    t.equal(await triggers('public'), 0);
  });
});

t.test('a removal that is broken off says what it did, and running instances are told', async (t) => {
  t.match(await runProgram(['live', 'install'], { DATABASE_URL: url }), { code: 0 });
  const [busy, heard] = [connectSql(url), connectSql(url)];
  t.teardown(() => Promise.all([busy.end(), heard.end()]));
  const told: string[] = [];
  await heard.listen('service_live_public', (payload) => void told.push(payload));
  await busy.unsafe('begin; lock table tags in row exclusive mode');
  const removing = runProgram(['live', 'remove'], { DATABASE_URL: url });
  await waitFor(async () => (await triggers('public', 'articles')) === 0, 10_000);
  const ended = await sql`
    select pg_terminate_backend(pid) from pg_locks join pg_database on oid = database
    where locktype = 'advisory' and granted and datname = current_database()`;
  t.equal(ended.length, 1);
  const { code, output, complaints } = await removing;
  t.equal(code, 1);
  t.match(output, /^public\.articles {2}has no triggers now$/m);
  t.match(output, /^public\.tags {2}failed: .*lock timeout/m);
  t.match(complaints, /connection/);
  await waitFor(async () => told.includes('tables'), 5_000).catch(() => t.fail('they were not told'));
  await busy`commit`.simple();
});
