/** Values come back as they were sent, and are found by what is shown of them: one test per kind of value, each over HTTP. */
import t, { type Test } from 'tap';
import {
  type Answer,
  connectSql,
  createDatabase,
  get,
  type RequestOptions,
  request,
  startDatabase,
  startTestService,
} from './support.js';

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
  insert into moments select at, wall from events;`);
const service = await startTestService({ databaseUrl });
const headers = { 'content-type': 'application/json' };

async function send(method: string, path: string, body?: unknown): Promise<Answer> {
  const options: RequestOptions =
    body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) };
  return request(service, method, path, { headers, ...options });
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
