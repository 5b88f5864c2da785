/** /rpc: functions of every form are called by name, with typed arguments, as far as rows and policies allow. */
import t from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  createLibrary,
  get,
  loadSchemas,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
  databaseUrl as testDatabaseUrl,
  withSql,
} from '../../support/service.js';

const server = await startDatabase({ own: true });
const databaseUrl = await createLibrary(server, 'functions');
await loadSchemas(databaseUrl, ['functions.sql']);
/** Functions that return rows of tables inside of other types, and of tables that are a part of others. */
const HOLDERS = `
  create type holder as (n integer, items articles[]);
  create type deep_holder as (n integer, inside holder);
  create type author_range as range (subtype = authors);
  create domain author_domain as authors;
  create table pay (id integer, year integer, primary key (id, year)) partition by list (year);
  create table pay_24 partition of pay for values in (24);
  create schema stock;
  create table stock.book_copies () inherits (tags);
  create table stock.shelves (id integer primary key, label text);
  insert into stock.shelves values (1, 'left');
  create table stock.holders (id integer primary key, shelf stock.shelves);
  create function held_table() returns table (n integer, a articles) language sql stable as 'select 1, a from articles a';
  create function held_alone() returns table (a articles) language sql stable as 'select a from articles a';
  create function held_array() returns articles[] language sql stable as 'select array_agg(a) from articles a';
  create function held_out(out n integer, out a articles) language sql stable as 'select 1, a from articles a limit 1';
  create function held_inout(inout n integer, inout a articles default null) language sql stable as 'select 1, a';
  create function held_composite() returns setof deep_holder language sql stable as 'select null::deep_holder';
  create function held_range() returns author_range language sql stable as 'select author_range(a, a) from authors a limit 1';
  create function held_domain() returns author_domain language sql stable as 'select a::author_domain from authors a limit 1';
  create function held_users() returns table (n integer, u service_users) language sql stable as 'select 1, u from service_users u';
  create function held_user_list() returns service_users[] language sql stable as 'select array_agg(u) from service_users u';
  create function held_elsewhere() returns setof stock.holders language sql stable as 'select * from stock.holders';
  create function held_records(out n integer, out a record) language plpgsql stable as 'begin select x into a from authors x; end';
  create function part_partition() returns setof pay_24 language sql stable as 'select * from pay_24';
  create function part_child() returns setof stock.book_copies language sql stable as 'select * from stock.book_copies';
  create function part_service() returns setof service_schema language sql stable as 'select * from service_schema';
  create function shelves() returns setof stock.shelves language sql stable as 'select * from stock.shelves';
  insert into service_functions (name) select proname from pg_proc
    where pronamespace = 'public'::regnamespace and (proname ~ '^(held|part)_' or proname = 'shelves')`;
await withSql(databaseUrl, (sql) => sql.unsafe(HOLDERS));
await withSql(databaseUrl, (sql) =>
  sql.unsafe(`
    create function misread() returns integer language plpgsql stable as $$begin return 'hidden'::text::integer; end$$;
    create function misread_write() returns integer language plpgsql volatile as $$begin return 'hidden'::text::integer; end$$;
    insert into service_functions (name) values ('misread'), ('misread_write')`),
);
const reader = withSql(databaseUrl, (sql) =>
  makeCaller(sql, 'misreader', [
    { permissions: ['misread', 'misread_write'].map((collection) => ({ collection, action: 'execute' })) },
  ]),
);
const service = await startTestService({ databaseUrl });

function call(name: string, body: unknown, options: RequestOptions = {}): Promise<Answer> {
  const headers = { 'content-type': 'application/json', ...options.headers };
  return request(service, 'POST', `/rpc/${name}`, { ...options, headers, body: JSON.stringify(body) });
}

function search(name: string, body: unknown, query = ''): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, 'SEARCH', `/rpc/${name}${query}`, { headers, body: JSON.stringify(body) });
}

function refusal(status: number, message: RegExp): object {
  return { status, json: { errors: [{ message }] } };
}

/** What a call answers, by POST and by GET. */
const RESULTS: readonly (readonly [name: string, body: Record<string, unknown>, query: string, data: unknown])[] = [
  ['add', { a: 1, b: 2 }, 'a=1&b=2', 3],
  ['add', { a: 1 }, 'a=1', 11],
  ['renamed', { a: 5 }, 'a=5', 15],
  ['elsewhere', {}, '', 'in another schema'],
  ['total', { numbers: [1, 2, 3] }, 'numbers[]=1&numbers[]=2&numbers[]=3', '6'],
  ['total', {}, '', '0'],
  ['joined_words', { glue: '-', words: ['a', 'b,c', 'd"e'] }, 'glue=-&words=["a","b,c","d\\"e"]', 'a-b,c-d"e'],
  ['joined_words', { glue: '-' }, 'glue=-', ''],
  ['numbers', { up_to: 3 }, 'up_to=3', [3, 2, 1]],
  ['numbers', { up_to: 0 }, 'up_to=0', []],
  ['spread', { values_of: [4, 9, 2] }, 'values_of=[4,9,2]', { low: 2, high: 9 }],
  ['only_column', {}, '', [{ id: 1 }, { id: 2 }]],
  ['nothing', {}, '', null],
  ['null_number', {}, '', null],
  ['mood_of', { given: 'wild' }, 'given=wild', 'wild'],
  ['grow', { given: { name: 'x', size: 41 } }, 'given={"name":"x","size":41}', { name: 'x', size: '42' }],
  [
    'places',
    {},
    '',
    [
      { name: 'a', size: '1' },
      { name: 'b', size: '9007199254740993' },
    ],
  ],
  ['no_place', {}, '', null],
  ['area', { side: 3 }, 'side=3', 'square 9'],
  ['area', { width: 3, height: 4 }, 'width=3&height=4', 'rectangle 12'],
  ['area', { radius: 3 }, 'radius=3', 'circle 3false'],
  ['area', { radius: 3, exact: true }, 'radius=3&exact=true', 'circle 3true'],
];

t.test('functions of every form answer the same by POST and by GET', async (t) => {
  for (const [name, body, query, data] of RESULTS) {
    t.match(await call(name, body), { status: 200, json: { data } }, `${name} ${JSON.stringify(body)}`);
    const answer = await get(service, `/rpc/${name}?${encodeURI(query)}`);
    t.strictSame({ status: answer.status, json: answer.json }, { status: 200, json: { data } }, `${name}?${query}`);
    t.match(await search(name, { arguments: body }), { status: 200, json: { data } }, `SEARCH ${name}`);
  }
});

t.test('SEARCH carries what is too long for a URL', async (t) => {
  const query = { sort: ['-size'], fields: ['name'], filter: { size: { _gte: 0 } } };
  t.strictSame((await search('places', { query })).json, { data: [{ name: 'b' }, { name: 'a' }] });
  t.strictSame((await search('add', {}, '?a=1&b=2')).json, { data: 3 }, 'what the body does not say is in the URL');
  t.strictSame((await search('places', {}, '?fields=name&limit=1')).json, { data: [{ name: 'a' }] });
  t.match(await search('count_up', {}), { status: 405, headers: { allow: 'POST' } }, 'it calls only what reads');
  t.match(await search('missing', {}), { status: 403 });
  t.match(await search('add', { arguments: { a: 'x' } }), refusal(400, /Argument "a"/));
  t.match(await search('add', { arguments: [1] }), refusal(400, /"arguments" must be an object/));
  t.match(await search('places', { query: 'name' }), refusal(400, /"query" must be an object/));
  t.match(
    await search('places', { keys: [1] }),
    refusal(400, /"keys" is not allowed: the body takes arguments, query/),
  );
});

t.test('of forms that differ in types alone a row chooses one', async (t) => {
  await withSql(databaseUrl, (sql) =>
    sql.unsafe(`
      create function find(id integer) returns text language sql stable as $$ select 'number ' || id $$;
      create function find(id text) returns text language sql stable as $$ select 'text ' || id $$;
      insert into service_functions (name, function, arguments) values
        ('find', null, null), ('find_number', 'find', '["id int4"]'), ('find_text', 'find', '["id text"]'),
        ('find_date', 'find', '["id date"]')`),
  );
  await until(async () => (await call('find_number', { id: 7 })).text === '{"data":"number 7"}');
  t.strictSame((await call('find_text', { id: '7' })).json, { data: 'text 7' });
  t.match(await call('find_number', { id: 'x' }), refusal(400, /Argument "id"/));
  t.match(await call('find', { id: 7 }), refusal(400, /differ only in their types.*such as \["id (integer|text)"\]/));
  t.match(
    await call('find_date', { id: 7 }),
    refusal(403, /of the type (integer|text), but its row of service_functions says "id date"/),
  );
});

t.test('arguments have the values that columns take, and results look as columns do', async (t) => {
  const given = {
    number: '9007199254740993',
    digits: '1.50',
    moment: '2023-01-15T10:00:00.000Z',
    day: '2024-02-29',
    flag: false,
    document: { a: [1, null, '$NOW'] },
    key: '0195c3b5-7a4e-7c1b-8d6e-2f3a4b5c6d7e',
    words: '$CURRENT_USER \' " \\ %',
  };
  t.strictSame((await call('echo', given)).json, { data: [given] });
  const empty = Object.fromEntries(Object.keys(given).map((name) => [name, null]));
  t.strictSame((await call('echo', {})).json, { data: [empty] });
  t.strictSame((await call('echo', empty)).json, { data: [empty] });
  t.match((await call('echo', { document: null, words: '' })).json, { data: [{ document: null, words: '' }] });
});

t.test('an argument that does not fit is named', async (t) => {
  const cases: readonly (readonly [name: string, body: unknown, said: RegExp])[] = [
    ['add', { a: 'x' }, /"a"/],
    ['add', { a: 1.5 }, /"a"/],
    ['add', { a: [1] }, /"a"/],
    ['add', { a: { b: 1 } }, /"a"/],
    ['add', { a: true }, /"a"/],
    ['add', { a: 2147483648 }, /"a"/],
    ['add', {}, /needs the argument "a"/],
    ['add', { a: 1, c: 2 }, /has no argument "c"/],
    ['renamed', { a: 1, b: 2 }, /has no argument "b"/],
    ['echo', { day: '2023-02-30' }, /"day"/],
    ['echo', { moment: 'yesterday-ish' }, /"moment"/],
    ['echo', { key: 'no-uuid' }, /"key"/],
    ['echo', { flag: 'perhaps' }, /"flag"/],
    ['echo', { digits: 'many' }, /"digits"/],
    ['echo', { words: 'a\0b' }, /"words"/],
    ['echo', { words: ['a'] }, /"words"/],
    ['mood_of', { given: 'sad' }, /"given"/],
    ['grow', { given: { name: 'x', sise: 1 } }, /sise/],
    ['total', { numbers: 'x' }, /"numbers"/],
    ['total', { numbers: [1, 'x'] }, /numbers/],
    ['area', { side: 1, width: 2 }, /No overload of the function "area"/],
    ['twin', { value: 1 }, /Several overloads/],
    ['add', [1], /object of arguments/],
    ['add', 'a', /object of arguments/],
  ];
  for (const [name, body, said] of cases) {
    const answer = await call(name, body);
    t.match(answer, refusal(400, said), `${name} ${JSON.stringify(body)}: ${answer.text}`);
  }
  t.match(await get(service, '/rpc/add?a=x'), refusal(400, /"a"/));
  t.match(await get(service, '/rpc/add?a[b]=1'), refusal(400, /"a"/));
  t.match(await get(service, '/rpc/add?a=1&fields=x'), refusal(400, /"fields" does not apply to "add"/));
});

t.test('parameters that do not apply are refused, not dropped', async (t) => {
  const single = ['filter[title]=x', 'search=x', 'sort=id', 'limit=1', 'offset=1', 'page=2', 'cursor=', 'meta=*'];
  const queries = [...single, 'aggregate[count]=*', 'groupBy=status', 'export=csv', 'filter={"title":{"_eq":"x"}}'];
  const applies = refusal(400, /does not apply to .* returns one row/);
  for (const query of queries) {
    t.match(await get(service, `/rpc/article_titled?title=Zebra&${query}`), applies, query);
    t.match(await call(`publish?${query}`, { article: 1 }), applies, query);
  }
  t.match(await get(service, '/rpc/spread?values_of=[1]&filter[low][_eq]=9'), applies);
  t.match(await search('spread', { arguments: { values_of: [1] }, query: { filter: { low: { _eq: 9 } } } }), applies);
  t.match(await get(service, '/rpc/article_titled?title=Zebra&fields=comments.id&deep[comments][_limit]=1'), {
    json: { data: { comments: [{ id: 6 }] } },
  });
  t.match(
    await call('add?a=5', { a: 1 }),
    refusal(400, /"a" is in the URL: the arguments of a POST must be in its body/),
  );
  t.match(await call('publish?fields=id&article=5', { article: 1 }), refusal(400, /"article" is in the URL/));
  t.match(await search('add', { arguments: { a: 1 } }, '?b=5'), refusal(400, /"b" must be in the "arguments"/));
  t.strictSame((await search('add', { arguments: { a: 1 } }, '?a=5')).json, { data: 11 }, 'the body replaces');
  const elsewhere = refusal(400, /"filter" must be in the "query" of the body/);
  t.match(await search('places', { query: { fields: ['name'] } }, '?filter[size]=1'), elsewhere);
});

t.test('rows of its own columns take the parameters of a query too', async (t) => {
  const read = async (path: string): Promise<unknown> => (await get(service, `/rpc/${path}`)).json;
  t.strictSame(await read('places?sort=-size&fields=name'), { data: [{ name: 'b' }, { name: 'a' }] });
  t.strictSame(await read('places?filter[size][_gt]=1&meta=*'), {
    meta: { total_count: 2, filter_count: 1 },
    data: [{ name: 'b', size: '9007199254740993' }],
  });
  t.strictSame(await read('places?aggregate[count]=*'), { data: [{ count: 2 }] });
  t.match(await get(service, '/rpc/places?export=csv'), { text: /^"?name"?,/ });
  t.match(await get(service, '/rpc/places?fields=nothing'), { status: 403 });
  t.match(await get(service, '/rpc/spread?values_of=[1]&export=csv'), { status: 400 });
  t.strictSame(await read('spread?values_of=[1]&fields=low'), { data: { low: 1 } });
});

t.test('functions that no row exposes, or that cannot be called, are refused with 403', async (t) => {
  for (const name of ['secret', 'missing', 'version', 'pg_sleep', 'needs_hidden', 'nobody', '%00', "a'b"]) {
    t.match(await call(encodeURIComponent(name), {}), { status: 403 }, name);
    t.match(await get(service, `/rpc/${encodeURIComponent(name)}`), { status: 403 }, name);
  }
  t.match(await call('unnamed', {}), refusal(403, /argument without a name/));
  t.match(await call('anything', {}), refusal(403, /anyelement/));
  t.match(await call('rows_of_record', {}), refusal(403, /record/));
  t.match(await get(service, '/rpc'), { status: 404 });
});

t.test('rows of tables are returned as items or not at all', async (t) => {
  t.strictSame((await get(service, '/rpc/shelves')).json, { data: [{ id: 1, label: 'left' }] });
  const inside = /cannot be called: it returns (rows of [\w.]+ inside another type|the type record)/;
  const part = /cannot be called: it returns rows of [\w.]+, a partition or child table/;
  const names = ['table', 'alone', 'array', 'out', 'inout', 'composite', 'range', 'domain', 'users', 'user_list'];
  for (const name of [...names, 'elsewhere', 'records'])
    t.match(await call(`held_${name}`, {}), refusal(403, inside), name);
  for (const name of ['partition', 'child', 'service'])
    t.match(await call(`part_${name}`, {}), refusal(403, part), name);
});

t.test('arguments that are called like parameters of a query come by POST', async (t) => {
  t.strictSame((await call('search_all', { limit: 3, filter: 'x' })).json, { data: '3x' });
});

t.test('errors of a function are those of its author, and the rest of the service is well', async (t) => {
  t.match(await call('refuse', { reason: 'Not on Sundays.' }), refusal(400, /Not on Sundays/));
  t.match(await call('refuse', { reason: 'x', code: '42P01' }), { status: 503 });
  t.match(await call('refuse', { reason: 'x', code: '57014' }), { status: 503 });
  t.match(await call('divide', { a: 1, b: 0 }), refusal(400, /division by zero/));
  t.match(await get(service, '/rpc/divide?a=1&b=0'), refusal(400, /division by zero/));
  t.match(await call('refuse', { reason: 'Too large.', code: '22023' }), refusal(400, /Too large/));
  for (const name of ['misread', 'misread_write']) {
    const shown = await call(name, {});
    t.match(shown, refusal(503, /failed on a value.*invalid input syntax for type integer: "hidden"/), shown.text);
    const { token } = await reader;
    const answer = await call(name, {}, { token });
    t.match(answer, refusal(503, /failed on a value/));
    t.notMatch(answer.text, /hidden/, 'what a text quotes is for administrators');
  }
  t.match(await call('refuse_write', { reason: 'Not this one.' }), refusal(400, /Not this one/));
  t.match(await call('break_rule', {}), {
    status: 400,
    json: { errors: [{ extensions: { code: 'FAILED_VALIDATION', field: 'email' } }] },
  });
  t.match(await get(service, '/items/tags?filter[name]=undone'), { json: { data: [] } });
});

t.test('a volatile function is called by POST alone', async (t) => {
  const refused = await get(service, '/rpc/count_up');
  t.match(refused, { status: 405, headers: { allow: 'POST' } });
  const first = (await call('count_up', {})).json as { data: string };
  const second = (await call('count_up', {})).json as { data: string };
  t.equal(Number(second.data), Number(first.data) + 1);
});

t.test('a call with an Idempotency-Key is carried out once', async (t) => {
  const headers = { 'idempotency-key': 'once' };
  const answers = await Promise.all([1, 2, 3].map(() => call('count_up', {}, { headers })));
  t.equal(new Set(answers.map((answer) => answer.text)).size, 1);
  t.match(await call('publish', { article: 3 }, { headers }), { status: 422 });
  const made = { 'idempotency-key': 'made' };
  const body = { title: 'Once', writer: 1 };
  t.equal(
    (await call('write_article', body, { headers: made })).text,
    (await call('write_article', body, { headers: made })).text,
  );
  t.match((await get(service, '/items/articles?filter[title]=Once&aggregate[count]=*')).json, { data: [{ count: 1 }] });
});

t.test('a policy says who may call what', async (t) => {
  const caller = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'adder', [
      {
        permissions: [
          { collection: 'add', action: 'execute' },
          { collection: 'articles', action: 'read' },
        ],
      },
    ]),
  );
  const { token } = caller;
  t.match(await call('add', { a: 1 }, { token }), { status: 200, json: { data: 11 } });
  for (const name of ['total', 'secret', 'count_up', 'publish', 'unnamed'])
    t.match(await call(name, {}, { token }), refusal(403, /or it does not exist/), name);
  t.match(await call('add', { a: 1 }, { token: null }), { status: 403 });
  t.match(await get(service, '/functions', { token }), { status: 403 });
});

t.test('the grants of the database count as well', async (t) => {
  await withSql(databaseUrl, async (sql) => {
    await sql`create role narrow login password 'narrow'`;
    await sql.unsafe(
      'grant usage on schema public to narrow; grant all on all tables in schema public to narrow; grant all on all sequences in schema public to narrow; revoke execute on function add(integer, integer) from public',
    );
  });
  const url = testDatabaseUrl(server, 'functions', { user: 'narrow', password: 'narrow' });
  const narrow = await startTestService({ databaseUrl: url });
  const body = JSON.stringify({ a: 1 });
  const headers = { 'content-type': 'application/json' };
  t.match(await request(narrow, 'POST', '/rpc/add', { headers, body }), { status: 403 });
  t.match(await request(narrow, 'GET', '/rpc/total?numbers=[1]'), { status: 200 });
});

t.test('administrators say what is served, and changes count at once', async (t) => {
  const send = (method: string, path: string, body: unknown): Promise<Answer> =>
    request(service, method, path, { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) });
  t.match(await call('secret', {}), { status: 403 });
  t.match(await send('POST', '/functions', { name: 'secret', note: 'Not any more' }), {
    status: 200,
    json: { data: { name: 'secret' } },
  });
  await until(async () => (await call('secret', {})).status === 200);
  await withSql(databaseUrl, (sql) =>
    sql.unsafe("create or replace function secret() returns text language sql stable as $$select 'changed'$$"),
  );
  await until(async () => (await call('secret', {})).text === '{"data":"changed"}');
  await withSql(databaseUrl, (sql) => sql.unsafe('drop function secret()'));
  await until(async () => (await call('secret', {})).status === 403);
  await withSql(databaseUrl, (sql) =>
    sql.unsafe("create function secret(more integer) returns integer language sql stable as 'select more'"),
  );
  await until(async () => (await call('secret', { more: 3 })).text === '{"data":3}');
  await withSql(databaseUrl, (sql) =>
    sql.unsafe("create or replace function api.elsewhere() returns text language sql volatile as $$select 'now'$$"),
  );
  await until(async () => (await get(service, '/rpc/elsewhere')).status === 405);
  t.match(await send('PATCH', '/functions/secret', { arguments: [] }), { status: 200 });
  await until(async () => (await call('secret', { more: 3 })).status === 403);
  t.match(await request(service, 'DELETE', '/functions/secret'), { status: 204 });
  t.match(await send('POST', '/functions', { name: 'add' }), { status: 400 });
  t.match(await send('POST', '/functions', { name: 'other', arguments: 'a' }), { status: 400 });
  const permission = { policy: { name: 'Callers' }, collection: 'add', action: 'execute' };
  t.match(await send('POST', '/permissions', { ...permission, permissions: {} }), { status: 200 });
  for (const wrong of [{ permissions: { a: { _eq: 1 } } }, { presets: { a: 1 } }, { collection: 'none' }])
    t.match(await send('POST', '/permissions', { ...permission, ...wrong }), { status: 400 }, JSON.stringify(wrong));
});

async function until(condition: () => Promise<boolean>): Promise<void> {
  for (let attempt = 0; attempt < 100; attempt++) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error('it did not come to pass');
}
