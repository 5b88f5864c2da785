/** Types, keys, names and functions that few schemas have: domains, composite and jsonb keys, columns called `a.b`, tables without a key. */
import t from 'tap';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'unusual');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create domain zip as text check (value ~ '^[0-9]{5}$');
  create domain posint as int constraint positive check (value > 0);
  create domain given as int not null;
  create table counted (id int primary key, n posint, ns posint[], z zip);
  insert into counted values (1, 1, '{1,2}', '12345');
  create table limited (id int primary key, n int check (n > 0) not null, parent int references limited, u int unique);
  insert into limited values (1, 1, null, 1);
  create function f_domain(z zip) returns text language sql immutable as 'select z::text';
  create function f_given(g given) returns int language sql immutable as 'select g::int';
  create function f_cast(t text) returns text language sql stable as 'select t::zip::text';
  create function f_cast_body(t text) returns text language plpgsql stable as 'begin return t::zip; end';
  create table listed (id int primary key generated always as identity, a int, xs int[] not null default array[1, 2]);
  create type pair as (one int, two text);
  create domain pair_domain as pair;
  create table pairs (id int primary key, p pair, d pair_domain, parent int references pairs);
  insert into pairs values (1, null, null, 2), (2, (1, null), (1, null), 3), (3, (1, 'a'), (1, 'a'), 1), (4, (null, null), (null, null), null);
  create table json_keys (k jsonb primary key, n int);
  insert into json_keys values ('{"a": 1, "b": [2]}', 1), ('"x y"', 2), ('5', 3), ('"~\\\\"', 4), ('[1, "z"]', 5);
  create type spot as (word text, "N o" int, inner_pair pair, list int[], odd text);
  create table spot_keys (k spot primary key, n int);
  insert into spot_keys values (('a', 1, (1, 'b,"c'), '{1,2}', null)::spot, 1), (('', null, null, '{}', '(\\\\"x')::spot, 2);
  create table mixed_keys (k pair, j jsonb, t text, n int, primary key (k, j, t));
  insert into mixed_keys values ((1, 'a~b'), '{"x": "~"}', 't', 1), ((2, null), '"s"', '', 2);
  create table twins (id jsonb primary key, v text);
  create table twin_notes (id serial primary key, twin jsonb references twins, n text);
  create table addresses (id pair primary key, n int, sort int);
  create table parcels (id int primary key, "to" pair references addresses);
  create table char_keys (k char(5) primary key, n int);
  insert into char_keys values ('ab', 1), (' c', 2);
  create table odd_names (
    "k.e(y)" int primary key, "x(y)" text, "a.b" int, "c,d" text, "say ""hi""" text, "-m" int, _and text, "born.on" date,
    "to.parent" int references odd_names, "j.s" jsonb
  );
  insert into odd_names values (1, 'x1', 5, 'c1', 'h1', 7, 'n1', '2024-02-03', null, '{"q": 4}'),
    (2, 'x2', 6, 'c2', 'h2', 8, 'n2', '2025-02-03', 1, '{"q": 3}');
  create extension hstore;
  create table documents (id int primary key, h hstore, p pair, d pair_domain, ps pair[]);
  insert into documents values (1, 'a=>1, b=>NULL', (1, 'x'), (2, null), array[(3, 'y')::pair]);
  create table releases (id int primary key, name text);
  create table notes (release int references releases, body text);
  create table covers (release int unique references releases, body text);
  insert into releases values (1, 'one');
  insert into notes values (1, 'a'), (1, 'b');
  create function f_more(variadic xs int[]) returns int language sql immutable as 'select cardinality(xs)';
  create function f_vd(a int, variadic xs int[] default '{}') returns int language sql immutable as 'select a + cardinality(xs)';
  create function f_vd2(a int default 1, b text default 'b', variadic "X s" posint[] default array[7, 8]::posint[])
    returns text language sql immutable as $$select a || b || "X s"::text$$;
  create function f_held(a int, variadic xs int[] default '{3}') returns int language sql immutable as 'select a + xs[1]';
  create view many_rows as select 1 as id, (select x from generate_series(1, 2) x) as n;
  create function f_write(n int, p int default null, u int default null) returns int language plpgsql volatile as
    'begin insert into limited values (2, n, p, u); return 1; end'`);
const service = await startTestService({ databaseUrl });
await sql.unsafe(`
  insert into service_relations (many_collection, many_field, one_collection, one_field) values
    ('notes', 'release', 'releases', 'notes'), ('twin_notes', 'twin', 'twins', 'notes'),
    ('parcels', 'to', 'addresses', 'parcels'), ('covers', 'release', 'releases', 'covers'), ('odd_names', 'to.parent', 'odd_names', 'k.ids');
  insert into service_functions (name, arguments) select proname, case proname when 'f_held' then '["a"]'::json end
    from pg_proc where proname ~ '^f_'`);
const headers = { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_TOKEN}` };

function send(method: string, path: string, body: unknown): Promise<Answer> {
  const text = JSON.stringify(body) as string | undefined;
  // Node sends a DELETE without the length of its body.
  const length = method === 'DELETE' ? { 'content-length': String(Buffer.byteLength(text ?? '')) } : {};
  return request(service, method, path, {
    headers: { ...headers, ...length },
    ...(text === undefined ? {} : { body: text }),
  });
}

const rpc = (name: string, body: unknown): Promise<Answer> => send('POST', `/rpc/${name}`, body);

function listed(collection: string, query: Readonly<Record<string, unknown>>): Promise<Answer> {
  const text = Object.entries(query).map(([name, value]) => {
    const written = typeof value === 'string' ? value : JSON.stringify(value);
    return `${name}=${encodeURIComponent(written)}`;
  });
  return get(service, `/items/${collection}?${text.join('&')}`);
}

function refusal({ status, json }: Answer): unknown {
  const [error] = (json as { errors?: { message: string; extensions: { code: string } }[] }).errors ?? [];
  return { status, code: error?.extensions.code, message: error?.message };
}

await waitFor(async () => (await rpc('f_domain', { z: '12345' })).status === 200, 5_000);

t.test('a value that a domain or a constraint refuses is the caller’s fault', async (t) => {
  for (const [name, body] of [
    ['f_domain', { z: '12' }],
    ['f_given', { g: null }],
    ['f_cast', { t: '12' }],
    ['f_cast_body', { t: '12' }],
    ['f_write', { n: 0 }],
    ['f_write', { n: null }],
    ['f_write', { n: 1, p: 9 }],
    ['f_write', { n: 1, u: 1 }],
  ] as const) {
    const answer = await rpc(name, body);
    t.equal(answer.status, 400, `${name} ${JSON.stringify(body)}: ${answer.text}`);
  }
  t.match(refusal(await rpc('f_domain', { z: '12' })), { code: 'INVALID_QUERY', message: /"zip"/ });
  for (const filter of [{ ns: { _contains_any: [-1] } }, { ns: { _eq: [-1] } }, { ns: { _in: [[1], [-1]] } }]) {
    const answer = await listed('counted', { filter });
    t.equal(answer.status, 400, `${JSON.stringify(filter)}: ${answer.text}`);
  }
  t.match(await listed('counted', { filter: { n: { _in: [1, -1] } } }), { status: 200, json: { data: [{ id: 1 }] } });
  t.match(await rpc('f_domain', { z: '12345' }), { status: 200, json: { data: '12345' } });
  t.equal((await get(service, '/items/many_rows')).status, 503, 'a view that fails by itself');
  t.equal((await get(service, '/items/limited')).text.includes('"id":2'), false, 'nothing is written');
});

t.test('a composite value of which attributes are null is not null', async (t) => {
  const idsOf = async (filter: unknown): Promise<unknown> => {
    const { json, text } = await listed('pairs', { filter, fields: 'id', sort: 'id' });
    return (json as { data?: { id: number }[] }).data?.map(({ id }) => id) ?? text;
  };
  for (const field of ['p', 'd']) {
    t.strictSame(await idsOf({ [field]: { _null: true } }), [1], `${field} _null`);
    t.strictSame(await idsOf({ [field]: { _nnull: true } }), [2, 3, 4], `${field} _nnull`);
    t.strictSame(await idsOf({ parent: { [field]: { _nnull: true } } }), [1, 2], `${field} _nnull of the parent`);
  }
  for (const sort of ['p', '-p']) {
    const seen: unknown[] = [];
    let cursor = '';
    do {
      const { json, text } = await listed('pairs', { sort, fields: 'id', limit: '1', cursor });
      const { data, meta } = json as { data?: { id: number }[]; meta?: { next_cursor: string | null } };
      if (!data || seen.length > 5) return void t.fail(text);
      seen.push(...data.map(({ id }) => id));
      cursor = meta?.next_cursor ?? '';
    } while (cursor !== '');
    t.strictSame(seen, sort === 'p' ? [3, 2, 4, 1] : [1, 4, 2, 3], `pages in the order of ${sort}`);
  }
});

t.test('items without a key are not shown by their keys', async (t) => {
  for (const name of ['notes', 'covers']) {
    for (const path of ['/items/releases/1', '/items/releases']) {
      t.match(refusal(await get(service, `${path}?fields=id,${name}`)), {
        status: 400,
        code: 'INVALID_QUERY',
        message: new RegExp(`"${name}" has no key to show: write "${name}\\.\\*"`),
      });
    }
    t.equal((await get(service, `/items/releases/1?fields=${name}&alias[x]=${name}`)).status, 400);
    t.equal((await get(service, `/items/releases/1?fields=x&alias[x]=${name}`)).status, 400);
    t.equal((await get(service, `/items/releases/1?fields=${name},${name}.body`)).status, 200);
  }
  t.match((await get(service, '/items/releases/1?fields=notes.*')).json, {
    data: { notes: [{ body: 'a' }, { body: 'b' }] },
  });
  t.strictSame((await get(service, '/items/releases/1?fields=*')).json, { data: { id: 1, name: 'one' } });
});

t.test('the variadic argument of a function can be left out', async (t) => {
  for (const [name, body, data] of [
    ['f_more', {}, 0],
    ['f_vd', { a: 1 }, 1],
    ['f_vd', { a: 1, xs: [5, 6] }, 3],
    ['f_vd2', {}, '1b{7,8}'],
    ['f_vd2', { b: 'c' }, '1c{7,8}'],
    ['f_vd2', { b: 'c', 'X s': [1] }, '1c{1}'],
    ['f_held', { a: 1 }, 4],
  ] as const) {
    const answer = await rpc(name, body);
    t.strictSame(answer.json, { data }, `${name} ${JSON.stringify(body)}: ${answer.text}`);
  }
  t.equal((await rpc('f_held', { a: 1, xs: [2] })).status, 400);
  t.strictSame((await get(service, '/rpc/f_vd?a=4')).json, { data: 4 });
  const created = await send('POST', '/items/listed?fields=xs', [{ a: 1 }, { xs: [3] }]);
  t.strictSame(created.json, { data: [{ xs: [1, 2] }, { xs: [3] }] }, `a default that is an array: ${created.text}`);
  const graphql = await send('POST', '/graphql', { query: '{ f_vd(a: 2) }' });
  t.strictSame(graphql.json, { data: { f_vd: 2 } }, graphql.text);
});

t.test('a key is sent back as it is shown, whatever its type', async (t) => {
  for (const collection of ['json_keys', 'spot_keys', 'mixed_keys', 'char_keys']) {
    const { json } = await get(service, `/items/${collection}?sort=n`);
    const { data } = json as { data: { k: unknown; j?: unknown; t?: unknown; n: number }[] };
    for (const item of data) {
      const parts = [item.k, item.j, item.t].filter((each) => each !== undefined);
      const text = (part: unknown): string => (typeof part === 'object' ? JSON.stringify(part) : String(part));
      const key =
        parts.length === 1 ? text(item.k) : parts.map((each) => text(each).replace(/[\\~]/g, '\\$&')).join('~');
      const path = `/items/${collection}/${encodeURIComponent(key)}`;
      const label = `${collection} ${key}`;
      const one = await get(service, path);
      t.strictSame(one.json, { data: item }, `${label}: ${one.text}`);
      const shown = parts.length === 1 ? item.k : key;
      const found = await send('SEARCH', `/items/${collection}`, { keys: [shown] });
      t.strictSame(found.json, { data: [item] }, `${label} in keys: ${found.text}`);
      const changed = await send('PATCH', path, { n: item.n + 10 });
      t.strictSame(changed.json, { data: { ...item, n: item.n + 10 } }, `PATCH ${label}: ${changed.text}`);
      const listedKeys = await send('PATCH', `/items/${collection}`, { keys: [shown], data: { n: item.n } });
      t.strictSame(listedKeys.json, { data: [item] }, `PATCH ${label} in keys: ${listedKeys.text}`);
      const sent = await send('PATCH', path, item);
      t.strictSame(sent.json, { data: item }, `PATCH ${label} with its key: ${sent.text}`);
      const removed = await send('DELETE', path, undefined);
      t.equal(removed.status, 204, `DELETE ${label}: ${removed.text}`);
      const created = await send('POST', `/items/${collection}`, item);
      t.strictSame(created.json, { data: item }, `POST ${label}: ${created.text}`);
    }
    t.equal((await get(service, `/items/${collection}/${encodeURIComponent('{"q":1}')}`)).status, 403);
    t.equal((await get(service, `/items/${collection}/%7B`)).status, 403);
  }
});

t.test('a jsonb key of a body is the JSON value that is shown', async (t) => {
  const twins = [5, '5', true, 'true', { a: 1 }, '{"a":1}', [1], 'x'];
  const reset = async (): Promise<void> => {
    await sql`truncate twins cascade`;
    const created = await send(
      'POST',
      '/items/twins',
      twins.map((id) => ({ id, v: 'old' })),
    );
    t.equal(created.status, 200, created.text);
  };
  const valuesOf = async (v: string): Promise<unknown[]> =>
    (await sql`select id from twins where v = ${v}`).map(({ id }) => id as unknown);
  for (const id of twins) {
    await reset();
    const label = JSON.stringify(id);
    const found = await send('SEARCH', '/items/twins', { keys: [id], query: { fields: ['id'] } });
    t.strictSame(found.json, { data: [{ id }] }, `SEARCH ${label}: ${found.text}`);
    const changed = await send('PATCH', '/items/twins?fields=id,v', { keys: [id], data: { v: 'keys' } });
    t.strictSame(changed.json, { data: [{ id, v: 'keys' }] }, `PATCH ${label}: ${changed.text}`);
    t.strictSame(await valuesOf('keys'), [id], `PATCH ${label} changes this item`);
    const each = await send('PATCH', '/items/twins?fields=id,v', [{ id, v: 'each' }]);
    t.strictSame(each.json, { data: [{ id, v: 'each' }] }, `PATCH each ${label}: ${each.text}`);
    const query = { filter: { v: { _eq: 'each' } } };
    const selected = await send('PATCH', '/items/twins?fields=id,v', { query, data: { v: 'query' } });
    t.strictSame(selected.json, { data: [{ id, v: 'query' }] }, `PATCH by query ${label}: ${selected.text}`);
    t.strictSame(await valuesOf('query'), [id], `PATCH by query ${label} changes this item`);
    const removed = await send('DELETE', '/items/twins', [id]);
    t.equal(removed.status, 204, `DELETE ${label}: ${removed.text}`);
    t.strictSame(await valuesOf('query'), [], `DELETE ${label} deletes this item`);
    t.equal((await valuesOf('old')).length, twins.length - 1, `DELETE ${label} deletes no other item`);
    await send('POST', '/items/twins', { id, v: 'query' });
    const filtered = await send('DELETE', '/items/twins', { query: { filter: { v: { _eq: 'query' } } } });
    t.equal(filtered.status, 204, `DELETE by query ${label}: ${filtered.text}`);
    t.strictSame(await valuesOf('query'), [], `DELETE by query ${label} deletes this item`);
  }
  for (const body of [[null], { keys: null }, { keys: [null] }])
    t.equal((await send('DELETE', '/items/twins', body)).status, 400, JSON.stringify(body));
  t.equal((await send('DELETE', '/items/counted', [{ a: 1 }])).status, 400);
});

t.test('nested payloads of items with a jsonb key are refused before anything is written', async (t) => {
  await sql`truncate twins cascade`;
  await send('POST', '/items/twins', [{ id: 5 }, { id: '5' }, { id: { a: 1 } }]);
  const created = await send('POST', '/items/twin_notes', [{ id: 1, twin: 5 }, { id: 2, twin: '5' }, { id: 3 }]);
  t.strictSame(
    created.json,
    {
      data: [
        { id: 1, twin: 5, n: null },
        { id: 2, twin: '5', n: null },
        { id: 3, twin: null, n: null },
      ],
    },
    created.text,
  );
  const before = await sql`select id, twin from twin_notes order by id`;
  for (const [method, path, body] of [
    ['PATCH', '/items/twins/5', { notes: { create: [{ n: 'x' }], update: [], delete: [] } }],
    ['PATCH', '/items/twins/5', { notes: [3] }],
    ['PATCH', '/items/twins/5', { notes: [] }],
    ['POST', '/items/twins', { id: 77, notes: [{ n: 'k' }] }],
    ['POST', '/items/twin_notes', { twin: { id: { new: 1 }, v: 'x' } }],
    ['POST', '/items/twin_notes', { twin: { a: 1 } }],
    ['PATCH', '/items/twin_notes/3', { twin: { id: '5' } }],
  ] as const) {
    const answer = await send(method, path, body);
    const label = `${method} ${path} ${JSON.stringify(body)}: ${answer.text}`;
    t.equal(answer.status, 400, label);
    t.match(answer.text, /key of type jsonb/, label);
  }
  const mutation = 'mutation { create_twin_notes_item(data: { twin: { id: "5" } }) { id } }';
  t.match((await send('POST', '/graphql', { query: mutation })).text, /key of type jsonb/);
  t.strictSame(await sql`select id, twin from twin_notes order by id`, before);
  t.equal((await sql`select from twins`).length, 3);
});

t.test('a composite key of a body is the object that is shown', async (t) => {
  const ids = [
    { one: 1, two: null },
    { one: 1, two: 'a,"b' },
    { one: null, two: '' },
  ];
  const created = await send(
    'POST',
    '/items/addresses',
    ids.map((id, n) => ({ id, n })),
  );
  t.equal(created.status, 200, created.text);
  for (const [n, id] of ids.entries()) {
    const label = JSON.stringify(id);
    const parcel = await send('POST', '/items/parcels', { id: n, to: { id } });
    t.strictSame(parcel.json, { data: { id: n, to: id } }, `link ${label}: ${parcel.text}`);
    const found = await send('SEARCH', '/items/addresses?fields=n,parcels', { keys: [id] });
    t.strictSame(found.json, { data: [{ n, parcels: [n] }] }, `SEARCH ${label}: ${found.text}`);
    const path = `/items/addresses/${encodeURIComponent(label)}?fields=n,parcels`;
    const unlinked = await send('PATCH', path, { parcels: [] });
    t.strictSame(unlinked.json, { data: { n, parcels: [] } }, `unlink ${label}: ${unlinked.text}`);
    const linked = await send('PATCH', path, { parcels: [n] });
    t.strictSame(linked.json, { data: { n, parcels: [n] } }, `link ${label} from the other side: ${linked.text}`);
    const added = await send('PATCH', path, { parcels: { create: [{ id: n + 10 }] } });
    t.strictSame(added.json, { data: { n, parcels: [n, n + 10] } }, `create in ${label}: ${added.text}`);
    await send('PATCH', path, { parcels: [] });
    const removed = await send('DELETE', '/items/addresses', [id]);
    t.equal(removed.status, 204, `DELETE ${label}: ${removed.text}`);
    t.equal((await sql`select from addresses where n = ${n}`).length, 0);
  }
  t.equal((await send('DELETE', '/items/addresses', [{ one: 1, stray: 2 }])).status, 400);
  t.equal((await send('PATCH', '/items/addresses', [{ id: { one: 1, stray: 2 }, n: 1 }])).status, 400);
});

t.test('GraphQL shows and takes values as REST does', async (t) => {
  const graphql = (query: string, variables: unknown = {}): Promise<Answer> =>
    send('POST', '/graphql', { query, variables });
  const { json } = await get(service, '/items/documents/1?fields=h,p,d,ps');
  const { data } = json as { data: Record<string, unknown> };
  t.strictSame(data, {
    h: { a: '1', b: null },
    p: { one: 1, two: 'x' },
    d: { one: 2, two: null },
    ps: [{ one: 3, two: 'y' }],
  });
  const shown = await graphql('{ documents_by_id(id: 1) { h p d ps } }');
  t.strictSame(shown.json, { data: { documents_by_id: data } }, shown.text);
  const update = 'mutation ($d: update_documents_input!) { update_documents_item(id: 1, data: $d) { h p d ps } }';
  const written = await graphql(update, { d: data });
  t.strictSame(written.json, { data: { update_documents_item: data } }, written.text);
  const literal = await graphql('mutation { update_documents_item(id: 1, data: { p: { one: 5 } }) { p } }');
  t.strictSame(literal.json, { data: { update_documents_item: { p: { one: 5, two: null } } } }, literal.text);
  for (const [field, value] of [
    ['h', data['h']],
    ['p', { one: 5 }],
    ['d', data['d']],
  ] as const) {
    const filter = { [field]: { _eq: value } };
    const found = await graphql('query ($f: documents_filter) { documents(filter: $f) { id } }', { f: filter });
    t.strictSame(found.json, { data: { documents: [{ id: '1' }] } }, `${field}: ${found.text}`);
  }
  const keys = await graphql('{ char_keys(sort: ["n"]) { k n } }');
  t.strictSame(
    keys.json,
    {
      data: {
        char_keys: [
          { k: 'ab   ', n: 1 },
          { k: ' c   ', n: 2 },
        ],
      },
    },
    keys.text,
  );
  for (const id of ['ab   ', 'ab']) {
    const one = await graphql('query ($id: ID!) { char_keys_by_id(id: $id) { k } }', { id });
    t.strictSame(one.json, { data: { char_keys_by_id: { k: 'ab   ' } } }, one.text);
  }
  for (const collection of ['json_keys', 'spot_keys']) {
    const list = await graphql(`{ ${collection} { k n } }`);
    for (const { k, n } of (list.json as { data: Record<string, { k: string; n: number }[]> }).data[collection] ?? []) {
      const one = await graphql(`query ($id: ID!) { ${collection}_by_id(id: $id) { n } }`, { id: k });
      t.strictSame(one.json, { data: { [`${collection}_by_id`]: { n } } }, `${collection} ${k}: ${one.text}`);
    }
  }
});

t.test('a name in double quotes stands for itself', async (t) => {
  const namesOf = async (query: Readonly<Record<string, unknown>>): Promise<unknown> => {
    const { json, text } = await listed('odd_names', query);
    return (json as { data?: unknown }).data ?? text;
  };
  const names = ['k.e(y)', 'x(y)', 'a.b', 'c,d', 'say "hi"', '-m', '_and'];
  const quoted = names.map((name) => `"${name.replaceAll('"', '""')}"`);
  t.strictSame(
    await namesOf({ fields: quoted.join(','), sort: '-"k.e(y)"', limit: '1' }),
    [{ 'k.e(y)': 2, 'x(y)': 'x2', 'a.b': 6, 'c,d': 'c2', 'say "hi"': 'h2', '-m': 8, _and: 'n2' }],
    'fields',
  );
  const search = (query: unknown): Promise<Answer> => send('SEARCH', '/items/odd_names', { query });
  t.strictSame((await search({ fields: quoted, limit: 1 })).status, 200, 'a list of fields');
  for (const [position, name] of quoted.entries()) {
    const sorted = await namesOf({ fields: '"a.b"', sort: `-${name}` });
    t.strictSame(sorted, [{ 'a.b': 6 }, { 'a.b': 5 }], `sort by ${name}`);
    const value = [2, 'x2', 6, 'c2', 'h2', 8, 'n2'][position];
    const found = [{ 'a.b': 6 }];
    t.strictSame(await namesOf({ fields: '"a.b"', filter: { [name]: { _eq: value } } }), found, `filter ${name}`);
    const brackets = `filter[${encodeURIComponent(name)}][_eq]=${value}&fields=${encodeURIComponent('"a.b"')}`;
    t.strictSame((await get(service, `/items/odd_names?${brackets}`)).json, { data: found }, `filter[${name}]`);
  }
  t.strictSame(
    await namesOf({ fields: 'year("born.on"),"to.parent"."x(y)",json("j.s", q)', filter: { 'year("born.on")': 2025 } }),
    [{ 'to.parent': { 'x(y)': 'x1' }, 'born.on_year': 2025, j_s_q_json: 3 }],
    'functions and relations',
  );
  t.strictSame(await namesOf({ filter: { '"to.parent"': { '"a.b"': 5 } }, fields: '"a.b"' }), [{ 'a.b': 6 }]);
  t.strictSame(await namesOf({ sort: '"to.parent"."a.b"', fields: '"a.b"' }), [{ 'a.b': 6 }, { 'a.b': 5 }]);
  t.strictSame(await namesOf({ 'aggregate[sum]': '"a.b"' }), [{ sum: { 'a.b': 11 } }]);
  t.strictSame(await namesOf({ 'aggregate[count]': '*', groupBy: '"x(y)"', sort: '"x(y)"' }), [
    { 'x(y)': 'x1', count: 1 },
    { 'x(y)': 'x2', count: 1 },
  ]);
  t.strictSame(
    await namesOf({ 'aggregate[sum]': '"a.b"', groupBy: '"c,d"', having: { sum: { '"a.b"': { _gt: 5 } } } }),
    [{ 'c,d': 'c2', sum: { 'a.b': 6 } }],
    'having',
  );
  const kids = {
    fields: '"a.b","k.ids"."x(y)"',
    sort: '"a.b"',
    deep: { '"k.ids"': { _filter: { '"a.b"': { _gt: 6 } } } },
  };
  t.strictSame(
    await namesOf(kids),
    [
      { 'a.b': 5, 'k.ids': [] },
      { 'a.b': 6, 'k.ids': [] },
    ],
    'deep',
  );
  const brackets = `fields=${encodeURIComponent('"k.ids"."x(y)"')}&limit=1&deep[${encodeURIComponent('"k.ids"')}][_limit]=1`;
  t.strictSame((await get(service, `/items/odd_names?${brackets}`)).json, { data: [{ 'k.ids': [{ 'x(y)': 'x2' }] }] });
  t.strictSame(await namesOf({ 'alias[y]': '"a.b"', fields: 'y', sort: 'y' }), [{ y: 5 }, { y: 6 }]);
  const body = { query: { filter: { '"a.b"': 6 } }, data: { 'a.b': 9 } };
  const changed = await send('PATCH', `/items/odd_names?fields=${encodeURIComponent('"a.b"')}`, body);
  t.strictSame(changed.json, { data: [{ 'a.b': 9 }] }, `by a query: ${changed.text}`);
  for (const query of [
    { fields: '"a.b' },
    { fields: '"a.b"c' },
    { fields: '"a.b"."' },
    { fields: '""' },
    { fields: '"*"' },
    { fields: 'x(y)' },
    { sort: 'x(y)' },
    { filter: { 'x(y)': { _eq: 1 } } },
    { filter: { '"x(y)': { _eq: 1 } } },
    { filter: { '"_and"': { _eqq: 1 } } },
  ]) {
    const answer = await listed('odd_names', query);
    t.equal(answer.status, 400, `${JSON.stringify(query)}: ${answer.text}`);
  }
  for (const query of [{ fields: 'a.b' }, { fields: '"a.c"' }, { filter: { '"a.c"': 1 } }, { sort: 'a.b' }])
    t.equal((await listed('odd_names', query)).status, 403, JSON.stringify(query));
});

t.test('GraphQL writes odd names with underscores', async (t) => {
  const data = async (query: string, variables: object = {}): Promise<Record<string, unknown>> => {
    const answer = await send('POST', '/graphql', { query, variables });
    const { data } = answer.json as { data?: Record<string, unknown> };
    t.ok(data, `${query}: ${answer.text}`);
    return data ?? {};
  };
  const fields = 'k_e_y_ x_y_ c_d say__hi_ _m to_parent { x_y_ } born_on_func { year } j_s_func { json(path: "q") }';
  t.strictSame(await data(`{ odd_names(filter: { x_y_: { _eq: "x2" } }) { ${fields} } }`), {
    odd_names: [
      {
        ...{ k_e_y_: '2', x_y_: 'x2', c_d: 'c2', say__hi_: 'h2', _m: 8, to_parent: { x_y_: 'x1' } },
        ...{ born_on_func: { year: 2025 }, j_s_func: { json: 3 } },
      },
    ],
  });
  for (const filter of [
    'born_on_func: { year: { _eq: 2025 } }',
    'to_parent: { x_y_: { _eq: "x1" } }',
    '_or: [{ say__hi_: { _eq: "h2" } }]',
    '_m: { _gt: 7 }',
  ])
    t.strictSame(
      await data(`{ odd_names(filter: { ${filter} }) { k_e_y_ } }`),
      { odd_names: [{ k_e_y_: '2' }] },
      filter,
    );
  const sorted = '{ odd_names(sort: ["-\\"x(y)\\""]) { x_y_ } }';
  t.strictSame(await data(sorted), { odd_names: [{ x_y_: 'x2' }, { x_y_: 'x1' }] }, 'sort');
  t.strictSame(
    await data(
      '{ odd_names_aggregated(groupBy: ["\\"c,d\\""], sort: ["\\"c,d\\""]) { group max { _m } count { x_y_ } } }',
    ),
    {
      odd_names_aggregated: [
        { group: { 'c,d': 'c1' }, max: { _m: 7 }, count: { x_y_: 1 } },
        { group: { 'c,d': 'c2' }, max: { _m: 8 }, count: { x_y_: 1 } },
      ],
    },
  );
  const create =
    'mutation ($data: create_odd_names_input!) { create_odd_names_item(data: $data) { x_y_ to_parent { _m } } }';
  const payload = { k_e_y_: 3, x_y_: 'x3', _m: 9, to_parent: { k_e_y_: 2, _m: 10 } };
  t.strictSame(await data(create, { data: payload }), { create_odd_names_item: { x_y_: 'x3', to_parent: { _m: 10 } } });
  const change =
    'update_odd_names_item(id: 3, data: { x_y_: "y3" }, increment: { _m: 2 }, append: { c_d: "!" }) { x_y_ _m }';
  t.strictSame(await data(`mutation { ${change} }`), { update_odd_names_item: { x_y_: 'y3', _m: 11 } });
  t.strictSame((await listed('odd_names', { fields: '"-m","x(y)"', filter: '{"\\"k.e(y)\\"": 3}' })).json, {
    data: [{ '-m': 11, 'x(y)': 'y3' }],
  });
  t.equal((await send('DELETE', '/items/odd_names', [3])).status, 204);
});
