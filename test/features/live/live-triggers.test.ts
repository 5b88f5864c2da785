/** Live queries and events where the log cannot be read: triggers tell which rows have changed. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import t, { type Test } from 'tap';
import { runCommand } from '../../support/command.js';
import { EventStream } from '../../support/event-stream.js';
import { EventFollower } from '../../support/live-follower.js';
import {
  ADMIN_TOKEN,
  connectSql,
  createLibrary,
  databaseUrl,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase({ settings: { wal_level: 'replica', max_prepared_transactions: '5' } });
const url = await createLibrary(server, 'live_triggers');
const sql = connectSql(url);
t.teardown(() => sql.end());

const ODD = 'odd "table" %s é';
await sql.unsafe(`
  create table "odd ""table"" %s é" ("k é" uuid, "b%s" bigint, v text, primary key ("k é", "b%s"));
  create table keyless (v text);
  create table parted (id int primary key, v text) partition by range (id);
  create table parted_low partition of parted for values from (0) to (100);
  create table ancestor (id int primary key, v text);
  create table heir (primary key (id)) inherits (ancestor);
  create table dated (day date primary key, v text);
  create role writer login password 'writer';
  grant insert, update, delete on tags to writer;
  grant usage on sequence tags_id_seq to writer;
  revoke all on function pg_notify(text, text) from public`);

const service = await startTestService({ databaseUrl: url, WORKERS: '1' });

function open(t: Test, path: string): EventStream {
  const stream = new EventStream(service, path);
  t.teardown(() => stream.close());
  return stream;
}

const health = async (): Promise<string> => JSON.stringify((await get(service, '/server/health')).json);
/** Of live queries, until now. */
const reads = async (): Promise<number> => {
  const { text } = await get(service, '/server/metrics');
  return Number(/^lateral_live_reads_total(?:\{[^}]*\})? (\d+)/m.exec(text)?.[1]);
};
const triggers = async (): Promise<number> => {
  const [row] = await sql`select count(*)::int as count from pg_trigger where starts_with(tgname, 'service_live_')`;
  return Number(row?.['count']);
};
const run = (...words: string[]): ReturnType<typeof runCommand> => runCommand(words, { DATABASE_URL: url });

/** A list that grows by what is written. */
async function seen(t: Test, path: string, write: () => Promise<unknown>, expected: RegExp): Promise<void> {
  const stream = open(t, path);
  await stream.count(1, 10_000);
  t.notMatch(stream.events.at(-1)?.data, expected, path);
  await write();
  await waitFor(async () => expected.test(stream.events.at(-1)?.data ?? ''), 5_000).catch(() =>
    t.fail(`${path}: ${stream.events.at(-1)?.data}`),
  );
  t.equal(stream.events.at(-1)?.data, (await get(service, path)).text);
  stream.close();
}

t.test('without triggers there are no live queries, and it is said what to do', async (t) => {
  const stream = open(t, '/items/tags');
  await stream.ended();
  t.equal(stream.status, 503);
  t.match(stream.text, /wal_level is replica.*lateral live install/);
  t.match(await health(), /off: wal_level is replica.*no triggers are installed/);
  const doctor = await run('doctor');
  t.match(doctor.output, /note +there are none: wal_level is replica[\s\S]*lateral live install/);
});

t.test('they are installed on request', async (t) => {
  const dry = await run('live', 'install', '--dry-run');
  t.match(dry, {
    code: 0,
    output: /^create or replace trigger "service_live_insert_public" after insert on "public"."parted_low"/m,
  });
  t.equal(await triggers(), 0, 'a dry run changes nothing');
  t.match(await run('live', 'install'), { code: 0, output: /^public.tags {2}has triggers$/m });
  t.not(await triggers(), 0);
  t.match(await run('live', 'install'), { code: 0, output: /Nothing to do/ });
  t.match((await run('live')).complaints, /install or remove/);
  const doctor = await run('doctor');
  t.match(doctor.output, /triggers report changes: \d+ tables have them/);
  t.match(doctor.output, /PREPARE\s+TRANSACTION fails/);
});

t.test('changes of anybody are seen', async (t) => {
  const writer = connectSql(databaseUrl(server, 'live_triggers', { user: 'writer', password: 'writer' }));
  t.teardown(() => writer.end());
  await seen(
    t,
    '/items/tags?sort=id',
    () => writer`insert into tags (name) values ('by a role without rights')`,
    /without rights/,
  );
  t.match(await health(), /triggers: changes are reported by triggers \(wal_level is replica/);
  await seen(t, '/items/authors/1?fields=name', () => sql`update authors set name = 'Trigger' where id = 1`, /Trigger/);
  const counted = '/items/authors?aggregate[count]=*&filter[name][_eq]=counted';
  await seen(t, counted, () => sql`insert into authors (name) select 'counted' from generate_series(1, 3)`, /3/);
  const copied = async (): Promise<void> => {
    const stream = await sql`copy tags (name) from stdin`.writable();
    await pipeline(Readable.from(['copied\n']), stream);
  };
  await seen(t, '/items/tags?sort=id&fields=name', copied, /copied/);
  const body = JSON.stringify({ name: 'by the API' });
  const headers = { 'content-type': 'application/json' };
  await seen(t, '/items/tags?sort=id', () => request(service, 'POST', '/items/tags', { body, headers }), /by the API/);
  await seen(t, `/items/parted?sort=id`, () => sql`insert into parted values (1, 'by its root')`, /by its root/);
  await seen(t, `/items/parted/1`, () => sql`update parted_low set v = 'by itself' where id = 1`, /by itself/);
  await seen(t, '/items/keyless', () => sql`insert into keyless values ('one')`, /one/);
  await seen(t, '/items/keyless', () => sql`update keyless set v = 'two'`, /two/);
  await sql`insert into heir values (7, 'own')`;
  await seen(t, '/items/heir/7', () => sql`update ancestor set v = 'by its ancestor'`, /by its ancestor/);
  await seen(t, '/items/ancestor?sort=id', () => sql`update heir set v = 'by the heir'`, /by the heir/);
  await seen(
    t,
    '/items/dated',
    () => sql`set datestyle = 'SQL, DMY'; insert into dated values ('2026-11-17', 'dated')`.simple(),
    /dated"/,
  );
  const key = '00000000-0000-4000-8000-00000000000a';
  await sql`insert into ${sql(ODD)} values (${key}, '9223372036854775807', 'first')`;
  const path = `/items/${encodeURIComponent(ODD)}`;
  await seen(t, path, () => sql`update ${sql(ODD)} set v = 'odd'`, /odd/);
  await seen(t, '/items/keyless', () => sql`truncate keyless`, /^\{"data":\[\]\}$/);
});

t.test('a role that attaches the function to its own table gets no rights by it', async (t) => {
  const writer = connectSql(databaseUrl(server, 'live_triggers', { user: 'writer', password: 'writer' }));
  t.teardown(() => writer.end());
  await writer
    .unsafe(`
      create temp table own (id int);
      create temp table ran_as (name text);
      grant insert on ran_as to public;
      create function pg_temp.note() returns int language plpgsql as $$
        begin insert into pg_temp.ran_as values (current_user); return 1; end $$;
      create temp view new_rows as select pg_temp.note() as id;
      grant select on new_rows to public;
      create trigger own after insert on own for each statement execute function public.service_live_change('service_live_public', 'id');
      insert into own values (1)`)
    .simple();
  const ran = await writer<{ name: string }[]>`select distinct name from ran_as`;
  t.strictSame(
    ran.map(({ name }) => name).filter((name) => name !== 'writer'),
    [],
  );
});

t.test('notifications of others that are not like ours change nothing', async (t) => {
  const key = '00000000-0000-4000-8000-00000000000a';
  const stream = open(t, `/items/${encodeURIComponent(ODD)}/${key}~9223372036854775807`);
  const behind = open(t, '/items/tags/1?fields=name');
  await sql`insert into tags (id, name) values (1, 'behind') on conflict do nothing`;
  for (const each of [stream, behind]) await each.count(1, 10_000);
  const [table] = await sql`select ${`"${ODD.replaceAll('"', '""')}"`}::regclass::oid::int8 as oid`;
  const row = [key, '9223372036854775807'];
  const like = { t: Number(table?.['oid']), x: 1, p: '0/1', at: 1, a: 'update', k: ['k é', 'b%s'], n: [row] };
  /** Reads that it leads to, beside that of a change which follows. */
  let round = 0;
  const readsBy = async (payload: unknown): Promise<number> => {
    const before = await reads();
    await sql.unsafe(`notify service_live_public, '${JSON.stringify(payload)}'`);
    await sql`update tags set name = ${`behind ${++round}`} where id = 1`;
    await waitFor(async () => behind.events.at(-1)?.data.includes(`behind ${round}"`) === true, 5_000);
    return (await reads()) - before - 1;
  };
  t.equal(await readsBy(like), 1, 'one that is like ours does');
  for (const payload of [
    { ...like, x: 1.5 },
    { ...like, x: -1 },
    { ...like, x: undefined },
    { ...like, p: 'x' },
    { ...like, p: 1 },
    { ...like, at: 'x' },
    { ...like, k: [] },
    { ...like, k: [], n: [[]] },
    { ...like, k: ['k é'], n: [1] },
    { ...like, k: [1, 2] },
    { ...like, k: 'text' },
    { ...like, k: [...like.k, ...Array(31).fill('x')], n: [[...row, ...Array(31).fill('x')]] },
    { ...like, n: [row, [key]] },
    { ...like, n: [row, 'text'] },
    { ...like, n: [row, [1, 2]] },
    { ...like, n: { a: 1 } },
    { ...like, o: 'text' },
    [],
    'text',
    null,
  ])
    t.equal(await readsBy(payload), 0, JSON.stringify(payload));
  await sql`update ${sql(ODD)} set v = 'still told'`;
  await waitFor(async () => stream.events.at(-1)?.data.includes('still told') === true, 5_000);
  t.match(await health(), /"triggers: /);
  for (const each of [stream, behind]) each.close();
});

t.test('a change of one row leads to reads of those who ask for it', async (t) => {
  const streams = [1, 2, 3].map((id) => open(t, `/items/authors/${id}?fields=name`));
  for (const stream of streams) await stream.count(1);
  const before = await reads();
  await sql`update authors set name = 'Only one' where id = 2`;
  await streams[1]?.count(2);
  t.equal((await reads()) - before, 1);
  for (const stream of streams) stream.close();
});

t.test('events tell each change once, by its key', async (t) => {
  const viewer = { token: ADMIN_TOKEN, hidden: null };
  const follower = new EventFollower(viewer, {
    collection: 'authors',
    fields: ['id', 'name'],
    seesAll: true,
    limit: Number.POSITIVE_INFINITY,
    witnessToken: ADMIN_TOKEN,
    isWhole: false,
  });
  t.teardown(() => follower.close());
  follower.connect(service);
  await waitFor(async () => follower.isReady, 5_000);
  const matches = async (): Promise<boolean> => (await follower.difference(service)) === '';
  t.ok(await matches());
  for (const write of [
    () => sql`insert into authors (id, name) values (901, 'new'), (902, 'second')`,
    () => sql`update authors set name = 'changed' where id in (901, 902)`,
    () => sql`update authors set id = 903 where id = 901`,
    () =>
      sql.begin((each) => [
        each`delete from authors where id = 903`,
        each`insert into authors (id, name) values (903, 'again')`,
      ]),
    // The last notification is the same as the first but for its time.
    () =>
      sql.begin((each) => [
        each`insert into authors (id, name) values (904, 'x')`,
        each`delete from authors where id = 904`,
        each`insert into authors (id, name) values (904, 'x')`,
      ]),
    () => sql`delete from authors where id in (902, 903, 904)`,
  ]) {
    const { answers } = follower;
    await write();
    await waitFor(async () => follower.answers > answers && (await matches()), 5_000).catch(() =>
      t.fail(write.toString()),
    );
  }
  t.strictSame([follower.faults, follower.resyncs], [[], 0]);
  await sql`insert into authors (name) select 'many' from generate_series(1, 2000)`;
  await waitFor(async () => follower.resyncs > 0 && (await matches()), 10_000);
  t.strictSame(follower.faults, []);
  await sql`delete from authors where name = 'many'`;
});

t.test('a write of very many rows is not refused, and one notification tells of it', async (t) => {
  await sql`insert into tags (name) select 'tag ' || n from generate_series(1, 100000) n`;
  const stream = open(t, '/items/tags?aggregate[count]=*&filter[name][_starts_with]=changed');
  await stream.count(1);
  await sql`update tags set name = 'changed ' || name`;
  await stream.count(2, 10_000);
  t.match(stream.events.at(-1)?.data, /100\d\d\d/);
  stream.close();
  await sql`truncate tags cascade`;
});

t.test('changes that were missed while nobody listened are made up for', async (t) => {
  const stream = open(t, '/items/authors/4?fields=bio');
  await stream.count(1);
  for (let round = 0; round < 3; round++) {
    const { length } = stream.events;
    await waitFor(async () => (await health()).includes('"triggers: '), 5_000);
    await sql`select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_listening_channels()) as heard%' and pid <> pg_backend_pid()`;
    await sql`update authors set bio = ${`round ${round}`} where id = 4`;
    await stream.count(length + 1, 5_000);
    t.strictSame(stream.last, { data: { bio: `round ${round}` } });
  }
  stream.close();
});

t.test(
  'new tables of the role get triggers; those of others are refused until their owner installs them',
  async (t) => {
    const stream = open(t, '/items/authors/4?fields=bio');
    await stream.count(1);
    await sql.unsafe('create table later (id int primary key, v text)');
    await waitFor(async () => (await get(service, '/items/later')).status === 200, 5_000);
    await seen(t, '/items/later', () => sql`insert into later values (1, 'seen')`, /seen/);
    stream.close();
    const installed = async (table: string): Promise<number> =>
      (await sql`select tgname from pg_trigger where tgrelid = ${table}::regclass`).length;
    // PostgreSQL refuses to grant rights on a table that gets triggers at the same moment.
    await waitFor(async () => (await installed('later')) === 4, 5_000);
    // A role that may not.
    await sql.unsafe(`create role plain login password 'plain'; grant all on schema public to plain;
    grant all on all tables in schema public to plain; grant all on all sequences in schema public to plain;
    revoke trigger on all tables in schema public from plain;
    create table foreign_owned (id int primary key); grant select on foreign_owned to plain`);
    await waitFor(async () => (await installed('foreign_owned')) === 4, 5_000);
    await sql`alter table foreign_owned disable trigger user`;
    const plainUrl = databaseUrl(server, 'live_triggers', { user: 'plain', password: 'plain' });
    const plain = await startTestService({ databaseUrl: plainUrl, WORKERS: '1' });
    const served = new EventStream(plain, '/items/authors/4?fields=bio');
    await served.count(1);
    // Before that it is not known which tables have triggers.
    await waitFor(async () => (await get(plain, '/server/health')).text.includes('"triggers: '), 10_000);
    const refused = new EventStream(plain, '/items/foreign_owned');
    await refused.ended();
    t.equal(refused.status, 422);
    t.match(refused.text, /foreign_owned.*has no triggers.*lateral live install/);
    served.close();
    stream.close();
    await plain.stop();
    const { output } = await runCommand(['doctor'], { DATABASE_URL: plainUrl });
    t.match(output, /PROBLEM +tables have no triggers[\s\S]*public.foreign_owned/);
    t.match(output, /create or replace trigger "service_live_insert_public" after insert on "public"."foreign_owned"/);
  },
);

t.test('they are removed on request, and LIVE=triggers installs them by itself', async (t) => {
  const stream = open(t, '/items/authors/4?fields=bio');
  await stream.count(1);
  t.match(await run('live', 'remove'), { code: 0, output: /^public.authors {2}has no triggers now$/m });
  t.equal(await triggers(), 0);
  await waitFor(async () => /polled every second.*no triggers are installed/.test(await health()), 5_000);
  stream.close();
  const own = await startTestService({ databaseUrl: url, WORKERS: '1', LIVE: 'triggers' });
  const other = new EventStream(own, '/items/authors/4?fields=bio');
  await other.count(1, 10_000);
  await waitFor(async () => JSON.stringify((await get(own, '/server/health')).json).includes('"triggers: '), 10_000);
  t.not(await triggers(), 0);
  await sql`update authors set bio = 'by itself' where id = 4`;
  await other.count(2);
  other.close();
  await own.stop();
  await run('live', 'remove');
  t.equal(await triggers(), 0);
});
