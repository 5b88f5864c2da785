/** Numbers that JavaScript cannot hold are kept as their digits. Nobody notices how: they are values wherever a number is one. */
import fc from 'fast-check';
import t, { type Test } from 'tap';
import { Digits, parseJson } from '../../../src/base/exact-json.js';
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
const databaseUrl = await createDatabase(server, 'digits');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
await sql.unsafe(`
  create table numbers (
    id int primary key generated always as identity,
    exact numeric, big bigint, doc jsonb, words text);
  create table entries (id bigint primary key, text text, price numeric, views int, is_open bool, parent bigint references entries, sort int, doc jsonb);
  insert into entries values
    (9007199254740992, 'even', 9.9, 1, true, null, 1, '{"p": 1.5}'),
    (9007199254740993, 'odd', 1, 2, false, 9007199254740993, 2, '{"p": 9007199254740993}'),
    (1, 'one', 2, 100000, null, 9007199254740992, 3, null);`);
const service = await startTestService({ databaseUrl });
const headers = { 'content-type': 'application/json' };
await send('PATCH', '/collections/entries', { meta: { sort_field: 'sort' } });

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

const LONG = '12345678901234567890';

t.test(
  "how numbers keep their digits is nobody else's business: no answer tells it, no string is taken for one",
  async (t) => {
    const answers: string[] = [];
    const tell = async (query: string, value: string): Promise<string> => {
      const { text } = await send('POST', '/graphql', `{"query":${JSON.stringify(query)},"variables":{"x":${value}}}`);
      answers.push(text);
      return text;
    };
    const included = 'query ($x: Boolean!) { __typename @include(if: $x) }';
    t.ok((await tell(included, '1.50')).includes('got invalid value 1.50'));
    await tell(included, `{"a":[${LONG}]}`);
    await tell('query ($x: String) { numbers(search: $x) { id } }', '1.50');
    await tell('query ($x: create_numbers_input) { numbers { id } }', LONG);
    await tell('mutation ($x: ID!) { delete_numbers_item(id: $x) { id } }', '1.50');
    for (const body of [`{"exact":true,"doc":${LONG}}`, `{"big":[${LONG}]}`, '{"id":{"a":1.50}}', `[${LONG}]`])
      answers.push((await send('POST', '/items/numbers', body)).text);
    for (const text of answers) t.notMatch(text, /digits [0-9a-f-]{36}/, text);

    const marks = answers.flatMap((text) => text.match(/digits [0-9a-f-]{36} /g) ?? []);
    const word = `${marks[0] ?? 'digits 00000000-0000-4000-8000-000000000000 '}1,"big":"5`;
    const created = await send('POST', '/items/numbers', `{"exact":1.50,"words":${JSON.stringify(word)}}`);
    t.match(created.json, { data: { words: word, big: null } }, created.text);
    const plain = `${marks[0] ?? 'digits 00000000-0000-4000-8000-000000000000 '}7`;
    const document = await send('POST', '/items/numbers', `{"doc":[1.50,${JSON.stringify(plain)}]}`);
    t.match(document.json, { data: { doc: [1.5, plain] } }, document.text);

    const compared = 'query ($x: JSON) { numbers(filter: {doc: {_eq: $x}}) { doc } }';
    await sql`insert into numbers (doc) values ('[2.50]'), ('["2.50"]')`;
    for (let round = 0; round < 3; round++)
      for (const [value, shown] of [
        ['[2.50]', [2.5]],
        ['["2.50"]', ['2.50']],
      ] as const)
        t.match(
          JSON.parse(await tell(compared, value)),
          { data: { numbers: [{ doc: shown }] } },
          `remembered: ${value}`,
        );
  },
);

t.test('a number that is held as its digits is a value, never an object', async (t) => {
  const one = { id: '1' };
  const [even, odd] = [{ id: '9007199254740992' }, { id: '9007199254740993' }];
  for (const [filter, expected] of [
    ['{"price":9.90}', [even]],
    ['{"price":{"_or":[9.90,1.0]}}', [even, odd]],
    ['{"parent":9007199254740993}', [odd]],
    ['{"parent":{"id":9007199254740992}}', [one]],
    ['{"views":1.0e5}', [one]],
    ['{"views":{"_in":[1.0e5,2.0]}}', [one, odd]],
    ['{"is_open":1.0}', [even]],
    ['{"is_open":{"_null":1.0}}', [one]],
    ['{"doc":{"_json":{"p":1.50}}}', [even]],
    ['{"doc":{"_json":{"p":9007199254740993}}}', [odd]],
  ] as const) {
    const query = `{"query":{"fields":["id"],"sort":["id"],"filter":${filter}}}`;
    const found = await send('SEARCH', '/items/entries', query);
    t.strictSame(found.json, { data: expected }, `SEARCH ${filter}: ${found.text}`);
    const url = `/items/entries?fields=id&sort=id&filter=${encodeURIComponent(filter)}`;
    t.strictSame(await read(t, url), expected, filter);
  }
  const count = async (): Promise<unknown> => (await sql`select count(*)::int from entries`)[0]?.['count'];
  for (const [method, path, body] of [
    ['POST', '/items/entries', '1.50'],
    ['POST', '/items/entries', '[1.50]'],
    ['PATCH', '/items/entries/1', '1.50'],
    ['PATCH', '/items/entries', '{"keys":[1],"data":1.50}'],
    ['PATCH', '/items/entries', '{"query":{"filter":1.50},"data":{"views":1}}'],
    ['DELETE', '/items/entries', '1.50'],
    ['DELETE', '/items/entries', '{"query":1.50}'],
    ['SEARCH', '/items/entries', '1.50'],
    ['SEARCH', '/items/entries', '{"query":1.50}'],
    ['SEARCH', '/items/entries', '{"query":{"filter":1.50}}'],
    ['SEARCH', '/items/entries', '{"query":{"filter":{"_or":[1.50]}}}'],
    ['SEARCH', '/items/entries', '{"query":{"filter":{"doc":{"_json":1.50}}}}'],
    ['SEARCH', '/items/entries', '{"query":{"deep":1.50}}'],
    ['POST', '/graphql', '1.50'],
    ['POST', '/graphql', '{"query":"{ entries { id } }","variables":1.50}'],
    ['POST', '/utils/import/entries', '[1.50]'],
    ['POST', '/utils/sort/entries', '1.50'],
  ] as const) {
    const answer = await send(method, path, body);
    t.equal(answer.status, 400, `${method} ${path} ${body}: ${answer.text}`);
  }
  t.equal(await count(), 3, 'nothing was written or deleted');
});

t.test(
  'keys that JavaScript would round name their own item, and whole numbers may be written in any way',
  async (t) => {
    const changed = await send(
      'PATCH',
      '/items/entries',
      '[{"id":9007199254740993,"views":1.0e5},{"id":1.0,"views":70e-1}]',
    );
    t.match(
      changed.json,
      {
        data: [
          { id: '9007199254740993', views: 100_000 },
          { id: '1', views: 7 },
        ],
      },
      changed.text,
    );
    t.strictSame(await read(t, '/items/entries/9007199254740992?fields=views'), { views: 1 }, 'its neighbour');
    const order = async (): Promise<unknown> =>
      (await sql`select text from entries order by sort`).map(({ text }) => text);
    const sorted = await send('POST', '/utils/sort/entries', '{"item":9007199254740993,"to":1.0}');
    t.equal(sorted.status, 200, sorted.text);
    t.strictSame(await order(), ['even', 'one', 'odd']);
    for (const wrong of ['{"item":{"text":"1"},"to":1}', '{"item":1,"to":[1.50]}', '{"item":1}', '{"item":1.50}'])
      t.equal((await send('POST', '/utils/sort/entries', wrong)).status, 400, wrong);

    for (const [views, kept] of [
      ['1.0e5', 100_000],
      ['1.50e1', 15],
      ['10.0', 10],
      ['-0.0', 0],
      ['2000e-3', 2],
    ] as const) {
      const written = await send('PATCH', '/items/entries/1', `{"views":${views}}`);
      t.match(written.json, { data: { views: kept } }, `${views}: ${written.text}`);
      const query =
        'mutation ($id: ID!, $x: update_entries_input!) { update_entries_item(id: $id, data: $x) { views } }';
      const mutation = `{"query":${JSON.stringify(query)},"variables":{"id":1.0,"x":{"views":${views}}}}`;
      const asked = await send('POST', '/graphql', mutation);
      t.match(asked.json, { data: { update_entries_item: { views: kept } } }, `GraphQL ${views}: ${asked.text}`);
    }
    t.match((await send('PATCH', '/items/entries/1', '{"is_open":1.0}')).json, { data: { is_open: true } });
    for (const views of ['1.50', '1.00000000000000000001', '1.0e10', '1.0e-1', '1.0e999', '1.0e9999'])
      t.equal((await send('PATCH', '/items/entries/1', `{"views":${views}}`)).status, 400, views);
  },
);

t.test('a text with digits is read as JSON.parse reads it, mistakes included', async (t) => {
  const plain = (value: unknown): unknown => {
    if (value instanceof Digits) return Number(value.text);
    if (Array.isArray(value)) return value.map(plain);
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each)]));
  };
  const outcome = (parse: (text: string) => unknown, text: string): unknown => {
    try {
      return { value: plain(parse(text)) };
    } catch (error) {
      return error instanceof SyntaxError ? 'refused' : error;
    }
  };
  const same = (text: string): void => {
    t.strictSame(outcome(parseJson, text), outcome(JSON.parse, text), text);
  };
  const mistake = fc.constantFrom(
    '',
    '"',
    '\\',
    ',',
    '}',
    ']',
    '{',
    '[',
    '0',
    '-',
    'e',
    '\u0001',
    ':',
    '.',
    'nul',
    '\t',
  );
  let cases = 0;
  fc.assert(
    fc.property(fc.json(), fc.nat(), mistake, (json, position, inserted) => {
      const text = `[1.50, ${json}]`;
      const at = position % (text.length + 1);
      for (const each of [text, text.slice(0, at) + inserted + text.slice(at + (position % 2))]) {
        cases++;
        if (JSON.stringify(outcome(parseJson, each)) !== JSON.stringify(outcome(JSON.parse, each))) same(each);
      }
    }),
    { numRuns: 3_000, seed: 7 },
  );
  t.equal(cases, 6_000);
  same('{"__proto__": {"polluted": 1.50}}');
  t.equal((parseJson('{"__proto__": {"polluted": 1.50}}') as { polluted?: unknown }).polluted, undefined);
  same('{"a": 1.50, "a": 2}');
  same('1.50 x');
  t.throws(() => parseJson('[1.50,'.repeat(500_000)));
});
