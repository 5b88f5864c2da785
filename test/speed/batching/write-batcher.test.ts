/** Flat writes: one statement each, and one statement together where they wait. Each caller gets their own answer. */
import t from 'tap';
import { inForce, makeCaller } from '../../support/callers.js';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createLibrary,
  get,
  KNOWS_CALLERS,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';
import { StatementCounter } from '../../support/statement-counter.js';

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'written');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table stock (id serial primary key, name text unique, amount int not null default 0 check (amount >= 0),
    notes text[], facts jsonb, owner uuid, parent int references stock);
  insert into stock (name, amount) select 'item ' || n, n from generate_series(1, 500) n;
  create table triggered (id serial primary key, name text);
  create function shout() returns trigger language plpgsql as $$ begin new.name := upper(new.name); return new; end $$;
  create trigger shout before insert or update on triggered for each row execute function shout();
  create table deferred (id serial primary key, name text unique deferrable initially deferred)`);
const counter = await StatementCounter.of(server, 'written');
/** One thread, so that all requests meet in one batcher. */
const service = await startTestService({ databaseUrl, WORKERS: '1', ...KNOWS_CALLERS });

function send(method: string, path: string, body?: unknown, token = ADMIN_TOKEN): Promise<Answer> {
  const content = body === undefined ? {} : { body: JSON.stringify(body) };
  return request(service, method, path, { headers: { 'content-type': 'application/json' }, token, ...content });
}

async function batches(): Promise<{ writes: number; statements: number; splits: number }> {
  const { text } = await get(service, '/server/metrics');
  const sample = (name: string): number => Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1]);
  return {
    writes: sample('lateral_write_batch_size_sum'),
    statements: sample('lateral_write_batch_size_count'),
    splits: sample('lateral_write_batch_splits_total'),
  };
}

async function countStatements(work: () => Promise<unknown>): Promise<number> {
  const { counts } = await counter.count(work);
  return counts.reduce((sum, { calls }) => sum + calls, 0);
}

t.test('a flat create, update and deletion are one statement each', async (t) => {
  const made = await send('POST', '/items/stock', { name: 'first', amount: 1 });
  t.match(made.json, { data: { name: 'first', amount: 1 } });
  const { id } = (made.json as { data: { id: number } }).data;
  const path = `/items/stock/${id}`;
  t.equal(await countStatements(() => send('POST', '/items/stock', { name: 'second', notes: ['a', 'b"c'] })), 1);
  t.equal(await countStatements(() => send('PATCH', path, { amount: 7 })), 1);
  t.equal(await countStatements(() => send('PATCH', `${path}?fields=amount,facts`, { facts: { a: [1, null] } })), 1);
  t.strictSame((await send('GET', path)).json, {
    data: { id, name: 'first', amount: 7, notes: null, facts: { a: [1, null] }, owner: null, parent: null },
  });
  t.equal(await countStatements(async () => t.equal((await send('DELETE', path)).status, 204)), 1);
  t.equal((await send('DELETE', path)).status, 403, 'it is gone');
  t.equal((await send('PATCH', path, { amount: 1 })).status, 403);
  const log = await sql`select action from service_activity where collection = 'stock' and item = ${id} order by id`;
  t.strictSame(
    log.map(({ action }) => action),
    ['create', 'update', 'update', 'delete'],
  );
});

t.test('a write with an Idempotency-Key or a supplied key is one statement', async (t) => {
  const once = (method: string, path: string, key: string, body?: unknown): Promise<Answer> =>
    request(service, method, path, {
      headers: { 'content-type': 'application/json', 'idempotency-key': key },
      token: ADMIN_TOKEN,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  const answers: Answer[] = [];
  const counted = (work: () => Promise<Answer>): Promise<number> =>
    countStatements(async () => answers.push(await work()));
  const make = (): Promise<Answer> => once('POST', '/items/stock?fields=id,amount', 'made-once', { amount: 3 });
  t.equal(await counted(make), 1);
  const [first] = answers as [Answer];
  t.strictSame((await make()).json, first.json, 'a repeated request gets the same answer');
  const { id } = (first.json as { data: { id: number } }).data;
  const path = `/items/stock/${id}`;
  t.equal(await counted(() => once('PATCH', path, 'changed-once', { amount: 4 })), 1);
  await send('PATCH', path, { amount: 5 });
  t.match((await once('PATCH', path, 'changed-once', { amount: 4 })).json, { data: { amount: 5 } });
  t.equal((await once('PATCH', '/items/stock/999999', 'not-there', { amount: 4 })).status, 403);
  t.equal(
    (await sql`select from service_receipts where keys::text like '%999999%'`).length,
    0,
    'a refusal has no receipt',
  );
  t.equal(await counted(() => once('DELETE', path, 'deleted-once')), 1);
  t.equal((await once('DELETE', path, 'deleted-once')).status, 204);
  t.equal((await once('DELETE', path, 'deleted-twice')).status, 403);
  t.strictSame((await make()).status, 204, 'the item is gone, and not made again');
  t.equal(await counted(() => send('POST', '/items/stock?fields=id', { id: 70_000, amount: 1 })), 1);
  t.match((await send('POST', '/items/stock?fields=id', { amount: 1 })).json, { data: { id: 70_001 } });
  const keys = [70_010, 70_030, 70_020, 70_005];
  await Promise.all(keys.map((key) => send('POST', '/items/stock', { id: key })));
  t.equal(await counted(() => once('POST', '/items/stock?fields=id', 'supplied', { id: 70_040 })), 1);
  t.match((await send('POST', '/items/stock?fields=id', { amount: 1 })).json, { data: { id: 70_041 } });
  t.equal((await send('POST', '/items/stock', { id: 2_147_483_647 })).status, 200);
  t.match((await send('POST', '/items/stock?fields=id', { amount: 1 })).json, { data: { id: 70_042 } });
});

t.test('an answer that shows the written table elsewhere is read by a second statement', async (t) => {
  const { json } = await send('PATCH', '/items/stock/1?fields=id,parent.id,parent.name', { parent: 1, name: 'mine' });
  t.strictSame(json, { data: { id: 1, parent: { id: 1, name: 'mine' } } });
});

t.test('rows that a foreign key changes with the write are in the answer', async (t) => {
  await sql.unsafe(`
    create table countries (id serial primary key, code text unique);
    create table cities (id serial primary key, name text, country text references countries (code) on update cascade);
    insert into countries (code) values ('de');
    insert into cities (name, country) values ('Bonn', 'de');
    insert into service_relations (many_collection, many_field, one_collection, one_field)
      values ('cities', 'country', 'countries', 'cities')`);
  await request(service, 'POST', '/utils/cache/clear');
  const { json } = await send('PATCH', '/items/countries/1?fields=code,cities.name', { code: 'xx' });
  t.strictSame(json, { data: { code: 'xx', cities: [{ name: 'Bonn' }] } });
});

t.test('the own row that a foreign key changes with the write is in the answer', async (t) => {
  await sql.unsafe(`
    create table nodes (id serial primary key, code text unique, title text unique, parent text references nodes (code) on update cascade);
    insert into nodes (code, parent) values ('a', 'a')`);
  await request(service, 'POST', '/utils/cache/clear');
  const { json } = await send('PATCH', '/items/nodes/1', { code: 'b' });
  t.strictSame(json, { data: { id: 1, code: 'b', title: null, parent: 'b' } });
  const rename = (): Promise<Answer> => send('PATCH', '/items/nodes/1', { title: 'named' });
  t.equal(await countStatements(rename), 1, 'no foreign key follows this unique column');
});

t.test('the answer of a change shows what triggers of a table that inherits have made of it', async (t) => {
  await sql.unsafe(`
    create table animals (id serial primary key, name text, shouted text);
    create table dogs (primary key (id)) inherits (animals);
    insert into dogs (name) values ('rex');
    create function shout_later() returns trigger language plpgsql as $$ begin
      update dogs set shouted = upper(name) where id = new.id and shouted is distinct from upper(name); return null; end $$;
    create trigger shout_later after update on dogs for each row execute function shout_later()`);
  await request(service, 'POST', '/utils/cache/clear');
  const { json } = await send('PATCH', '/items/animals/1', { name: 'bello' });
  t.strictSame(json, { data: { id: 1, name: 'bello', shouted: 'BELLO' } });
});

t.test('a new row is answered with rows of other tables by the same statement', async (t) => {
  await send('POST', '/items/countries', { code: 'fr' });
  const path = '/items/cities?fields=name,country.code,country.cities.name';
  t.equal(
    await countStatements(() => send('POST', path, { name: 'Metz', country: 'fr' })),
    1 + 1,
    'it reads its own table',
  );
  const make = (name: string, code: string): Promise<Answer> =>
    send('POST', '/items/cities?fields=name,country.code', { name, country: code });
  t.equal(await countStatements(() => make('Paris', 'fr')), 1);
  const before = await batches();
  const names = Array.from({ length: 60 }, (_, index) => `city ${index}`);
  const codeOf = (index: number): string => (index % 3 === 0 ? 'fr' : 'xx');
  const made = await Promise.all(names.map((name, index) => make(name, codeOf(index))));
  t.strictSame(
    made.map(({ json }) => json),
    names.map((name, index) => ({ data: { name, country: { code: codeOf(index) } } })),
  );
  const after = await batches();
  t.ok(after.writes - before.writes > after.statements - before.statements, 'some of them share a statement');
  const unique = '/items/countries?fields=code,cities.name';
  t.equal(await countStatements(() => send('POST', unique, { code: 'it' })), 2, 'a unique value may wait for another');
  const several = [
    { name: 'Lyon', country: 'fr' },
    { name: 'Turin', country: 'it' },
  ];
  const list = (): Promise<Answer> => send('POST', '/items/cities?fields=name,country.code', several);
  t.equal(await countStatements(list), 2, 'a join may change the order of a list');
  const { json } = await send('POST', '/items/stock?fields=parent.name', { id: 90_000, parent: 90_000, name: 'own' });
  t.strictSame(json, { data: { parent: { name: 'own' } } });
});

t.test('a new row that may wait for another one is answered by a second statement', async (t) => {
  await sql.unsafe(`
    create table shelves (id serial primary key, name text);
    insert into shelves (name) values ('top');
    create table plain (id serial primary key, at int references shelves, number serial unique, token uuid unique default gen_random_uuid(),
      name text, code text, unique (name, code));
    create table partly (id serial primary key, at int references shelves, name text);
    create unique index on partly (name) where at is not null;
    create table lowered (id serial primary key, at int references shelves, name text, lower text generated always as (lower(name)) stored unique);
    create table ranged (id serial primary key, at int references shelves, name int4range, exclude using gist (name with &&))`);
  await request(service, 'POST', '/utils/cache/clear');
  await send('GET', '/items/plain');
  const statements = (table: string, body: object): Promise<number> =>
    countStatements(() => send('POST', `/items/${table}?fields=at.name`, { at: 1, ...body }));
  t.equal(await statements('plain', { name: 'a' }), 1, 'nothing excludes a null');
  t.equal(await statements('plain', { name: 'a', code: 'b' }), 2);
  t.equal(await statements('partly', { name: 'a' }), 2);
  t.equal(await statements('lowered', { name: 'a' }), 2);
  t.equal(await statements('ranged', { name: '[1,2)' }), 2);
  const held = await sql.reserve();
  await held`begin`;
  await held`delete from partly`;
  await held`update shelves set name = 'bottom'`;
  const made = send('POST', '/items/partly?fields=at.name', { at: 1, name: 'a' });
  await waitFor(async () => {
    const [waiting] =
      await held`select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
    return waiting !== undefined;
  }, 10_000);
  await held`commit`;
  held.release();
  t.strictSame((await made).json, { data: { at: { name: 'bottom' } } });
});

t.test('the answer of a new row shows it in the table that its own inherits from', async (t) => {
  await sql.unsafe(`
    create table regions (code text primary key);
    insert into regions values ('north');
    create table places (id serial primary key, name text, region text references regions);
    create table capitals (primary key (id), foreign key (region) references regions) inherits (places);
    insert into service_relations (many_collection, many_field, one_collection, one_field)
      values ('places', 'region', 'regions', 'places')`);
  await request(service, 'POST', '/utils/cache/clear');
  const path = '/items/capitals?fields=name,region.places.name';
  const { json } = await send('POST', path, { name: 'Oslo', region: 'north' });
  t.strictSame(json, { data: { name: 'Oslo', region: { places: [{ name: 'Oslo' }] } } });
  await sql.unsafe(`
    create table ports (primary key (id), foreign key (region) references regions) inherits (capitals);
    create table towns (id serial primary key, name text, region text references regions)`);
  await request(service, 'POST', '/utils/cache/clear');
  const inRegion = '?fields=name,region.places.name&deep[region][places][_sort]=name';
  const names = async (method: string, at: string, body: unknown): Promise<unknown> => {
    const answer = await send(method, `${at}${inRegion}`, body);
    return (answer.json as { data: { region: { places: { name: string }[] } } }).data.region.places.map(
      ({ name }) => name,
    );
  };
  t.strictSame(await names('POST', '/items/ports', { name: 'Moss', region: 'north' }), ['Moss', 'Oslo'], 'two levels');
  t.strictSame(await names('POST', '/items/towns', { name: 'Bodo', region: 'north' }), ['Moss', 'Oslo']);
  await sql.unsafe('alter table towns inherit places');
  await request(service, 'POST', '/utils/cache/clear');
  const later = await names('POST', '/items/towns', { name: 'Vardo', region: 'north' });
  t.strictSame(later, ['Bodo', 'Moss', 'Oslo', 'Vardo'], 'a table that inherits since then');
  const renamed = await names('PATCH', '/items/towns/1', { name: 'Alta' });
  t.strictSame(renamed, ['Alta', 'Moss', 'Oslo', 'Vardo'], 'a change');
});

t.test('waiting creates share statements; each gets its own row', async (t) => {
  const before = await batches();
  const names = Array.from({ length: 300 }, (_, index) => `new ${index}`);
  const answers = await Promise.all(
    names.map((name, amount) =>
      send('POST', '/items/stock?fields=name,amount,notes,facts', { name, amount, notes: [name] }),
    ),
  );
  t.strictSame(
    answers.map(({ status, json }) => [status, json]),
    names.map((name, amount) => [200, { data: { name, amount, notes: [name], facts: null } }]),
  );
  const after = await batches();
  t.ok(after.statements - before.statements < 250, `${after.statements - before.statements} statements`);
  const [row] = await sql`
    select count(*)::int as rows, count(distinct item)::int as items, count(*) filter (where data ->> 'name' is null)::int as wrong
    from service_revisions where collection = 'stock' and data ->> 'name' like 'new %'`;
  t.strictSame(row, { rows: 300, items: 300, wrong: 0 }, 'each has its revision');
});

t.test('waiting changes share statements, two of one row do not', async (t) => {
  const before = await batches();
  const answers = await Promise.all(
    Array.from({ length: 300 }, (_, index) =>
      send('PATCH', `/items/stock/${(index % 100) + 1}?fields=id,amount`, { amount: index }),
    ),
  );
  t.strictSame(
    answers.map(({ json }) => json),
    answers.map((_, index) => ({ data: { id: (index % 100) + 1, amount: index } })),
  );
  const after = await batches();
  t.ok(after.statements - before.statements < 250, `${after.statements - before.statements} statements`);
});

t.test('one that fails does not fail the others', async (t) => {
  const before = await batches();
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, index) =>
      send('POST', '/items/stock?fields=name', { name: index === 50 ? 'item 9' : `good ${index}`, amount: index }),
    ),
  );
  t.strictSame(
    answers.flatMap(({ status }, index) => (status === 200 ? [] : [[index, status]])),
    [[50, 400]],
  );
  t.match(answers[50]?.json, { errors: [{ extensions: { type: 'unique', field: 'name' } }] });
  const negative = await Promise.all(
    Array.from({ length: 60 }, (_, index) =>
      send('PATCH', `/items/stock/${index + 1}`, { amount: index === 30 ? -1 : 5 }),
    ),
  );
  t.strictSame(
    negative.flatMap(({ status }, index) => (status === 200 ? [] : [[index, status]])),
    [[30, 400]],
  );
  t.ok((await batches()).splits > before.splits, 'batches were split');
});

t.test('a row that another transaction holds keeps nobody else waiting', async (t) => {
  const held = await sql.reserve();
  await held`begin`;
  await held`update stock set amount = 1 where id in (1, 2, 3)`;
  await held`insert into stock (name) values ('held')`;
  const blocked = Promise.all([1, 2, 3].map((key) => send('PATCH', `/items/stock/${key}`, { amount: 33 })));
  const renamed = send('PATCH', '/items/stock/200?fields=name', { name: 'held' });
  const sameName = send('POST', '/items/stock?fields=name', { name: 'held' });
  for (let turn = 0; turn < 4; turn++) {
    const free = Array.from({ length: 40 }, (_, index) => [
      send('PATCH', `/items/stock/${index + 4}`, { amount: 2 }),
      send('PATCH', `/items/stock/${index + 201}?fields=name`, { name: `renamed ${turn} ${index}` }),
      send('POST', '/items/stock', { name: `free ${turn} ${index}` }),
    ]).flat();
    t.ok(
      (await Promise.all(free)).every(({ status }) => status === 200),
      'the others are written',
    );
  }
  await held`commit`;
  held.release();
  t.strictSame(
    (await blocked).map(({ json }) => (json as { data: { amount: number } }).data.amount),
    [33, 33, 33],
  );
  t.equal((await sameName).status, 400, 'the name is taken');
  t.equal((await renamed).status, 400);
});

t.test('callers of one policy share statements, and each acts as themselves', async (t) => {
  const rule = { owner: { _eq: '$CURRENT_USER' } };
  const permissions = (['create', 'read', 'update'] as const).map((action) => ({
    collection: 'stock',
    action,
    permissions: action === 'create' ? null : rule,
    fields: ['id', 'name', 'amount', 'owner'],
    presets: action === 'create' ? { owner: '$CURRENT_USER' } : null,
  }));
  const caller = await makeCaller(sql, 'keeper', [{ permissions }]);
  await inForce(service, caller, '/items/stock');
  const { token, user } = caller;
  const answers = await Promise.all(
    Array.from({ length: 80 }, (_, index) =>
      send('POST', '/items/stock?fields=name,owner', { name: `own ${index}` }, token),
    ),
  );
  t.strictSame(
    answers.map(({ json }) => json),
    answers.map((_, index) => ({ data: { name: `own ${index}`, owner: user } })),
  );
  t.equal((await send('PATCH', '/items/stock/5', { amount: 1 }, token)).status, 403, "another's item");
  const mixed = await Promise.all(
    Array.from({ length: 40 }, (_, index) => send('PATCH', `/items/stock/${index + 5}`, { amount: 1 }, token)),
  );
  t.ok(mixed.every(({ status }) => status === 403));
});

t.test('tables with triggers or deferred constraints are written by one request at a time', async (t) => {
  const before = await batches();
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, index) => [
      send('POST', '/items/triggered?fields=name', { name: `n${index}` }),
      send('POST', '/items/deferred?fields=name', { name: `n${Math.min(index, 1)}` }),
    ]).flat(),
  );
  const triggered = answers.filter((_, index) => index % 2 === 0);
  t.strictSame(
    triggered.map(({ json }) => json),
    triggered.map((_, index) => ({ data: { name: `N${index}` } })),
  );
  t.equal(answers.filter(({ status }) => status === 200).length, 42, 'two of the deferred names are new');
  t.strictSame(await batches(), before, 'no batch');
});

t.test('a lost connection leaves the outcome unknown, and nothing is written twice', async (t) => {
  let round = 0;
  let isOver = false;
  const kill = (async () => {
    while (!isOver) {
      await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name like 'lateral%' and state = 'active' and query like '%stock%'`;
    }
  })();
  const statuses = new Map<string, number>();
  await waitFor(async () => {
    round++;
    const names = Array.from({ length: 60 }, (_, index) => `killed ${round} ${index}`);
    const answers = await Promise.all(names.map((name) => send('POST', '/items/stock?fields=name', { name })));
    for (const [index, { status }] of answers.entries()) statuses.set(names[index] ?? '', status);
    return [...statuses.values()].includes(503) && round > 20;
  }, 60_000);
  isOver = true;
  await kill;
  const rows = await sql<{ name: string }[]>`select name from stock where name like 'killed %'`;
  const written = new Set(rows.map(({ name }) => name));
  t.equal(rows.length, written.size, 'no row twice');
  const lost = [...statuses].filter(([name, status]) => status === 200 && !written.has(name));
  t.strictSame(lost, [], 'what was acknowledged is there');
  t.ok([...statuses.values()].every((status) => status === 200 || status === 503));
});
