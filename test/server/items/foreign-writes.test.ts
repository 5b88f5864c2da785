/** Writes to tables as other programs made them: triggers that choose keys, views, rules, generated columns, domains. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  connectSql,
  createDatabase,
  request,
  startDatabase,
  startTestService,
  databaseUrl as urlOf,
  waitFor,
  withSql,
} from '../../support/service.js';

const server = await startDatabase({ own: true });
const databaseUrl = await createDatabase(server, 'foreign_writes');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create function add_thousand() returns trigger language plpgsql as $$
  begin new.id := new.id + 1000; return new; end $$;
  create table moved (id serial primary key, a text);
  create trigger add_thousand before insert on moved for each row execute function add_thousand();
  create table moved_parts (id serial primary key, moved integer references moved, name text);

  create table hidden_base (id serial primary key, a text, b integer default 7);
  create view instead_view as select id, a from hidden_base;
  create function insert_instead() returns trigger language plpgsql as $$
  begin
    insert into hidden_base (a) values (new.a) returning id into new.id;
    return new;
  end $$;
  create trigger insert_instead instead of insert on instead_view for each row execute function insert_instead();

  create table base (id serial primary key, a text, b integer default 7);
  create function move_or_skip() returns trigger language plpgsql as $$
  begin new.id := new.id + 1000; return case when new.a = 'skip' then null else new end; end $$;
  create table fickle (id serial primary key, a text);
  create trigger move_or_skip before insert on fickle for each row execute function move_or_skip();
  insert into fickle (a) select 'old' from generate_series(1, 20);
  update fickle set id = id - 1000;
  create table fickle_parts (id serial primary key, fickle integer references fickle, name text);

  create view upd_v as select id, a, b from base;

  create table made (id integer primary key, a integer, b integer generated always as (a * 2) stored,
    n bigint generated always as identity, doc json generated always as ('{"k": 1}'::json) stored);
  insert into made (id, a) values (1, 3), (2, 4);
  create table made_parts (id serial primary key, made integer references made, c integer, d integer generated always as (c + 1) stored);
  insert into made_parts (made, c) values (1, 10);

  create table ruled (id serial primary key, a text);
  create table rule_log (id serial primary key, note text);
  insert into ruled (a) values ('x');
  create rule log_insert as on insert to ruled do also insert into rule_log (note) values ('insert');
  create rule no_update as on update to ruled do instead nothing;
  create rule log_delete as on delete to ruled do also insert into rule_log (note) values ('delete');

  create domain zip as text check (value ~ '^\\d{5}$');
  create table zips (id serial primary key, z zip, za zip[], zb zip[]);

  create table skipped (id serial primary key, amount integer);
  insert into skipped (amount) values (1);
  create function skip_negative() returns trigger language plpgsql as $$
  begin return case when new.amount < 0 then null else new end; end $$;
  create trigger skip_negative before insert or update on skipped for each row execute function skip_negative();
  create function keep_row() returns trigger language plpgsql as $$ begin return null; end $$;
  create table undeletable (id serial primary key, a text);
  insert into undeletable (a) values ('x');
  create trigger keep_row before delete on undeletable for each row execute function keep_row();

  create table checked (id serial primary key, amount integer, constraint amount_is_positive check (amount > 0));
  create function refuse_feature(how text) returns text language plpgsql as $$
  begin raise exception 'Refunds are not offered' using errcode = '0A000'; end $$;
  create function refuse_in_trigger() returns trigger language plpgsql as $$
  begin raise exception 'Returns are not offered' using errcode = '0A000'; end $$;
  create table refusing (id serial primary key, a text);
  create trigger refuse before insert on refusing for each row execute function refuse_in_trigger();
  create procedure rebuild() language sql as 'select 1';
  create aggregate total(integer) (sfunc = int4pl, stype = integer);
`);
const service = await startTestService({ databaseUrl });
await sql.unsafe(`
  insert into service_collections (collection, primary_key) values ('instead_view', 'id'), ('upd_v', 'id');
  insert into service_relations (many_collection, many_field, one_collection, one_field) values
    ('moved_parts', 'moved', 'moved', 'parts'), ('made_parts', 'made', 'made', 'parts');
  insert into service_functions (name) values ('refuse_feature'), ('rebuild'), ('total'), ('no_such_function')`);
await request(service, 'POST', '/utils/cache/clear');

function send(method: string, path: string, body: unknown): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, { headers, body: JSON.stringify(body) });
}

function refused(message: RegExp, extensions: object = {}): object {
  return { status: 400, json: { errors: [{ message, extensions }] } };
}

t.test('an item whose key a trigger changes is answered', async (t) => {
  t.match(await send('POST', '/items/moved', { id: 1, a: 'x' }), { status: 200, json: { data: { id: 1001, a: 'x' } } });
  const made = await send('POST', '/items/moved', [{ a: 'one' }, { id: 7, a: 'two' }, { a: 'three' }]);
  t.match(made, { status: 200, json: { data: [{ a: 'one' }, { id: 1007, a: 'two' }, { a: 'three' }] } });
  t.equal((await sql`select from moved where id < 1000`).length, 0);
  const nested = await send('POST', '/items/moved?fields=id,a,parts.name', { id: 20, a: 'x', parts: [{ name: 'p' }] });
  t.match(nested, { status: 200, json: { data: { id: 1020, a: 'x', parts: [{ name: 'p' }] } } });
  const part = await send('POST', '/items/moved_parts?fields=name,moved.*', { name: 'q', moved: { a: 'y' } });
  t.match(part, { status: 200, json: { data: { name: 'q', moved: { a: 'y' } } } });
  const [entry] = await sql`select item from service_activity where collection = 'moved' order by id limit 1`;
  t.match(entry, { item: '1001' });
});

t.test('rows that a trigger leaves out are not mistaken for others whose keys it changed', async (t) => {
  await sql`select setval('fickle_id_seq', 5)`;
  const answer = await send('POST', '/items/fickle', [{ a: 'x' }, { a: 'skip' }, { a: 'z' }]);
  t.match(answer, { status: 400, text: /send one item per request/ });
  const nested = await send(
    'POST',
    '/items/fickle_parts',
    ['x', 'skip', 'z'].map((a) => ({ name: a, fickle: { a } })),
  );
  t.match(nested, { status: 400, text: /send one item per request/ });
  const [count] = await sql<{ n: number }[]>`select count(*)::int as n from fickle_parts`;
  t.equal(count?.n, 0, 'nothing was written');
  const both = await send('POST', '/items/fickle', [{ a: 'x' }, { a: 'z' }]);
  t.match(both, { status: 200, json: { data: [{ a: 'x' }, { a: 'z' }] } });
});

t.test('an item of a view whose trigger makes the key is answered', async (t) => {
  t.match(await send('POST', '/items/instead_view', { id: 500, a: 'x' }), {
    status: 200,
    json: { data: { id: 1, a: 'x' } },
  });
  t.match(await send('POST', '/items/instead_view', { a: 'y' }), { status: 200, json: { data: { id: 2, a: 'y' } } });
});

t.test('a new item of a view takes its key and other defaults from the table below', async (t) => {
  t.match(await send('POST', '/items/upd_v', { a: 'x' }), { status: 200, json: { data: { id: 1, a: 'x', b: 7 } } });
  t.match(await send('POST', '/items/upd_v', [{ a: 'y' }, { a: 'z' }]), {
    status: 200,
    json: {
      data: [
        { id: 2, a: 'y', b: 7 },
        { id: 3, a: 'z' },
      ],
    },
  });
  t.match(await send('POST', '/items/upd_v', { id: 50, a: 'w' }), { status: 200, json: { data: { id: 50, a: 'w' } } });
  const mixed = await send('POST', '/items/upd_v', [{ id: 60, a: 'y' }, { a: 'z' }]);
  t.match(mixed, refused(/a key for all new items of "upd_v" or for none/), 'the default is not known');
});

t.test('a value that the database generates may be sent back as it is', async (t) => {
  const shown = (await request(service, 'GET', '/items/made/1?fields=id,a,b,n,doc')).json as { data: object };
  t.match(shown.data, { id: 1, a: 3, b: 6, n: '1', doc: { k: 1 } });
  t.match(await send('PATCH', '/items/made/1', shown.data), { status: 200, json: { data: { b: 6 } } });
  t.match(await send('PATCH', '/items/made/1', { b: 6 }), { status: 200, json: { data: { a: 3, b: 6 } } });
  t.match(
    await send('PATCH', '/items/made/1', { ...shown.data, a: 5 }),
    {
      status: 200,
      json: { data: { a: 5, b: 10 } },
    },
    'the value before the change',
  );
  t.match(
    await send('PATCH', '/items/made/1', { a: 3, b: 6 }),
    { status: 200, json: { data: { a: 3, b: 6 } } },
    'the new value',
  );
  t.match(await send('PATCH', '/items/made/1', { a: 4, b: 7 }), refused(/"b" is generated by the database/));
  t.match(await send('PATCH', '/items/made/1', { b: 7 }), refused(/"b" is generated by the database/));
  t.match(await send('PATCH', '/items/made/1', { n: 99 }), refused(/"n" is generated by the database/));
  t.match(await send('PATCH', '/items/made/1', { b: null }), refused(/"b" is generated by the database/));
  const several = await send('PATCH', '/items/made', [
    { id: 1, b: 6 },
    { id: 2, a: 4 },
  ]);
  t.match(several, { status: 200, json: { data: [{ b: 6 }, { b: 8 }] } });
  t.match(
    await send('PATCH', '/items/made', [
      { id: 1, b: 6 },
      { id: 2, b: 9 },
    ]),
    refused(/"1\.b" is generated by the database/),
  );
  t.match(await send('PATCH', '/items/made/1?fields=parts.d', { parts: [{ id: 1, c: 10, d: 11 }] }), {
    status: 200,
    json: { data: { parts: [{ d: 11 }] } },
  });
  t.match(
    await send('PATCH', '/items/made/1', { parts: [{ id: 1, c: 10, d: 12 }] }),
    refused(/"parts\.0\.d" is generated by the database/),
  );
  t.match(await send('POST', '/items/made', { id: 9, a: 1, b: 3 }), refused(/"b" is generated by the database/));
  for (const [path, body] of [
    ['/items/made', { id: 9, a: 1, n: 777 }],
    ['/items/made', { id: 9, a: 1, n: null }],
    [
      '/items/made',
      [
        { id: 9, a: 1 },
        { id: 10, n: 777 },
      ],
    ],
    ['/items/made_parts', { made: { a: 1, n: 777 } }],
    ['/items/made_parts', { made: { id: 9, a: 1, n: 777 } }],
    ['/graphql', { query: 'mutation { create_made_item(data: { id: 9, a: 1, n: 777 }) { id } }' }],
  ] as const) {
    const answer = await send('POST', path, body);
    t.match(answer.text, /n\W+ is generated by the database/, `POST ${path} ${JSON.stringify(body)}: ${answer.text}`);
  }
  t.match(await sql`select a, b, n::int4 from made order by id`, [
    { a: 3, b: 6, n: 1 },
    { a: 4, b: 8, n: 2 },
  ]);
});

t.test('a generated value that the caller may not read cannot be guessed', async (t) => {
  const rule = (action: 'read' | 'update', fields: string[], permissions: object = {}) =>
    ({ collection: 'made', action, fields, permissions }) as const;
  const caller = async (name: string, ...permissions: ReturnType<typeof rule>[]) => {
    const { token } = await makeCaller(sql, name, [{ permissions }]);
    await waitFor(async () => (await request(service, 'GET', '/items/made', { token })).status === 200, 10_000);
    return (body: object) =>
      request(service, 'PATCH', '/items/made/1', {
        token,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
  };
  const blind = await caller('blind', rule('read', ['id', 'a']), rule('update', ['*']));
  t.match(await blind({ b: 6 }), refused(/"b" is generated by the database/));
  t.match(await blind({ b: 7 }), refused(/"b" is generated by the database/));
  t.match(await blind({ a: 3 }), { status: 200 });
  const seeing = await caller('seeing', rule('read', ['*'], { a: { _lt: 10 } }), rule('update', ['*']));
  t.match(await seeing({ a: 3, b: 6 }), { status: 200 });
  t.match(await seeing({ b: 7 }), refused(/"b" is generated by the database/));
  const elsewhere = await caller('elsewhere', rule('read', ['*'], { id: { _eq: 2 } }), rule('update', ['*']));
  t.match(await elsewhere({ b: 6 }), refused(/"b" is generated by the database/), 'not in this row');
});

t.test('an import takes the export of its own table', async (t) => {
  const { data } = (await request(service, 'GET', '/items/made?fields=id,a,b,n,doc&sort=id')).json as {
    data: object[];
  };
  t.match(await send('POST', '/utils/import/made', data), { status: 200, json: { data: { imported: 2 } } });
  t.match(await send('POST', '/utils/import/made?on_conflict=id', data), {
    status: 200,
    json: { data: { imported: 2 } },
  });
});

t.test('a table with rules says so when it is written', async (t) => {
  for (const answer of [
    await send('POST', '/items/ruled', { a: 'x' }),
    await send('PATCH', '/items/ruled/1', { a: 'y' }),
    await request(service, 'DELETE', '/items/ruled/1'),
  ])
    t.match(answer, refused(/"ruled" .*rule/), answer.text);
  t.equal((await sql`select from ruled where a = 'x'`).length, 1);
});

t.test('a value that a domain refuses is named, also inside an array', async (t) => {
  const named = (field: string): object => refused(/Validation failed/, { collection: 'zips', field });
  t.match(await send('POST', '/items/zips', { z: '12345', za: ['12345', '1'] }), named('za'));
  t.match(await send('POST', '/items/zips', { z: '1', za: ['12345'] }), named('z'));
  const either = refused(/"za" of "zips" or "zb" of "zips"/, { collection: 'zips', field: null });
  t.match(await send('POST', '/items/zips', { z: '12345', za: ['12345'], zb: ['1'] }), either);
  t.match(await send('POST', '/items/zips', [{ za: ['12345'] }, { za: ['12345'], zb: ['1'] }]), either);
  t.match(await send('POST', '/items/zips', { za: ['1'] }), named('za'));
  t.match(await send('PATCH', '/items/zips', { query: { limit: -1 }, data: { zb: ['1'] } }), { status: 200 });
  await sql`insert into zips (z) values ('54321')`;
  t.match(await send('PATCH', '/items/zips/100', { z: '1', zb: ['12345'] }), { status: 403 });
  t.match(await send('PATCH', '/items/zips', { query: { limit: -1 }, data: { z: '1', za: ['12345'] } }), named('z'));
  t.match(await send('POST', '/utils/import/zips', [{ z: '12345', za: ['1'] }]), named('za'));
});

t.test('a row that a trigger leaves out is told apart from one that is missing', async (t) => {
  const left = /A trigger of the database left out/;
  t.match(await send('PATCH', '/items/skipped/1', { amount: -5 }), refused(left));
  t.match(await send('PATCH', '/items/skipped/99', { amount: -5 }), { status: 403 });
  t.match(await request(service, 'DELETE', '/items/undeletable/1'), refused(left));
  t.match(await request(service, 'DELETE', '/items/undeletable/99'), { status: 403 });
  t.match(
    await send('POST', '/items/skipped', { amount: -5 }),
    { status: 204 },
    'it may have written the row elsewhere',
  );
  t.equal((await sql`select from undeletable`).length, 1);
});

t.test('errors say what the database says', async (t) => {
  t.match(
    await send('POST', '/items/checked', { amount: -1 }),
    refused(/amount_is_positive/, { type: 'check', constraint: 'amount_is_positive' }),
  );
  t.match(await send('POST', '/items/refusing', { a: 'x' }), refused(/Returns are not offered/));
  t.match(await send('POST', '/rpc/refuse_feature', { how: 'x' }), refused(/Refunds are not offered/));
  t.match(await send('POST', '/rpc/rebuild', {}), { status: 403, text: /is a procedure/ });
  t.match(await send('POST', '/rpc/total', {}), { status: 403, text: /is an aggregate/ });
  t.match(await send('POST', '/rpc/no_such_function', {}), { status: 403, text: /does not exist/ });
  const anonymous = await request(service, 'POST', '/rpc/rebuild', {
    token: null,
    headers: { 'content-type': 'application/json' },
    body: '{}',
  });
  t.match(anonymous.status, 403);
  t.notMatch(anonymous.text, /is a procedure/);
});

t.test('a role with privileges on some columns reads and writes these', async (t) => {
  const login = { user: 'clerk', password: 'secret' };
  await sql`create role clerk login password 'secret'`;
  const ownerUrl = await createDatabase(server, 'limited');
  await withSql(ownerUrl, (owner) =>
    owner.unsafe(`
      grant create on schema public to clerk;
      create table staff (id serial primary key, a text, salary integer default 1000, pin text);
      insert into staff (a) values ('one');
      grant select (id, a), insert (id, a, pin), update (a) on staff to clerk;
      grant usage on sequence staff_id_seq to clerk;
      create table counted (id serial primary key, a text, hidden text);
      grant select (id, a), insert (a) on counted to clerk;
      grant usage on sequence counted_id_seq to clerk;
      create table closed (id serial primary key, a text)`),
  );
  const limited = await startTestService({
    databaseUrl: urlOf(server, 'limited', login),
    SCHEMA_POLL_INTERVAL: '200ms',
  });
  const ask = (method: string, path: string, body?: unknown): Promise<Answer> =>
    request(limited, method, path, {
      headers: { 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  t.match(await ask('GET', '/items/staff'), { status: 200, json: { data: [{ id: 1, a: 'one' }] } });
  t.strictSame((await ask('GET', '/items/staff/1')).json, { data: { id: 1, a: 'one' } });
  t.strictSame((await ask('GET', '/items/staff?search=one')).json, { data: [{ id: 1, a: 'one' }] });
  t.match(await ask('POST', '/items/staff', { a: 'two' }), { status: 200, json: { data: { id: 2, a: 'two' } } });
  t.match(await ask('POST', '/items/staff', { id: 7, a: 'x', pin: '1' }), { status: 200, json: { data: { id: 7 } } });
  t.match(await ask('PATCH', '/items/staff/1', { a: 'three' }), { status: 200, json: { data: { id: 1, a: 'three' } } });
  t.match(await ask('PATCH', '/items/staff', { query: { limit: -1 }, data: { a: 'all' } }), { status: 200 });
  for (const field of ['salary', 'pin'])
    t.match(await ask('GET', `/items/staff?fields=${field}`), { status: 403 }, field);
  t.match(await ask('PATCH', '/items/staff/1', { salary: 5 }), { status: 403 });
  t.match(await ask('DELETE', '/items/staff/1'), { status: 403 });
  t.match(await ask('GET', '/items/closed'), { status: 403, text: /The database says/ });
  t.match(await ask('POST', '/items/counted', [{ a: 'x' }, { a: 'y' }]), {
    status: 200,
    json: {
      data: [
        { id: 1, a: 'x' },
        { id: 2, a: 'y' },
      ],
    },
  });
  t.match(await ask('POST', '/items/counted', {}), { status: 200, json: { data: { id: 3, a: null } } });
  const query = '{ staff(sort: ["id"], limit: 1) { id a } __type(name: "staff") { fields { name } } }';
  const schema = await ask('POST', '/graphql', { query });
  t.match(schema, { json: { data: { staff: [{ id: '1', a: 'all' }] } } });
  t.notMatch(schema.text, /salary|pin/);
  const revisions = await withSql(
    ownerUrl,
    (owner) => owner`
    select data::text from service_revisions where collection = 'staff' order by id limit 2`,
  );
  t.strictSame(
    revisions.map(({ data }) => JSON.parse(String(data))),
    [
      { id: 2, a: 'two' },
      { id: 7, a: 'x' },
    ],
  );
  await withSql(ownerUrl, (owner) => owner`grant select (salary) on staff to clerk`);
  await waitFor(async () => (await ask('GET', '/items/staff/1')).text.includes('salary'), 10_000);
});
