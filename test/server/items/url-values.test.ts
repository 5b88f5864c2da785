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
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'url_values');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create type address as (street text, number int4);
  create table things (
    id int primary key, ints int4[], exact numeric[], words text[], bytes bytea[], place address, places address[],
    document jsonb, plain json, body text, span int4range, bits bit varying, vector tsvector, day date
  );
  insert into things values
    (1, '{1,2}', '{123456789012345678901234567890,NaN}', '{a,"b,c"}', '{"\\\\x00ff"}', ('s', 1), array[('s', 1)::address],
     '{"a": 1}', '{"a":1}', '[1,2]', '[1,2]', '', ''),
    (2, '{}', '{}', '{}', '{}', ('{"street":"s"}', 2), '{}', '[1, 2]', '[1,2]', '{"a":1}', '[5,6]', '101', 'word'),
    (3, null, null, null, null, null, null, '"5"', '5', '[oops', null, null, null);
  create table words (id int primary key, word text, document jsonb, list text[], above int references words);
  insert into words values
    (1, 'null', '{"a": "null"}', '{null,"null"}', null), (2, null, '{"a": null}', '{null}', 1),
    (3, 'true', '"true"', '{true}', 1), (4, '"null"', '"null"', '{}', 2), (5, 'NULL', 'true', '{NULL}', 2)`);
const service = await startTestService({ databaseUrl });

function find(field: string, operator: string, value: string): Promise<Answer> {
  return get(service, `/items/things?fields=id&sort=id&filter[${field}]${operator}=${encodeURIComponent(value)}`);
}

const rows = (...ids: number[]): object => ({ data: ids.map((id) => ({ id })) });

t.test('a date that PostgreSQL quotes in small letters is an error of the request', async (t) => {
  const answer = await get(service, '/items/things?filter[day][_eq]=2%252F020-01-01');
  t.match(answer, { status: 400, json: { errors: [{ extensions: { code: 'INVALID_QUERY' } }] } });
});

t.test('the value that a field shows finds its item', async (t) => {
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

t.test('a value that does not fit the type is 400 with the reason', async (t) => {
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

const headers = { 'content-type': 'application/json' };

async function send(path: string, body: object, method = 'POST', token?: string): Promise<Answer> {
  const options = { headers, body: JSON.stringify(body), ...(token !== undefined && { token }) };
  return request(service, method, path, options);
}

/** Each filter of `words` in JSON, and the items that it finds. */
const JSON_WORDS: readonly (readonly [filter: object, ids: number[]])[] = [
  [{ word: { _eq: 'null' } }, [1]],
  [{ word: 'null' }, [1]],
  [{ word: { _eq: 'NULL' } }, [5]],
  [{ word: { _eq: '"null"' } }, [4]],
  [{ word: { _eq: 'true' } }, [3]],
  [{ word: { _neq: 'null' } }, [3, 4, 5]],
  [{ word: { _in: ['null', 'NULL'] } }, [1, 5]],
  [{ word: { _in: 'null,true' } }, [1, 3]],
  [{ word: { _nin: ['null'] } }, [3, 4, 5]],
  [{ word: { _starts_with: 'null' } }, [1]],
  [{ word: { _between: ['null', 'null'] } }, [1]],
  [{ word: { _eq: null } }, [2]],
  [{ word: { _neq: null } }, [1, 3, 4, 5]],
  [{ document: { _eq: 'null' } }, [4]],
  [{ document: { _eq: 'true' } }, [3]],
  [{ document: { _json: { a: { _eq: 'null' } } } }, [1]],
  [{ list: { _contains_any: ['null'] } }, [1]],
  [{ above: { word: { _eq: 'null' } } }, [2, 3]],
];

t.test('in JSON a string is a string', async (t) => {
  for (const [filter, ids] of JSON_WORDS) {
    const text = JSON.stringify(filter);
    const query = { fields: ['id'], sort: ['id'], filter };
    t.strictSame((await send('/items/words', { query }, 'SEARCH')).json, rows(...ids), `SEARCH ${text}`);
    const url = `/items/words?fields=id&sort=id&filter=${encodeURIComponent(text)}`;
    t.strictSame((await get(service, url)).json, rows(...ids), `filter=${text}`);
  }
  const condition = '_json]={"a":{"_eq":"null"}}';
  t.strictSame((await get(service, `/items/words?fields=id&filter[document][${condition}`)).json, rows(1), condition);
  const having = { min: { word: { _eq: 'null' } } };
  const groups = await send(
    '/items/words',
    { query: { groupBy: ['id'], aggregate: { min: 'word' }, having } },
    'SEARCH',
  );
  t.strictSame(groups.json, { data: [{ id: 1, min: { word: 'null' } }] });
});

t.test('in GraphQL and in permissions a string is a string', async (t) => {
  const graphql =
    '{ literal: words(filter: {word: {_eq: "null"}}) { id } none: words(filter: {word: {_eq: null}}) { id } }';
  const found = { literal: [{ id: '1' }], none: [{ id: '2' }] };
  t.strictSame((await send('/graphql', { query: graphql })).json, { data: found });
  const variable = 'query ($filter: words_filter) { words(filter: $filter) { id } }';
  const variables = { filter: { word: { _in: ['null'] } } };
  t.strictSame((await send('/graphql', { query: variable, variables })).json, { data: { words: [{ id: '1' }] } });
  const permission = { collection: 'words', action: 'read', fields: ['*'], permissions: { word: { _eq: 'null' } } };
  const policies = [{ policy: { name: 'nulls', permissions: [permission] } }];
  const user = await send('/users', { email: 'nulls@example.com', token: 'the-token-of-nulls', policies });
  t.equal(user.status, 200, user.text);
  const answer = await get(service, '/items/words?fields=id', { token: 'the-token-of-nulls' });
  t.strictSame(answer.json, rows(1), 'a rule');
});

t.test('in brackets a word between quotes is a text', async (t) => {
  const words: readonly (readonly [parameters: string, ids: number[]])[] = [
    ['filter[word][_eq]=null', [2]],
    ['filter[word]=null', [2]],
    ['filter[word][_neq]=null', [1, 3, 4, 5]],
    ['filter[word][_eq]="null"', [1]],
    ['filter[word]="null"', [1]],
    ['filter[word][_eq]="NULL"', [5]],
    ['filter[word][_in]="null",true', [1, 3]],
    ['filter[word][_in][]="null"', [1]],
    ['filter[word][_starts_with]="null"', [1]],
    ['filter[document][_eq]="true"', [3]],
    ['filter[document][_eq]=true', [5]],
    ['filter[list][_contains_any]=["null"]', [1]],
    ['filter[list][_contains_any]="null"', [1]],
    ['filter[_and][0][above][word][_eq]="null"', [2, 3]],
  ];
  for (const [parameters, ids] of words) {
    const url = `/items/words?fields=id&sort=id&${parameters.replaceAll('"', '%22')}`;
    t.strictSame((await get(service, url)).json, rows(...ids), parameters);
  }
  const deep = 'fields=id&filter[id]=1&fields=above.id&deep[above][_filter][word][_eq]="null"';
  t.equal((await get(service, `/items/words?${deep.replaceAll('"', '%22')}`)).status, 200);
  t.equal((await get(service, '/items/words?filter[word][_starts_with]=null')).status, 400);
});
