/** Writes that wait for locks longer than DATABASE_STATEMENT_TIMEOUT: 503 with Retry-After, and nothing is written. Slow statements are 400. */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createDatabase,
  request,
  type Sql,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { passTime } from '../../support/time.js';

t.setTimeout(120_000);
const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'lock_waits');
const sql = connectSql(databaseUrl);
const holders = [connectSql(databaseUrl), connectSql(databaseUrl)] as const;
t.teardown(() => Promise.all([sql.end(), ...holders.map((each) => each.end())]));
await sql.unsafe(`
  create table stock (id serial primary key, code text unique, amount int not null default 0);
  insert into stock (code) select 'code ' || n from generate_series(1, 9) n;
  create table slow (id serial primary key, name text);
  create function nap() returns trigger language plpgsql as 'begin perform pg_sleep(5); return new; end';
  create trigger nap before insert on slow for each row execute function nap();
  create function pace() returns integer language plpgsql as $$
  begin
    if coalesce(current_setting('test.paced', true), '') = '' then
      perform pg_sleep(1.2), set_config('test.paced', 'true', true);
    end if;
    return 1;
  end $$;
  create table paced (id serial primary key, code text unique, paced integer default pace())`);
const options = { databaseUrl, WORKERS: '1', DATABASE_STATEMENT_TIMEOUT: '2s', DATABASE_WRITE_POOL_SIZE: '10' };
const service = await startTestService(options);

function send(method: string, path: string, body?: unknown, to = service): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(to, method, path, { headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
}

/** Holds the lock of the statement while the work runs, or until the work calls `release`. */
async function whileLocked<Result>(
  holder: Sql,
  text: string,
  work: (release: () => void) => Promise<Result>,
): Promise<Result> {
  let release = (): void => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  let locked = (): void => {};
  const isLocked = new Promise<void>((resolve) => {
    locked = resolve;
  });
  const holding = holder.begin(async (tx) => {
    await tx.unsafe(text);
    locked();
    await released;
  });
  await isLocked;
  try {
    return await work(release);
  } finally {
    release();
    await holding;
  }
}

const waiting = async (): Promise<number> => {
  const [row] = await sql`
    select count(*)::int as count from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock' and application_name like 'lateral%'`;
  return row?.['count'];
};

const state = (): Promise<unknown> =>
  sql`select md5(string_agg(stock::text, ',' order by id)) from stock`.then(([row]) => ({ ...row }));

const isLate = {
  status: 503,
  json: { errors: [{ extensions: { code: 'SERVICE_UNAVAILABLE' } }] },
  headers: { 'retry-after': /\d/ },
};
const change = (id: number) => ({ method: 'PATCH', path: `/items/stock/${id}`, body: { amount: { _increment: 1 } } });

t.test('a batch that takes long and waits for one row fails no other write', async (t) => {
  // Another service: a caller whose write has waited for a lock writes alone for ten seconds.
  const other = await startTestService(options);
  const codes = Array.from({ length: 10 }, (_, index) => (index === 5 ? 'taken' : `code ${index}`));
  const held = "insert into paced (code, paced) values ('taken', 0)";
  const answers = await whileLocked(holders[0], held, () =>
    Promise.all(codes.map((code) => send('POST', '/items/paced', { code }, other))),
  );
  for (const [index, { status, text }] of answers.entries()) t.equal(status, index === 5 ? 503 : 200, text);
});

t.test('writes of a locked row', async (t) => {
  const before = await state();
  const answers = await whileLocked(holders[0], 'select from stock where id = 1 for update', () =>
    Promise.all([
      ...[0, 1, 2].map(() => send('PATCH', '/items/stock/1', { amount: 5 })),
      send('PATCH', '/items/stock', { keys: [1, 2], data: { amount: 5 } }),
      send('PATCH', '/items/stock', { query: { filter: { id: { _lt: 3 } } }, data: { amount: 5 } }),
      send('POST', '/items/stock?on_conflict=code', { code: 'code 1', amount: 5 }),
      send('DELETE', '/items/stock/1'),
      send('POST', '/transactions', { operations: [change(2), change(1)] }),
      send('POST', '/graphql', { query: 'mutation { update_stock_item(id: 1, data: {amount: 5}) { id } }' }),
    ]),
  );
  for (const answer of answers) t.match(answer, isLate, answer.text);
  t.strictSame(await state(), before);
});

t.test('writes of a locked table, and of a value that another transaction adds', async (t) => {
  const before = await state();
  const inserted = "insert into stock (code) values ('new')";
  const [added] = await whileLocked(holders[0], inserted, () =>
    Promise.all([send('POST', '/items/stock', { code: 'new' })]),
  );
  await sql`delete from stock where code = 'new'`;
  t.match(added, isLate, added?.text);
  const answers = await whileLocked(holders[0], 'lock table stock', () =>
    Promise.all([send('POST', '/items/stock', { code: 'x' }), send('PATCH', '/items/stock/1', { amount: 5 })]),
  );
  for (const answer of answers) t.match(answer, isLate, answer.text);
  const start = performance.now();
  const together = await whileLocked(holders[0], 'lock table stock', () =>
    Promise.all(Array.from({ length: 60 }, (_, index) => send('POST', '/items/stock', { code: `x ${index}` }))),
  );
  t.ok(performance.now() - start < 3_400, 'writes of a batch wait for the table once, not once more alone');
  for (const answer of together) t.match(answer, isLate, answer.text);
  t.strictSame(await state(), before);
});

t.test('a transaction that waits for several locks, none of them for long', async (t) => {
  const before = await state();
  const answers = await whileLocked(holders[0], 'select from stock where id = 1 for update', (release) =>
    whileLocked(holders[1], 'select from stock where id = 2 for update', async () => {
      const sent = [0, 1, 2].map(() => send('POST', '/transactions', { operations: [change(1), change(2)] }));
      await waitFor(async () => (await waiting()) === 3, 5_000);
      setTimeout(release, 1_000);
      return Promise.all(sent);
    }),
  );
  for (const answer of answers) t.match(answer, isLate, answer.text);
  t.strictSame(await state(), before);
});

t.test('a transaction whose time ends in the queue of a row', async (t) => {
  const before = await state();
  const answers = await whileLocked(holders[0], 'select from stock where id = 1 for update', (release) =>
    whileLocked(holders[1], 'select from stock where id = 2 for update', async () => {
      const last = send('POST', '/transactions', { operations: [change(1), change(2)] });
      await waitFor(async () => (await waiting()) === 1, 5_000);
      await passTime(500, 'the time of the transaction ends before that of the write in front of it');
      const first = send('PATCH', '/items/stock/2', { amount: 5 });
      await waitFor(async () => (await waiting()) === 2, 5_000);
      release();
      return Promise.all([first, last]);
    }),
  );
  for (const answer of answers) t.match(answer, isLate, answer.text);
  t.strictSame(await state(), before);
});

t.test('slow statements are the fault of the request', async (t) => {
  const late = { status: 400, json: { errors: [{ message: /took too long/ }] } };
  t.match(await send('POST', '/items/slow', { name: 'x' }), late);
  t.match(
    await send('POST', '/transactions', { operations: [{ method: 'POST', path: '/items/slow', body: {} }] }),
    late,
  );
});
