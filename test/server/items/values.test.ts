/** Values come back as they were sent, and are found by what is shown of them: one test per kind of value, each over HTTP. */
import t, { type Test } from 'tap';
import {
  type Answer,
  connectSql,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'values');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table events (id int primary key, at timestamptz, wall timestamp, name text);
  insert into events values
    (1, '2024-02-29 12:00:00+00', '2024-02-29 12:00:00', 'whole'),
    (2, '2024-02-29 12:00:00.5+00', '2024-02-29 12:00:00.5', 'milliseconds'),
    (3, '2024-02-29 12:00:00.123456+00', '2024-02-29 12:00:00.123456', 'microseconds'),
    (4, '2024-02-29 12:00:00.12345+00', '2024-02-29 12:00:00.000010', 'microseconds that end with a zero'),
    (5, '0044-03-15 12:00:00.25+00 BC', '0044-03-15 12:00:00 BC', 'before the year one'),
    (6, '12024-01-01 00:00:00+00', '12024-01-01 00:00:00.000001', 'far ahead'),
    (7, 'infinity', '-infinity', 'never');
  create table moments (at timestamptz primary key, wall timestamp unique);
  insert into moments select at, wall from events;
  create extension hstore;
  create type pair as (one int4, two text);
  create table numbers (
    id int primary key generated always as identity,
    exact numeric, big bigint, ratio float8, doc jsonb, raw json, words text);
  create table blobs (id bytea primary key, bytes bytea, parent bytea references blobs, list bytea[]);
  insert into blobs values
    ('\\xfbff', '\\x00ff22', null, '{"\\\\x00ff",NULL}'),
    ('\\x01', '\\x', '\\xfbff', null);
  create table shapes (
    id int primary key,
    words text[], numbers int[], doc jsonb, raw json, pair pair, labels hstore, pairs pair[]);
  insert into shapes values
    (1, '{a,b}', '{1,2}', '{"a": 1}', '{"b": [1, 2]}', '(1,a)', 'a=>1, b=>NULL', '{"(1,a)"}'),
    (2, '{c}', '{3}', '"text"', '[]', '(2,"b ""c""")', 'c=>3', '{}'),
    (3, null, null, null, null, null, null, null);`);
const service = await startTestService({ databaseUrl });
const headers = { 'content-type': 'application/json' };

async function send(method: string, path: string, body: unknown): Promise<Answer> {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  // Without its length a body of DELETE would not be taken for one.
  const length = { 'content-length': String(Buffer.byteLength(text)) };
  return request(service, method, path, { headers: { ...headers, ...length }, body: text });
}

async function read<Data>(t: Test, path: string): Promise<Data> {
  const answer = await get(service, path);
  t.equal(answer.status, 200, `${path}: ${answer.text.slice(0, 300)}`);
  return (answer.json as { data: Data }).data;
}

async function ask<Data>(t: Test, query: string, variables: unknown = {}): Promise<Data> {
  const answer = await send('POST', '/graphql', { query, variables });
  const { data, errors } = answer.json as { data: Data; errors?: unknown };
  t.equal(errors, undefined, query);
  return data;
}

interface Moment {
  readonly at: string;
  readonly wall: string;
}

const MOMENTS: readonly Moment[] = [
  { at: '2024-02-29T12:00:00.000Z', wall: '2024-02-29T12:00:00' },
  { at: '2024-02-29T12:00:00.500Z', wall: '2024-02-29T12:00:00.500' },
  { at: '2024-02-29T12:00:00.123456Z', wall: '2024-02-29T12:00:00.123456' },
  { at: '2024-02-29T12:00:00.123450Z', wall: '2024-02-29T12:00:00.000010' },
  { at: '0044-03-15T12:00:00.250Z BC', wall: '0044-03-15T12:00:00 BC' },
  { at: '12024-01-01T00:00:00.000Z', wall: '12024-01-01T00:00:00.000001' },
  { at: 'infinity', wall: '-infinity' },
];

t.test('fractions of seconds are shown as far as they are set, wherever a moment is shown', async (t) => {
  t.strictSame(await read(t, '/items/events?fields=at,wall&sort=id'), MOMENTS, 'list');
  t.strictSame(await read(t, '/items/events?fields=at,wall&sort=id&limit=-1'), MOMENTS, 'stream');
  t.strictSame((await ask<{ events: unknown }>(t, '{ events(sort: ["id"]) { at wall } }')).events, MOMENTS, 'GraphQL');
  for (const [index, moment] of MOMENTS.entries())
    t.strictSame(await read(t, `/items/events/${index + 1}?fields=at,wall`), moment, `item ${index + 1}`);
  const groups = await read<Moment[]>(t, '/items/events?groupBy[]=at&groupBy[]=wall&sort=at');
  t.strictSame(groups.map(({ at }) => at).toSorted(), MOMENTS.map(({ at }) => at).toSorted(), 'groups');
  const finite = 'filter={"id":{"_between":[2,3]}}';
  const aggregate = 'aggregate[min]=at,wall&aggregate[max]=at,wall';
  const [, two, three] = MOMENTS as [Moment, Moment, Moment];
  t.strictSame(await read(t, `/items/events?${aggregate}&${finite}`), [{ min: three, max: two }], 'aggregates');
  const aggregated = await ask<{ events_aggregated: unknown }>(
    t,
    '{ events_aggregated(filter: {id: {_between: [2, 3]}}) { group } }',
  );
  t.ok(aggregated.events_aggregated);
  const csv = await get(service, '/items/events?fields=at,wall&sort=id&export=csv');
  for (const { at, wall } of MOMENTS) t.ok(csv.text.includes(`${at}`) && csv.text.includes(`${wall}`), `CSV: ${at}`);
  const json = await get(service, '/items/events?fields=at,wall&sort=id&export=json');
  t.strictSame(json.json, MOMENTS, 'export as JSON');
});

t.test('a moment is found by what is shown of it, and sent back it changes nothing', async (t) => {
  const kept = (): Promise<unknown> =>
    sql`select at::text, wall::text from events order by id`.then((rows) => [...rows]);
  const before = await kept();
  for (const [index, { at, wall }] of MOMENTS.entries()) {
    for (const [field, value] of Object.entries({ at, wall })) {
      const filter = encodeURIComponent(JSON.stringify({ [field]: { _eq: value } }));
      t.strictSame(await read(t, `/items/events?fields=id&filter=${filter}`), [{ id: index + 1 }], `${field} ${value}`);
      const url = `filter[${field}][_in]=${encodeURIComponent(value)}`;
      t.strictSame(await read(t, `/items/events?fields=id&${url}`), [{ id: index + 1 }], `${url}`);
    }
    t.equal((await send('PATCH', `/items/events/${index + 1}`, { at, wall, name: `sent ${index}` })).status, 200, at);
    const item = await read<Moment>(t, `/items/moments/${encodeURIComponent(at)}`);
    t.strictSame(item, { at, wall }, 'as a key');
    const { moments_by_id: named } = await ask<{ moments_by_id: unknown }>(
      t,
      'query ($id: ID!) { moments_by_id(id: $id) { at wall } }',
      { id: at },
    );
    t.strictSame(named, { at, wall }, 'as a key in GraphQL');
  }
  t.strictSame(await kept(), before);
});

t.test('pages by cursor over moments lose no row', async (t) => {
  const seen: unknown[] = [];
  let cursor: string | null = '';
  for (let page = 0; page < 10 && cursor !== null; page++) {
    const { json } = await get(service, `/items/events?fields=at&sort=-at&limit=2&cursor=${cursor}`);
    const { data, meta } = json as { data: { at: string }[]; meta: { next_cursor: string | null } };
    seen.push(...data.map(({ at }) => at));
    cursor = meta.next_cursor;
  }
  t.strictSame(seen.toSorted(), MOMENTS.map(({ at }) => at).toSorted());
});

t.test('years as JavaScript writes them are understood, days that do not exist are refused', async (t) => {
  for (const [written, shown] of [
    ['-000043-03-15T12:00:00.250Z', '0044-03-15T12:00:00.250Z BC'],
    ['+012024-01-01T00:00:00.000Z', '12024-01-01T00:00:00.000Z'],
    ['0044-03-15 12:00:00.250Z BC', '0044-03-15T12:00:00.250Z BC'],
  ] as const) {
    const filter = encodeURIComponent(JSON.stringify({ at: { _eq: written } }));
    t.strictSame(await read(t, `/items/events?fields=at&filter=${filter}`), [{ at: shown }], `filter ${written}`);
    await send('PATCH', '/items/events/1', { at: written });
    t.strictSame(await read(t, '/items/events/1?fields=at'), { at: shown }, `PATCH ${written}`);
  }
  for (const value of [
    '0000-01-01',
    '0001-02-29 BC BC',
    '2023-02-29',
    '0002-02-29 BC',
    '9999999-01-01',
    '0044-03-15 AD BC',
  ]) {
    const answer = await send('PATCH', '/items/events/1', { at: value });
    t.equal(answer.status, 400, `${value}: ${answer.text}`);
    const filter = encodeURIComponent(JSON.stringify({ at: { _eq: value } }));
    t.equal((await get(service, `/items/events?filter=${filter}`)).status, 400, `filter ${value}`);
  }
  await send('PATCH', '/items/events/1', { at: MOMENTS[0]?.at });
});

const LONG = '12345678901234567890';
const EXACT = '12345678901234567890123.45678901234567890';

t.test('no digit of a number is lost: payloads, filters, GraphQL, imports', async (t) => {
  const body = `{"exact":${EXACT},"big":9223372036854775807,"doc":{"a":[${LONG},1.50,-0.10]},"raw":{"b":1e400},"words":${LONG}}`;
  const kept = async (id: number): Promise<unknown> => {
    const [row] = await sql`select exact::text, big::text, doc::text, raw::text, words from numbers where id = ${id}`;
    return row;
  };
  const expected = {
    exact: EXACT,
    big: '9223372036854775807',
    doc: `{"a": [${LONG}, 1.50, -0.10]}`,
    raw: '{"b":1e400}',
    words: LONG,
  };
  const created = await send('POST', '/items/numbers', body);
  t.equal(created.status, 200, created.text);
  t.strictSame(await kept(1), expected, 'POST');
  t.ok(created.text.includes(`"doc":{"a": [${LONG}, 1.50, -0.10]}`), created.text);
  t.equal((await send('POST', '/items/numbers', '{"exact":1}')).status, 200);
  t.equal((await send('PATCH', '/items/numbers', `{"keys":[2],"data":${body}}`)).status, 200);
  t.strictSame(await kept(2), expected, 'PATCH');
  const data = `{"exact":${EXACT},"big":"9223372036854775807","doc":{"a":[${LONG},1.50,-0.10]},"raw":{"b":1e400},"words":"${LONG}"}`;
  const mutation = 'mutation ($data: create_numbers_input!) { create_numbers_item(data: $data) { id } }';
  await send('POST', '/graphql', `{"query":${JSON.stringify(mutation)},"variables":{"data":${data}}}`);
  t.strictSame(await kept(3), expected, 'variables');
  await ask(
    t,
    `mutation { create_numbers_item(data: {exact: ${EXACT}, big: 9223372036854775807, doc: {a: [${LONG}, 1.50, -0.10]}, raw: {b: 1e400}, words: "${LONG}"}) { id } }`,
  );
  t.strictSame(await kept(4), expected, 'literals');
  const files = {
    'application/json': `[${body}]`,
    'application/x-ndjson': `${body}\n`,
    'text/csv': `exact,big,words\n${EXACT},9223372036854775807,${LONG}\n`,
  };
  for (const [index, [type, file]] of Object.entries(files).entries()) {
    const options = { headers: { 'content-type': type }, body: file };
    const answer = await request(service, 'POST', '/utils/import/numbers', options);
    t.equal(answer.status, 200, answer.text);
    const documents = type === 'text/csv' ? { doc: null, raw: null } : {};
    t.strictSame(await kept(5 + index), { ...expected, ...documents }, type);
  }
  for (const condition of [
    `{"exact":{"_eq":${EXACT}}}`,
    `{"exact":{"_in":[1,${EXACT}]}}`,
    '{"big":{"_eq":9223372036854775807}}',
    '{"big":{"_gt":9223372036854775806}}',
    `{"words":{"_eq":${LONG}}}`,
    `{"doc":{"_json":{"a[0]":{"_eq":${LONG}}}}}`,
  ]) {
    const found = await send('SEARCH', '/items/numbers', `{"query":{"fields":["id"],"filter":${condition},"limit":2}}`);
    t.strictSame(found.json, { data: [{ id: 1 }, { id: 2 }] }, condition);
    const listed = await read(t, `/items/numbers?fields=id&limit=2&filter=${encodeURIComponent(condition)}`);
    t.strictSame(listed, [{ id: 1 }, { id: 2 }], condition);
  }
  const csv = await get(service, '/items/numbers?fields=exact,doc&export=csv&filter[id][_eq]=1');
  t.equal(csv.text, `exact,doc\n${EXACT},"{""a"":[${LONG},1.50,-0.10]}"\n`, 'export as CSV');
  const yaml = await get(service, '/items/numbers?fields=doc&export=yaml&filter[id][_eq]=1');
  t.ok(yaml.text.includes(LONG), yaml.text);
  const xml = await get(service, '/items/numbers?fields=doc&export=xml&filter[id][_eq]=1');
  t.ok(xml.text.includes(`<item>${LONG}</item>`), xml.text);
  const near = await send('SEARCH', '/items/numbers', '{"query":{"filter":{"big":{"_eq":9223372036854775806}}}}');
  t.strictSame(near.json, { data: [] }, 'a neighbour that JavaScript takes for the same number');
  const sums = await ask<{ numbers_aggregated: unknown }>(
    t,
    '{ numbers_aggregated { sum { big } min { big } max { big } avg { ratio } } }',
  );
  const [{ sum, max } = { sum: '', max: '' }] = await sql`select sum(big)::text, max(big)::text from numbers`;
  const aggregated = { sum: { big: sum }, min: { big: max }, max: { big: max }, avg: { ratio: null } };
  t.strictSame(sums.numbers_aggregated, [aggregated]);
});

t.test('numbers that JavaScript holds are what they were, however they are written', async (t) => {
  for (const [sent, big] of [
    ['5.0', '5'],
    ['1e2', '100'],
    ['-0', '0'],
    ['9007199254740992', '9007199254740992'],
  ]) {
    const created = await send('POST', '/items/numbers', `{"big":${sent}}`);
    t.match(created.json, { data: { big } }, `${sent}: ${created.text}`);
    const { data } = created.json as { data: { id: number } };
    const filter = `{"_and":[{"id":{"_eq":${data.id}}},{"big":{"_eq":${sent}}}]}`;
    const found = await send('SEARCH', '/items/numbers', `{"query":{"fields":["id"],"limit":5.0,"filter":${filter}}}`);
    t.strictSame(found.json, { data: [{ id: data.id }] }, `filter ${sent}: ${found.text}`);
    t.equal((await send('DELETE', '/items/numbers', `{"keys":[${data.id}.0]}`)).status, 204);
  }
  for (const body of [
    '{"exact":1e9999}',
    '{"doc":{"a":1e-99999}}',
    '{"big":1.5}',
    '{"exact":12345678901234567890x}',
    '{"big":1e30}',
  ]) {
    const answer = await send('POST', '/items/numbers', body);
    t.equal(answer.status, 400, `${body}: ${answer.text}`);
  }
});

t.test('bytes are base64: shown, sent, searched for, and as keys', async (t) => {
  const first = { id: '+/8=', bytes: 'AP8i', parent: null, list: ['AP8=', null] };
  const second = { id: 'AQ==', bytes: '', parent: '+/8=', list: null };
  t.strictSame(await read(t, '/items/blobs?sort=id'), [second, first]);
  t.strictSame(await read(t, `/items/blobs/${encodeURIComponent('+/8=')}`), first, 'by key');
  t.strictSame(await read(t, '/items/blobs/-_8'), first, 'by key in the alphabet of URLs');
  t.strictSame(await read(t, '/items/blobs/AQ==?fields=parent.bytes'), { parent: { bytes: 'AP8i' } }, 'by relation');
  for (const filter of [
    { bytes: { _eq: 'AP8i' } },
    { id: { _in: ['+/8='] } },
    { bytes: { _contains: 'P8' } },
    { list: { _eq: ['AP8=', null] } },
    { bytes: { _nempty: true } },
  ]) {
    const found = await send('SEARCH', '/items/blobs', { query: { filter } });
    t.strictSame(found.json, { data: [first] }, JSON.stringify(filter));
  }
  t.strictSame((await send('SEARCH', '/items/blobs', { keys: ['AQ=='] })).json, { data: [second] }, 'keys');
  const { blobs_by_id: item } = await ask<{ blobs_by_id: unknown }>(t, '{ blobs_by_id(id: "+/8=") { id bytes list } }');
  t.strictSame(item, { id: '+/8=', bytes: 'AP8i', list: ['AP8=', null] }, 'GraphQL');
  const parent = { id: 'Aw==', bytes: 'BA==' };
  const created = await send('POST', '/items/blobs', { id: 'Ag==', bytes: 'AQI', parent });
  t.match(created.json, { data: { id: 'Ag==', bytes: 'AQI=', parent: 'Aw==' } }, created.text);
  t.match((await send('PATCH', '/items/blobs/Ag==', { list: ['AA=='] })).json, { data: { list: ['AA=='] } });
  t.equal((await send('DELETE', '/items/blobs', ['Ag==', 'Aw=='])).status, 204);
  t.strictSame(await read(t, '/items/blobs?fields=id&sort=id'), [{ id: 'AQ==' }, { id: '+/8=' }]);
  for (const wrong of ['\\x00', 'A', 'ü', 'A=B'])
    t.equal((await send('POST', '/items/blobs', { id: 'BQ==', bytes: wrong })).status, 400, `${wrong} is no base64`);
  t.equal((await send('SEARCH', '/items/blobs', { query: { filter: { bytes: { _eq: '*' } } } })).status, 400);
  t.equal((await get(service, '/items/blobs/*')).status, 403, 'a key that cannot be');
});

t.test('lists and objects in filters', async (t) => {
  for (const [filter, ids] of [
    [{ words: { _eq: ['a', 'b'] } }, [1]],
    [{ words: { _neq: ['a', 'b'] } }, [2]],
    [{ words: { _in: [['a', 'b'], ['c']] } }, [1, 2]],
    [{ words: { _nin: [['a', 'b']] } }, [2]],
    [{ words: { _eq: '{a,b}' } }, [1]],
    [{ numbers: { _gt: [1, 2] } }, [2]],
    [{ numbers: { _between: [[1], [2]] } }, [1]],
    [{ doc: { _eq: { a: 1 } } }, [1]],
    [{ doc: { _eq: 'text' } }, [2]],
    [{ doc: { _in: [{ a: 1 }, 'text'] } }, [1, 2]],
    [{ doc: { _neq: { a: 1 } } }, [2]],
    [{ raw: { _eq: { b: [1, 2] } } }, [1]],
    [{ raw: { _eq: [] } }, [2]],
    [{ pair: { _eq: { one: 2, two: 'b "c"' } } }, [2]],
    [{ pair: { _in: [{ one: 1, two: 'a' }] } }, [1]],
    [{ pairs: { _eq: [{ one: 1, two: 'a' }] } }, [1]],
    [{ labels: { _eq: { b: null, a: '1' } } }, [1]],
  ] as const) {
    const expected = ids.map((id) => ({ id }));
    const text = JSON.stringify(filter);
    const found = await send('SEARCH', '/items/shapes', { query: { fields: ['id'], filter, sort: ['id'] } });
    t.strictSame(found.json, { data: expected }, text);
    t.strictSame(await read(t, `/items/shapes?fields=id&sort=id&filter=${encodeURIComponent(text)}`), expected, text);
  }
  const query = '{ shapes(filter: {words: {_eq: ["a", "b"]}, doc: {_eq: {a: 1}}}) { id } }';
  t.strictSame((await ask<{ shapes: unknown }>(t, query)).shapes, [{ id: '1' }], 'GraphQL');
  for (const filter of [
    { words: { _eq: { a: 1 } } },
    { words: { _eq: 'a' } },
    { numbers: { _in: [1] } },
    { pair: { _eq: { one: 'x' } } },
    { labels: { _eq: ['a'] } },
    { id: { _eq: [1] } },
    { id: { _in: [[1]] } },
    { doc: { _gt: 1 } },
  ]) {
    const answer = await send('SEARCH', '/items/shapes', { query: { filter } });
    t.equal(answer.status, 400, `${JSON.stringify(filter)}: ${answer.text}`);
  }
});

t.test('composite values and pairs of an hstore are written as they are shown', async (t) => {
  const shown = await read<Record<string, unknown>>(t, '/items/shapes/2');
  t.match(shown, { pair: { one: 2, two: 'b "c"' }, labels: { c: '3' }, pairs: [] });
  const { id: _, ...rest } = shown;
  const kept = async (): Promise<unknown[]> => [...(await sql`select shapes::text from shapes where id = 2`)];
  const before = await kept();
  const sent = await send('PATCH', '/items/shapes/2', rest);
  t.equal(sent.status, 200, sent.text);
  t.strictSame(await kept(), before);
  const created = await send('POST', '/items/shapes', {
    id: 4,
    pair: { two: 'x' },
    labels: { n: 1, yes: true, none: null, 'quo"te': '=>,' },
    pairs: [{ one: 1 }, null],
  });
  t.match(created.json, {
    data: {
      pair: { one: null, two: 'x' },
      labels: { n: '1', yes: 'true', none: null, 'quo"te': '=>,' },
      pairs: [{ one: 1, two: null }, null],
    },
  });
  for (const wrong of [
    { pair: { one: 'x' } },
    { labels: { a: {} } },
    { labels: [] },
    { pairs: [1] },
    { words: [{}] },
  ]) {
    const answer = await send('PATCH', '/items/shapes/4', wrong);
    t.equal(answer.status, 400, `${JSON.stringify(wrong)}: ${answer.text}`);
  }
});

t.test('lists of hstore are found and written as they are shown', async (t) => {
  await sql.unsafe(`
    create table labelings (id int primary key, labels hstore[]);
    insert into labelings values (1, array['a=>1', 'b=>NULL, "c \\"d"=>"x, y"']::hstore[]), (2, array[array['a=>1', null]]::hstore[][]),
      (3, '{}'), (4, array[null::hstore]), (5, null);
    create function labelled(l hstore[]) returns setof labelings language sql stable as 'select * from labelings where labels = l';
    insert into service_functions (name) values ('labelled')`);
  await request(service, 'POST', '/utils/cache/clear');
  const items = await read<{ id: number; labels: unknown }[]>(
    t,
    '/items/labelings?sort=id&filter[labels][_nnull]=true',
  );
  t.strictSame(items[0]?.labels, [{ a: '1' }, { b: null, 'c "d': 'x, y' }]);
  const stored = async (): Promise<unknown[]> => [...(await sql`select labelings::text from labelings order by id`)];
  const before = await stored();
  for (const { id, labels } of items) {
    for (const filter of [{ _eq: labels }, { _in: [labels, [{}]] }, { _between: [labels, labels] }]) {
      const found = await send('SEARCH', '/items/labelings', { query: { fields: ['id'], filter: { labels: filter } } });
      t.strictSame(found.json, { data: [{ id }] }, JSON.stringify(filter));
    }
    const url = encodeURIComponent(JSON.stringify(labels));
    t.match(await read(t, `/items/labelings?filter[labels][_eq]=${url}`), [{ id }], url);
    t.match((await send('POST', '/rpc/labelled', { l: labels })).json, { data: [{ id }] }, 'an argument');
    t.match(await ask(t, `query ($l: JSON) { labelings(filter: {labels: {_eq: $l}}) { id } }`, { l: labels }), {
      labelings: [{ id: String(id) }],
    });
    t.equal((await send('PATCH', `/items/labelings/${id}`, { labels })).status, 200);
  }
  t.strictSame(await stored(), before);
  for (const wrong of [[1], [{ a: {} }], ['garbage'], { a: '1' }, 'a=>1']) {
    const answer = await send('SEARCH', '/items/labelings', { query: { filter: { labels: { _eq: wrong } } } });
    t.equal(answer.status, 400, `${JSON.stringify(wrong)}: ${answer.text}`);
  }
});

t.test('vectors of numbers are found and written as they are shown', async (t) => {
  await sql.unsafe(`
    create table vectors (id int primary key, oids oidvector, ints int2vector);
    insert into vectors values (1, '1 4294967295', '3 -4'), (2, '', ''), (3, null, null)`);
  await request(service, 'POST', '/utils/cache/clear');
  const items = await read<Record<string, unknown>[]>(t, '/items/vectors?sort=id&limit=2');
  t.strictSame(items[1], { id: 2, oids: [], ints: [] });
  const stored = async (): Promise<unknown[]> => [...(await sql`select vectors::text from vectors order by id`)];
  const before = await stored();
  for (const { id, ...vectors } of items) {
    for (const [name, vector] of Object.entries(vectors)) {
      for (const filter of [{ _eq: vector }, { _in: [vector, [9]] }]) {
        const found = await send('SEARCH', '/items/vectors', { query: { fields: ['id'], filter: { [name]: filter } } });
        t.strictSame(found.json, { data: [{ id }] }, `${name} ${JSON.stringify(filter)}`);
      }
    }
    t.equal((await send('PATCH', `/items/vectors/${id}`, vectors)).status, 200);
    t.equal((await send('POST', '/items/vectors', { id: Number(id) + 10, ...vectors })).status, 200);
  }
  t.strictSame((await stored()).slice(0, 3), before);
  t.equal((await sql`select from vectors a join vectors b on a.oids = b.oids and b.id = a.id + 10`).length, 2);
  for (const wrong of [[{}], ['x'], [null], [70_000_000_000], 'x', {}]) {
    const found = await send('SEARCH', '/items/vectors', { query: { filter: { oids: { _eq: wrong } } } });
    t.equal(found.status, 400, `SEARCH ${JSON.stringify(wrong)}: ${found.text}`);
    const written = await send('PATCH', '/items/vectors/1', { oids: wrong });
    t.equal(written.status, 400, `PATCH ${JSON.stringify(wrong)}: ${written.text}`);
  }
});

t.test('a wrong hstore is 400, and its JSON text is one', async (t) => {
  const wrong = ['garbage', 5, true, 'a=>', 'a=>1,,', 'a=>1 b=>2', '"a=>1', '{"a":{}}', '{"a":', '{a=>1}', [], ['a']];
  for (const labels of wrong) {
    const written = await send('PATCH', '/items/shapes/1', { labels });
    t.equal(written.status, 400, `PATCH ${JSON.stringify(labels)}: ${written.text}`);
    const found = await send('SEARCH', '/items/shapes', { query: { filter: { labels: { _eq: labels } } } });
    t.equal(found.status, 400, `SEARCH ${JSON.stringify(labels)}: ${found.text}`);
  }
  for (const labels of ['{"a":"1","b":null}', 'a=>1, b=>NULL', ' "a" => "1","b"=>NULL ', { a: '1', b: null }]) {
    const written = await send('PATCH', '/items/shapes/1?fields=labels', { labels });
    t.strictSame(written.json, { data: { labels: { a: '1', b: null } } }, JSON.stringify(labels));
    const text = encodeURIComponent(typeof labels === 'string' ? labels : JSON.stringify(labels));
    t.match(await read(t, `/items/shapes?fields=id&filter[labels][_eq]=${text}`), [{ id: 1 }], text);
  }
  t.strictSame((await send('PATCH', '/items/shapes/1?fields=labels', { labels: '' })).json, { data: { labels: {} } });
});
