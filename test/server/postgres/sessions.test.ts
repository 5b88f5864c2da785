/** Connections that hold a transaction: what is sent together is carried out together, whatever happens on the way. */
import t from 'tap';
import { Database } from '../../../src/server/postgres/pools/database.js';
import type { Session, TransactionStatement } from '../../../src/server/postgres/pools/sessions.js';
import { createDatabase, request, startDatabase, startTestService, withSql } from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'sessions');
await withSql(databaseUrl, (sql) => sql`create table notes (id serial primary key, said text not null)`);
const WRITE = 'with w as (insert into notes (said) values ($1::text) returning id) select id::text from w';
const COUNT = 'select count(*)::text from notes where said = $1::text';

const database = await Database.open({
  url: databaseUrl,
  schema: 'public',
  connections: 1,
  sessions: 1,
  streams: 1,
  imports: 1,
  waitTimeout: 10_000,
  statementTimeout: 0,
  connectTimeout: 10_000,
});
t.teardown(() => database.close());

function withSession<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
  return database.sessions.use(work);
}

async function countOf(said: string): Promise<number> {
  const [row] = await withSql(databaseUrl, (sql) => sql`select count(*)::int as count from notes where said = ${said}`);
  return Number(row?.['count']);
}

const both = (said: string | null, prepare = true): TransactionStatement[] =>
  [WRITE, COUNT].map((text) => ({ text, parameters: [said], prepare }));

t.test('statements that are sent together are one transaction', async (t) => {
  for (const prepare of [false, true, true]) {
    const said = `together ${prepare}`;
    const before = await countOf(said);
    const cells = await withSession((session) => session.runPipelined(both(said, prepare)));
    t.equal(Number(cells[1]), before + 1, 'the second statement sees the first');
    t.equal(await countOf(said), before + 1);
  }
});

t.test('a failure undoes all of it, and the connection goes on', async (t) => {
  for (const prepare of [false, true]) {
    const broken = [...both('undone', prepare), ...both(null, prepare)];
    await t.rejects(
      withSession((session) => session.runPipelined(broken)),
      { code: '23502' },
    );
    t.equal(await countOf('undone'), 0);
    await withSession((session) => session.runPipelined(both(`next ${prepare}`)));
    t.equal(await countOf(`next ${prepare}`), 1);
  }
});

t.test('a failure of the commit undoes all of it', async (t) => {
  await withSql(databaseUrl, async (sql) => {
    await sql`create table pairs (id int primary key, other int references pairs deferrable initially deferred)`;
  });
  const text = 'with w as (insert into pairs values (1, 7) returning id) select id::text from w';
  await t.rejects(
    withSession((session) => session.runPipelined([{ text, parameters: [], prepare: true }, ...both('lost')])),
    { code: '23503' },
  );
  t.equal(await countOf('lost'), 0);
});

t.test('the driver and what is sent together take turns on a connection', async (t) => {
  await withSession(async (session) => {
    t.equal(String(await session.cell(COUNT, ['turns'])), '0');
    await session.runPipelined(both('turns'));
    t.equal(String(await session.cell(COUNT, ['turns'])), '1');
    await session.transaction(async () => {
      await session.cell(WRITE, ['turns']);
    });
    const [, count] = await session.runPipelined(both('turns'));
    t.equal(String(count), '3');
  });
});

t.test('statements that the server no longer knows are prepared anew and run once', async (t) => {
  await withSession((session) => session.runPipelined(both('known')));
  await withSession((session) => session.query('deallocate all'));
  const [, count] = await withSession((session) => session.runPipelined(both('forgotten')));
  t.equal(String(count), '1');
  t.equal(await countOf('forgotten'), 1);
});

t.test('a connection that breaks while statements are together on their way is given up', async (t) => {
  const lost = withSession(async (session) => {
    const [row] = await session.query<{ pid: number }>('select pg_backend_pid() as pid');
    const slow = { text: 'select pg_sleep(20)::text', parameters: [], prepare: false };
    const together = session.runPipelined([...both('broken'), slow]);
    const kill = withSql(databaseUrl, async (sql) => {
      while (
        (await sql`select 1 from pg_stat_activity where pid = ${Number(row?.pid)} and wait_event = 'PgSleep'`)
          .length === 0
      );
      await sql`select pg_terminate_backend(${Number(row?.pid)})`;
    });
    await t.rejects(together);
    await kill;
    t.equal(session.lost, true);
  });
  await lost;
  t.equal(await countOf('broken'), 0);
  await withSession((session) => session.runPipelined(both('after')));
  t.equal(await countOf('after'), 1);
});

t.test('a connection that breaks leaves nobody waiting', async (t) => {
  await withSession(async (session) => {
    const [row] = await session.query<{ pid: number }>('select pg_backend_pid() as pid');
    const pid = Number(row?.pid);
    const slow = 'select pg_sleep(20)::text';
    await session.cell('select pg_sleep(0)::text', []);
    const waiting = Promise.allSettled(
      [slow, COUNT, COUNT].map((text) => session.cell(text, text === slow ? [] : ['x'])),
    );
    await withSql(databaseUrl, (sql) => sql`select pg_terminate_backend(${pid})`);
    t.strictSame(
      (await waiting).map(({ status }) => status),
      ['rejected', 'rejected', 'rejected'],
    );
  });
});

t.test('a sequence that was left behind its table catches up', async (t) => {
  await withSql(databaseUrl, async (sql) => {
    await sql`create table loaded (id serial primary key, said text)`;
    await sql`insert into loaded select n, 'loaded' from generate_series(1, 3000) n`;
  });
  const service = await startTestService({ databaseUrl });
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify([{ said: 'imported' }, { said: 'imported' }]);
  const imported = await request(service, 'POST', '/utils/import/loaded', { headers, body });
  t.equal(imported.status, 200, imported.text);
  await withSql(databaseUrl, (sql) => sql`select setval('loaded_id_seq', 1)`);
  const created = await request(service, 'POST', '/items/loaded', { headers, body: JSON.stringify({ said: 'new' }) });
  t.strictSame(created.json, { data: { id: 3003, said: 'new' } });
});
