/** Values of filters in URLs, where everything is a text: lists and objects as JSON for the types that have them, texts for all others. */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
} from '../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'url_values');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create type address as (street text, number int4);
  create table things (
    id int primary key, ints int4[], exact numeric[], words text[], bytes bytea[], place address, places address[],
    document jsonb, plain json, body text, span int4range, bits bit varying, vector tsvector
  );
  insert into things values
    (1, '{1,2}', '{123456789012345678901234567890,NaN}', '{a,"b,c"}', '{"\\\\x00ff"}', ('s', 1), array[('s', 1)::address],
     '{"a": 1}', '{"a":1}', '[1,2]', '[1,2]', '', ''),
    (2, '{}', '{}', '{}', '{}', ('{"street":"s"}', 2), '{}', '[1, 2]', '[1,2]', '{"a":1}', '[5,6]', '101', 'word'),
    (3, null, null, null, null, null, null, '"5"', '5', '[oops', null, null, null)`);
const service = await startTestService({ databaseUrl });

function find(field: string, operator: string, value: string): Promise<Answer> {
  return get(service, `/items/things?fields=id&sort=id&filter[${field}]${operator}=${encodeURIComponent(value)}`);
}

const rows = (...ids: number[]): object => ({ data: ids.map((id) => ({ id })) });

t.test('what is shown of a field finds its item', async (t) => {
  const found: readonly (readonly [field: string, operator: string, value: string, ids: number[]])[] = [
    ['ints', '[_eq]', '[1,2]', [1]],
    ['ints', '', '[1,2]', [1]],
    ['ints', '[_in][]', '[1,2]', [1]],
    ['ints', '[_gte]', '[1]', [1]],
    ['ints', '[_eq]', '{1,2}', [1]],
    ['ints', '[_eq]', '[1:2]={1,2}', [1]],
    ['ints', '[_eq]', '[]', [2]],
    ['ints', '[_eq]', '{}', [2]],
    ['exact', '[_eq]', '[123456789012345678901234567890,"NaN"]', [1]],
    ['words', '[_eq]', '["a","b,c"]', [1]],
    ['words', '[_eq]', '{a,"b,c"}', [1]],
    ['bytes', '[_eq]', '["AP8="]', [1]],
    ['place', '[_eq]', '{"street":"s","number":1}', [1]],
    ['places', '[_eq]', '[{"street":"s","number":1}]', [1]],
    ['document', '[_eq]', '{"a":1}', [1]],
    ['document', '[_eq]', '[1,2]', [2]],
    ['document', '[_in][]', '{"a":1}', [1]],
    ['document', '[_eq]', '5', [3]],
    ['plain', '[_eq]', '{ "a": 1 }', [1]],
    ['plain', '[_eq]', '5', []],
    ['body', '[_eq]', '[1,2]', [1]],
    ['body', '[_eq]', '{"a":1}', [2]],
    ['body', '[_starts_with]', '[1', [1]],
    ['body', '[_contains]', '[1,2]', [1]],
    ['body', '[_in][]', '[oops', [3]],
    ['span', '[_eq]', '[1,2]', [1]],
  ];
  for (const [field, operator, value, ids] of found)
    t.strictSame((await find(field, operator, value)).json, rows(...ids), `${field}${operator}=${value}`);
});

t.test('what is no value of the type is 400 with the reason', async (t) => {
  t.match((await find('exact', '[_eq]', '[123456789012345678901234567890,NaN]')).text, /exact.*must be a list/);
  t.match((await find('ints', '[_eq]', '{"a":1}')).text, /must be a list|Invalid/);
  t.match(await find('ints', '[_eq]', '["x"]'), { status: 400 });
  t.match((await find('place', '[_eq]', '{"road":"s"}')).text, /road.* is not an attribute/);
  t.match(await find('place', '[_eq]', '[1]'), { status: 400 });
  t.match((await get(service, '/items/things?limit=-5')).text, /limit.* zero or above, or -1 for all/);
  t.match((await get(service, '/items/things?offset=-1')).text, /offset.* zero or above\\?"/);
});

t.test('an empty text is asked for with _empty', async (t) => {
  for (const field of ['bits', 'vector', 'body', 'id'])
    t.match(
      (await find(field, '[_eq]', '')).text,
      /needs a value: .*_empty.* for an empty string, .*_null.* for no value/,
    );
  const empties: readonly (readonly [string, string, number[]])[] = [
    ['bits', '[_empty]', [1, 3]],
    ['bits', '[_nempty]', [2]],
    ['vector', '[_empty]', [1, 3]],
    ['vector', '[_nempty]', [2]],
  ];
  for (const [field, operator, ids] of empties)
    t.strictSame((await find(field, operator, 'true')).json, rows(...ids), `${field}${operator}`);
  const query = '{ things(filter: { bits: { _nempty: true } }) { id } }';
  const headers = { 'content-type': 'application/json' };
  const answer = await request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query }) });
  t.match(answer.json, { data: { things: [{ id: '2' }] } });
});
