/** Connections that hold a transaction: what is sent together is carried out together, whatever happens on the way. */
import postgres from 'postgres';
import t from 'tap';
import { Session } from '../src/execute/sessions.js';
import { createDatabase, request, startDatabase, startTestService, withSql } from './support.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'sessions');
await withSql(databaseUrl, (sql) => sql`create table notes (id serial primary key, said text not null)`);
const WRITE = 'with w as (insert into notes (said) values ($1::text) returning id) select id::text from w';
const COUNT = 'select count(*)::text from notes where said = $1::text';

/** As the service sets them; the driver's types leave the second one out. */
const OPTIONS = { max: 1, max_pipeline: 10, fetch_types: false };

async function openSession(): Promise<Session> {
  const session = new Session((onclose) => postgres(databaseUrl, { ...OPTIONS, onnotice: () => {}, onclose }));
  t.teardown(() => session.client.end({ timeout: 1 }));
  await session.cell(WRITE, ['first']);
  await session.cell(COUNT, ['first']);
  return session;
}

async function countOf(said: string): Promise<number> {
  const [row] = await withSql(databaseUrl, (sql) => sql`select count(*)::int as count from notes where said = ${said}`);
  return Number(row?.count);
}

const both = (said: string): { text: string; parameters: string[] }[] =>
  [WRITE, COUNT].map((text) => ({ text, parameters: [said] }));

t.test('only what is prepared is sent together', async (t) => {
  const session = await openSession();
  t.equal(session.together([{ text: 'select 1::text', parameters: [] }]), null);
  const cells = await session.together(both('together'));
  t.equal(String(cells?.[1]), '1', 'the second statement sees the first');
  t.equal(await countOf('together'), 1);
});

t.test('a failure undoes all of it, and the connection goes on', async (t) => {
  const session = await openSession();
  const broken = [...both('undone'), { text: WRITE, parameters: [null as unknown as string] }];
  await t.rejects(
    Promise.resolve(session.together(broken)).then(() => {}),
    { code: '23502' },
  );
  t.equal(await countOf('undone'), 0);
  await session.together(both('next'));
  t.equal(await countOf('next'), 1);
});

t.test('statements that the server no longer knows are not sent again behind the commit', async (t) => {
  const session = await openSession();
  await session.query('deallocate all');
  await t.rejects(
    Promise.resolve(session.together(both('forgotten'))).then(() => {}),
    { code: '26000' },
  );
  t.equal(await countOf('forgotten'), 0);
  t.equal(session.lost, true, 'the connection is given up');
});

t.test('a connection that breaks leaves nobody waiting', async (t) => {
  const session = await openSession();
  const [row] = await session.query('select pg_backend_pid() as pid');
  const pid = Number(row?.pid);
  const slow = 'select pg_sleep(20)::text';
  await session.cell('select pg_sleep(0)::text', []);
  const waiting = Promise.allSettled([session.cell(slow, []), session.cell(COUNT, ['x']), session.cell(COUNT, ['y'])]);
  await withSql(databaseUrl, (sql) => sql`select pg_terminate_backend(${pid})`);
  t.strictSame(
    (await waiting).map(({ status }) => status),
    ['rejected', 'rejected', 'rejected'],
  );
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
