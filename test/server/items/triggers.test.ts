/** Columns that a trigger of the database fills before a row is inserted: whether a value is missing is for PostgreSQL to say. */
import t from 'tap';
import {
  connectSql,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const url = await createDatabase(server, 'filled');
const sql = connectSql(url);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table film (id serial primary key, title text not null, fulltext tsvector not null, code text not null);
  create function fill() returns trigger language plpgsql as $$
  begin
    new.fulltext := to_tsvector('simple', new.title);
    if new.code is distinct from 'none' then new.code := coalesce(new.code, upper(new.title)); else new.code := null; end if;
    return new;
  end $$;
  create trigger fill before insert or update on film for each row execute function fill();
  create table plain (id serial primary key, title text not null)`);
const service = await startTestService({ databaseUrl: url });

const headers = { 'content-type': 'application/json' };
const post = (path: string, body: unknown) => request(service, 'POST', path, { headers, body: JSON.stringify(body) });

t.test('a field that a trigger fills may be left out', async (t) => {
  t.match(await post('/items/film', { title: 'Ada' }), { status: 200, json: { data: { title: 'Ada', code: 'ADA' } } });
  t.match(await post('/items/film', { title: 'Bob', code: null }), { status: 200, json: { data: { code: 'BOB' } } });
  const missing = { json: { errors: [{ extensions: { code: 'FAILED_VALIDATION', collection: 'film' } }] } };
  t.match(
    await post('/items/film', { title: 'Cy', code: 'none' }),
    { status: 400, ...missing },
    'the database refuses',
  );
  t.match(await post('/items/film', {}), { status: 400, ...missing });
  const required = { errors: [{ extensions: { field: 'title', type: 'required' } }] };
  t.match(await post('/items/plain', {}), { status: 400, json: required }, 'without a trigger it is told before');
});

t.test('and is optional in GraphQL', async (t) => {
  const query = 'mutation { create_film_item(data: { title: "Dan" }) { title code } }';
  t.match(await post('/graphql', { query }), { json: { data: { create_film_item: { title: 'Dan', code: 'DAN' } } } });
  const { text } = await get(service, '/server/specs/graphql');
  t.match(/input create_plain_input \{[^}]*\}/.exec(text)?.[0], /title: String!/);
  t.notMatch(/input create_film_input \{[^}]*\}/.exec(text)?.[0], /!/);
});

t.test('a trigger that comes or goes is noticed', async (t) => {
  await sql`create trigger fill before insert on plain for each row execute function fill()`;
  const refusal = async (): Promise<string> => (await post('/items/plain', {})).text;
  await waitFor(async () => !/"type":"required"/.test(await refusal()), 10_000);
  await sql`drop trigger fill on plain`;
  await waitFor(async () => /"type":"required"/.test(await refusal()), 10_000);
  t.pass();
});

t.test('the message of a trigger that refuses is in the response', async (t) => {
  await sql.unsafe(`
    create table orders (id serial primary key, amount integer);
    create function refuse() returns trigger language plpgsql as $$
    begin
      if new.amount < 0 then raise exception 'An order of % pieces cannot be shipped', new.amount; end if;
      if new.amount = 0 then
        raise exception 'Order something' using table = 'orders', schema = 'public', column = 'amount';
      end if;
      if new.amount > 100 then raise exception 'Too many for one order' using errcode = '23514'; end if;
      return new;
    end $$;
    create trigger refuse before insert or update on orders for each row execute function refuse()`);
  await waitFor(async () => (await get(service, '/items/orders')).status === 200, 10_000);
  const refused = (message: string, extensions: object = {}) => ({
    status: 400,
    json: { errors: [{ message, extensions: { code: 'FAILED_VALIDATION', type: 'check', ...extensions } }] },
  });
  const said = 'Validation failed. An order of -2 pieces cannot be shipped';
  t.match(await post('/items/orders', { amount: -2 }), refused(said));
  t.match(
    await post('/items/orders', { amount: 0 }),
    refused('Validation failed. Order something', { collection: 'orders', field: 'amount' }),
  );
  t.match(await post('/items/orders', { amount: 101 }), refused('Validation failed. Too many for one order'));
  const query = 'mutation { create_orders_item(data: { amount: -2 }) { id } }';
  t.match(await post('/graphql', { query }), { json: { errors: [{ message: said }] } });
  t.equal((await sql`select from orders`).length, 0);
});

t.test('items inside of others of their collection are not taken for rows of the file', async (t) => {
  await sql.unsafe(`
    create table branches (id serial primary key, name text, parent integer references branches);
    create function leave_out_x() returns trigger language plpgsql as $$
    begin
      if new.name like 'x%' then return null; end if;
      return new;
    end $$;
    create trigger leave_out_x before insert on branches for each row execute function leave_out_x();
    insert into service_relations (many_collection, many_field, one_collection, one_field)
    values ('branches', 'parent', 'branches', 'children')`);
  await waitFor(async () => (await get(service, '/items/branches?fields=children.id')).status === 200, 10_000);
  const rows = [{ name: 'a', children: [{ name: 'x1' }, { name: 'x2' }, { name: 'x3' }] }];
  t.match(await post('/utils/import/branches', rows), { json: { data: { imported: 1 } } });
});

t.test('an import counts the rows that were written, not those that a trigger left out', async (t) => {
  await sql.unsafe(`
    create table readings (id serial primary key, value integer);
    create function leave_out() returns trigger language plpgsql as $$
    begin
      if new.value < 0 then return null; end if;
      return new;
    end $$;
    create trigger leave_out before insert or update on readings for each row execute function leave_out()`);
  await waitFor(async () => (await get(service, '/items/readings')).status === 200, 10_000);
  const imported = async (rows: readonly object[]): Promise<unknown> =>
    (await post('/utils/import/readings', rows)).json;
  const values = (...list: number[]) => list.map((value) => ({ value }));
  t.strictSame(await imported(values(1, -1, 2, -2, -3)), { data: { imported: 2 } });
  t.strictSame(await imported(values(-1)), { data: { imported: 0 } });
  t.strictSame(
    await imported([
      { id: 1, value: 5 },
      { id: 3, value: -5 },
      { id: 100, value: 6 },
      { id: 101, value: -6 },
    ]),
    {
      data: { imported: 2 },
    },
  );
  t.strictSame(
    (await sql`select id, value from readings order by id`).map(({ id, value }) => [id, value]),
    [
      [1, 5],
      [3, 2],
      [100, 6],
    ],
  );
});

t.test('any error of a trigger has a clear response, never a 500', async (t) => {
  await sql.unsafe(`
    create table guarded (id serial primary key, how text);
    set check_function_bodies = off;
    create function guard() returns trigger language plpgsql as $$
    declare found int;
    begin
      case new.how
        when 'no data' then raise no_data_found;
        when 'strict' then select id into strict found from guarded where id = -1;
        when 'assert' then assert false, 'an assertion of ours';
        when 'own code' then raise exception 'Out of stock' using errcode = 'ST001';
        when 'check' then raise exception 'A custom check' using errcode = '23514';
        when 'value' then raise exception 'A custom value' using errcode = '22023';
        when 'syntax' then execute 'selec 1';
        when 'table' then perform 1 from no_such_table;
        when 'function' then perform no_such_function();
        when 'internal' then raise exception 'secret words' using errcode = 'XX000';
        when 'undefined' then raise exception 'secret words' using errcode = '42P01';
        when 'connection' then raise exception 'secret words' using errcode = '08006';
        when 'shutdown' then raise exception 'secret words' using errcode = '57P01';
        when 'serialization' then raise exception 'secret words' using errcode = '40001';
        else return new;
      end case;
    end $$;
    create trigger guard before insert on guarded for each row execute function guard();
    create function fail_read(how text) returns text language plpgsql as $$
    begin
      if how = 'fails' then raise exception 'Not to be read'; end if;
      return how;
    end $$;
    create view guarded_reads as select id, fail_read(how) as how from guarded;
    insert into service_collections (collection, primary_key) values ('guarded_reads', 'id');`);
  await waitFor(async () => (await get(service, '/items/guarded_reads')).status === 200, 10_000);
  const send = (how: string) => post('/items/guarded', { how });
  for (const [how, message] of [
    ['no data', /no_data_found/],
    ['strict', /query returned no rows/],
    ['assert', /an assertion of ours/],
    ['own code', /Out of stock/],
    ['check', /A custom check/],
    ['value', /A custom value/],
  ] as const) {
    const json = { errors: [{ message, extensions: { code: 'FAILED_VALIDATION' } }] };
    t.match(await send(how), { status: 400, json }, how);
  }
  const json = { errors: [{ message: /A function or trigger failed/ }] };
  for (const how of ['syntax', 'table', 'function', 'internal', 'undefined', 'connection', 'shutdown']) {
    const answer = await send(how);
    t.match(answer, { status: 503, json }, `${how}: ${answer.text}`);
    t.match(answer.text, 'The database says', 'administrators are told more');
  }
  const asked = performance.now();
  t.match(await send('serialization'), { status: 503, json });
  t.ok(performance.now() - asked < 3_000, 'it is not tried for long');
  const query = 'mutation { create_guarded_item(data: { how: "own code" }) { id } }';
  t.match(await post('/graphql', { query }), { json: { errors: [{ message: /Out of stock/ }] } });
  t.equal((await sql`select from guarded`).length, 0);
  await sql`alter table guarded disable trigger guard`;
  await sql`insert into guarded (how) values ('fails')`;
  t.match(await get(service, '/items/guarded_reads'), {
    status: 400,
    json: { errors: [{ message: /Not to be read/ }] },
  });
});
