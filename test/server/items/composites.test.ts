/** Attributes that a composite type does not have are refused, wherever its values stand: PostgreSQL would ignore them. */
import t from 'tap';
import {
  ADMIN_TOKEN,
  type Answer,
  connectSql,
  createDatabase,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'composites');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create type pair as (one int4, two text);
  create domain checked_pair as pair check ((value).one is distinct from 0);
  create domain pair_list as pair[];
  create type nest as (inside pair, list pair[], deeper checked_pair, document jsonb);
  create type empty_type as ();
  create type float_span as range (subtype = float8);
  create table holders (
    id int primary key generated always as identity, part pair, parts pair[], checked checked_pair, listed pair_list, nest nest,
    nests nest[], nothing empty_type, span float_span
  );
  insert into holders (part, parts, checked, listed, nest, span) values
    ((1, 'a'), array[(1, 'a')::pair], (1, 'a'), array[(1, 'a')::pair], row((1, 'a'), null, null, '{"x": 1}')::nest, '[1,2)')`);
const service = await startTestService({ databaseUrl });
const headers = { 'content-type': 'application/json', authorization: `Bearer ${ADMIN_TOKEN}` };

const stray = { one: 1, two: 'a', three: 3 };
const PAIR = 'is not an attribute of the type "pair", which has "one", "two"';
const STRAY: readonly (readonly [field: string, value: unknown, message: string])[] = [
  ['part', stray, `"part.three" ${PAIR}`],
  ['part', { ONE: 1 }, `"part.ONE" ${PAIR}`],
  ['part', { __proto__: null, constructor: 1 }, `"part.constructor" ${PAIR}`],
  ['parts', [null, { one: 1 }, stray], `"parts.2.three" ${PAIR}`],
  ['parts', [[{ one: 1 }], [stray]], `"parts.1.0.three" ${PAIR}`],
  ['checked', stray, `"checked.three" ${PAIR}`],
  ['listed', [stray], `"listed.0.three" ${PAIR}`],
  ['nest', { inside: stray }, `"nest.inside.three" ${PAIR}`],
  ['nest', { list: [{}, stray] }, `"nest.list.1.three" ${PAIR}`],
  ['nest', { deeper: stray }, `"nest.deeper.three" ${PAIR}`],
  [
    'nest',
    { outside: 1 },
    '"nest.outside" is not an attribute of the type "nest", which has "inside", "list", "deeper", "document"',
  ],
  ['nests', [{ inside: stray }], `"nests.0.inside.three" ${PAIR}`],
  ['nothing', { any: 1 }, '"nothing.any" is not an attribute of the type "empty_type", which has none'],
];

function send(method: string, path: string, body: unknown): Promise<Answer> {
  return request(service, method, path, { headers, body: JSON.stringify(body) });
}

const search = (filter: unknown): Promise<Answer> =>
  send('SEARCH', '/items/holders', { query: { filter, fields: ['id'] } });

function refusal({ status, json }: Answer): unknown {
  const [error] = (json as { errors?: { message: string; extensions: { code: string } }[] }).errors ?? [];
  return { status, code: error?.extensions.code, message: error?.message };
}

t.test('in payloads', async (t) => {
  const before = await sql`select * from holders`;
  for (const [field, value, message] of STRAY) {
    const refused = { status: 400, code: 'INVALID_PAYLOAD' };
    const label = `${field}: ${JSON.stringify(value)}`;
    t.match(refusal(await send('PATCH', '/items/holders/1', { [field]: value })), refused, label);
    t.match(refusal(await send('POST', '/items/holders', { [field]: value })), refused, label);
    const { message: said } = refusal(await send('POST', '/items/holders', { [field]: value })) as { message: string };
    t.ok(said.includes(message), `${label}: ${said}`);
  }
  const mutation = 'mutation ($d: update_holders_input!) { update_holders_item(id: 1, data: $d) { id } }';
  const answer = await send('POST', '/graphql', { query: mutation, variables: { d: { parts: [stray] } } });
  t.match(answer.text, /parts\.0\.three/, 'GraphQL');
  const imported = await send('POST', '/utils/import/holders', [{ part: { one: 1 } }, { part: stray }]);
  t.match(imported, { status: 400 });
  t.match(imported.text, /part\.three/, 'import');
  t.strictSame(await sql`select * from holders`, before, 'nothing was written');
});

t.test('in filters', async (t) => {
  for (const [field, value, message] of STRAY) {
    for (const filter of [{ _eq: value }, { _neq: value }, { _in: [value] }, { _between: [value, value] }]) {
      const answer = refusal(await search({ [field]: filter })) as { message: string };
      t.match(answer, { status: 400, code: 'INVALID_QUERY' }, `${field}: ${JSON.stringify(filter)}`);
      t.ok(answer.message.includes(message), answer.message);
    }
  }
  const query = 'query ($f: holders_filter) { holders(filter: $f) { id } }';
  const answer = await send('POST', '/graphql', { query, variables: { f: { parts: { _eq: [stray] } } } });
  t.match(answer.text, /parts\.0\.three/, 'GraphQL');
});

t.test('attributes that exist, and what lies inside of a document, are taken', async (t) => {
  const found = { status: 200, json: { data: [{ id: 1 }] } };
  t.match(await search({ part: { _eq: { one: 1, two: 'a' } } }), found);
  t.match(await search({ part: { _eq: '(1,a)' } }), found, 'as PostgreSQL writes it');
  t.match(await search({ listed: { _eq: [{ two: 'a', one: 1 }] } }), found);
  t.match(await search({ nest: { _eq: { inside: { one: 1, two: 'a' }, document: { x: 1 } } } }), found);
  t.match(await search({ span: { _eq: '[1,2)' } }), found, 'a type of the user that is no composite one');
  t.match(await search({ span: { _in: ['[1,2)', 'empty'] } }), found);
  const nest = { inside: null, list: [{ one: 1 }, null], deeper: { two: 'b' }, document: { any: { thing: 1 } } };
  t.match(await send('PATCH', '/items/holders/1', { nest, nests: [nest], nothing: {}, span: '[3,4)' }), {
    status: 200,
    json: { data: { nest: { document: nest.document }, nests: [{ deeper: { one: null, two: 'b' } }], span: '[3,4)' } },
  });
});

t.test('an attribute that is added is known at once', async (t) => {
  await sql.unsafe('alter type pair add attribute three int4');
  let answer: Answer;
  do answer = await send('POST', '/items/holders', { part: stray });
  while (answer.status !== 200);
  t.match(answer.json, { data: { part: stray } });
});
