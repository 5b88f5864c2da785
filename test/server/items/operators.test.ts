/**
 * What PostgreSQL can ask: operators of texts, arrays, ranges, documents, networks, full text and trees, in REST, SEARCH, GraphQL,
 * permissions and validations. Each uses an index where there is one, and a value that does not fit is 400.
 */
import t, { type Test } from 'tap';
import { makeCaller } from '../../support/callers.js';
import {
  type Answer,
  createDatabase,
  get,
  request,
  startDatabase,
  startTestService,
  withSql,
} from '../../support/service.js';

const server = await startDatabase();
const databaseUrl = await createDatabase(server, 'operators');
await withSql(databaseUrl, async (sql) => {
  await sql
    .unsafe(`
    create table words (id int primary key, word text collate "C", plain text, code varchar(10), mood text);
    insert into words values (1, 'Zebra', 'Zebra', 'a1', 'x'), (2, 'apple', 'apple', 'b2', 'y'), (3, 'Ärger', 'Ärger', 'c3', null),
      (4, 'banana', 'banana', null, 'z'), (5, null, null, 'd4', '');
    create collation german (provider = icu, locale = 'de');
    alter table words alter column plain type text collate german;
    create table many (id int primary key, word text);
    insert into many select n, md5(n::text) from generate_series(1, 20000) n;
    create index many_word on many (word);
    create type mood as enum ('sad', 'ok', 'happy');
    create schema other; create type other.span as range (subtype = float8);
    create table kinds (id int primary key, tags text[], numbers int[], moods mood[], days daterange, spans int4range, many_spans int4multirange,
      own other.span, doc jsonb, old json, host inet, net cidr);
    insert into kinds values
      (1, '{a,b}', '{1,2,3}', '{sad}', '[2024-01-01,2024-02-01)', '[1,5)', '{[1,3),[7,9)}', '[0.5,1.5)', '{"a": 1, "b": {"c": [1, 2]}}', '{"a": 1}', '10.1.2.3', '10.1.0.0/16'),
      (2, '{b,"c,d"}', '{}', '{ok,happy}', '[2024-02-01,)', '[5,9)', '{}', '[1.5,)', '["a", "b"]', '[1]', '192.168.0.1/24', '192.168.0.0/24'),
      (3, '{}', '{3}', '{}', 'empty', 'empty', '{[20,30)}', 'empty', '"a"', '"x"', 'fe80::1', 'fe80::/10'),
      (4, null, null, null, null, null, null, null, null, null, null, null);
    create type spot as (x int, y text);
    create table many_kinds (id int primary key, tags text[], spans int4range, many_spans int4multirange, doc jsonb, host inet, spot spot);
    insert into many_kinds select n, array['t' || n, 'u' || n % 100], int4range(n, n + 3), int4multirange(int4range(n, n + 3)),
      jsonb_build_object('n', n, 'k' || n, true), '10.0.0.0'::inet + n,
      case when n % 7 > 0 then (n, case when n % 5 > 0 then 'y' || n end)::spot end from generate_series(1, 20000) n;
    create index many_tags on many_kinds using gin (tags);
    create index many_spans on many_kinds using gist (spans);
    create index many_many_spans on many_kinds using gist (many_spans);
    create index many_doc on many_kinds using gin (doc);
    create index many_host on many_kinds using spgist (host);
    analyze;`)
    .simple();
});
const service = await startTestService({ databaseUrl });
const headers = { 'content-type': 'application/json' };

function search(collection: string, filter: unknown, more: object = {}): Promise<Answer> {
  const query = { fields: ['id'], sort: ['id'], filter, ...more };
  return request(service, 'SEARCH', `/items/${collection}`, { headers, body: JSON.stringify({ query }) });
}

function graphql(query: string, variables: object = {}): Promise<Answer> {
  return request(service, 'POST', '/graphql', { headers, body: JSON.stringify({ query, variables }) });
}

function ids(answer: Answer): unknown {
  return answer.status === 200 ? (answer.json as { data: { id: number }[] }).data.map(({ id }) => id) : answer.text;
}

/** Each filter, with the keys of the items that it finds. */
async function expectIds(
  t: Test,
  collection: string,
  cases: readonly (readonly [filter: object, found: readonly number[]])[],
): Promise<void> {
  for (const [filter, found] of cases)
    t.strictSame(ids(await search(collection, filter)), found, JSON.stringify(filter));
}

async function expectRefusals(
  t: Test,
  collection: string,
  cases: readonly (readonly [filter: object, message: RegExp])[],
): Promise<void> {
  for (const [filter, text] of cases)
    t.match(await search(collection, filter), { status: 400, text }, JSON.stringify(filter));
}

/** The statement's plan names the index. */
async function expectIndex(t: Test, path: string, index: string): Promise<void> {
  const answer = await get(service, encodeURI(path), { headers: { prefer: 'explain' } });
  t.equal(answer.status, 200, answer.text);
  const { data } = answer.json as { data: { plan: unknown; sql: string } };
  t.match(JSON.stringify(data.plan), `"Index Name":"${index}"`, `${path}: ${data.sql}`);
}

t.test('texts have an order, that of their column', async (t) => {
  await expectIds(t, 'words', [
    [{ word: { _lt: 'a' } }, [1]],
    [{ plain: { _lt: 'b' } }, [2, 3]],
    [{ word: { _gte: 'apple', _lte: 'banana' } }, [2, 4]],
    [{ word: { _between: ['Z', 'b'] } }, [1, 2]],
    [{ plain: { _between: ['a', 'b'] } }, [2, 3]],
    [{ plain: { _nbetween: ['a', 'b'] } }, [1, 4]],
    [{ code: { _gt: 'b2' } }, [3, 5]],
    [{ mood: { _between: ['', 'x'] } }, [1, 5]],
  ]);
  t.strictSame(ids(await get(service, '/items/words?fields=id&filter[code][_between]=b,d')), [2, 3]);
  const found = await graphql('{ words(filter: { plain: { _lt: "b" } }, sort: ["id"]) { id } }');
  t.strictSame(found.json, { data: { words: [{ id: '2' }, { id: '3' }] } }, found.text);
  const wrong = await search('words', { code: { _between: ['a'] } });
  t.match(wrong, { status: 400, text: /_between.* of .*code.* needs exactly two values/ });
  await expectIndex(t, '/items/many?fields=id&limit=-1&filter[word][_between]=00,01', 'many_word');
  await expectIndex(t, '/items/many?fields=id&limit=-1&filter[word][_lt]=001', 'many_word');
});

t.test('arrays', async (t) => {
  await expectIds(t, 'kinds', [
    [{ tags: { _contains_all: ['a', 'b'] } }, [1]],
    [{ tags: { _contains_any: ['a', 'c,d'] } }, [1, 2]],
    [{ tags: { _contained_in: ['a', 'b', 'c'] } }, [1, 3]],
    [{ numbers: { _contains_all: [3, '1'] } }, [1]],
    [{ numbers: { _contains_any: [3] } }, [1, 3]],
    [{ moods: { _contains_any: ['happy'] } }, [2]],
    [{ tags: { _length: 2 } }, [1, 2]],
    [{ tags: { _length: { _lt: 2 } } }, [3]],
    [{ numbers: { _length: { _between: [1, 3] }, _contains_any: [2] } }, [1]],
    [{ tags: { _length: { _null: true } } }, [4]],
  ]);
  const by = async (query: string): Promise<unknown> =>
    ids(await get(service, encodeURI(`/items/kinds?fields=id&${query}`)));
  t.strictSame(await by('filter[tags][_contains_all]=a,b'), [1]);
  t.strictSame(await by('filter[tags][_contains_all]=["a","b"]'), [1], 'an array as JSON');
  t.strictSame(await by('filter[numbers][_contains_any]=[3]'), [1, 3]);
  t.strictSame(await by('filter[tags][_contains_any][]=c,d'), [2]);
  t.strictSame(await by('filter[numbers][_length][_gte]=3'), [1]);
  const found = await graphql('{ kinds(filter: { tags: { _contains_all: ["b"], _length: { _eq: 2 } } }) { id } }');
  t.strictSame(found.json, { data: { kinds: [{ id: '1' }, { id: '2' }] } }, found.text);
  await expectIndex(t, '/items/many_kinds?fields=id&limit=-1&filter[tags][_contains_all]=t5', 'many_tags');
  await expectIndex(t, '/items/many_kinds?fields=id&limit=-1&filter[tags][_contains_any]=t5,t6', 'many_tags');
  await expectRefusals(t, 'kinds', [
    [{ numbers: { _contains_all: ['x'] } }, /_contains_all.* of field .*numbers.*: it must be a whole number/],
    [{ numbers: { _contains_any: [] } }, /_contains_any.* of .*numbers.* needs a list/],
    [{ numbers: { _contains_any: null } }, /_contains_any.* of .*numbers.* needs a list/],
    [{ moods: { _contains_any: ['angry'] } }, /does not fit/],
    [{ doc: { _contains_all: ['a'] } }, /json.* does not contain the .*_contains_all/],
    [{ tags: { _overlaps: '[1,2)' } }, /text\[\].* does not contain the .*_overlaps/],
    [{ id: { _length: 1 } }, /_length.* does not apply to .*id/],
    [{ tags: { _length: 'x' } }, /count\(tags\).*whole number/],
  ]);
});

t.test('arrays and composite values outside a long list are found as by SQL, with a hash table', async (t) => {
  const numbers = Array.from({ length: 150 }, (_, n) => 1 + 13 * n);
  for (const [field, values, texts] of [
    ['tags', numbers.map((n) => [`t${n}`, `u${n % 100}`]), numbers.map((n) => `{t${n},u${n % 100}}`)],
    [
      'spot',
      numbers.map((n) => ({ x: n, y: n % 5 > 0 ? `y${n}` : null })),
      numbers.map((n) => `(${n},${n % 5 > 0 ? `y${n}` : ''})`),
    ],
  ] as const) {
    const expected = await withSql(databaseUrl, (sql) =>
      sql.unsafe(
        `select id from many_kinds where ${field} not in (select text::${field === 'tags' ? 'text[]' : 'spot'} from unnest($1::text[]) text) order by id`,
        [[...texts]],
      ),
    );
    t.ok(expected.length > 10_000 && expected.length <= 20_000 - texts.length, `${expected.length} rows`);
    const filter = { [field]: { _nin: values } };
    t.strictSame(
      ids(await search('many_kinds', filter, { limit: -1 })),
      expected.map(({ id }) => id),
      field,
    );
    const explained = await request(service, 'SEARCH', '/items/many_kinds', {
      headers: { ...headers, prefer: 'explain' },
      body: JSON.stringify({ query: { fields: ['id'], filter, limit: -1 } }),
    });
    t.match(explained.text, 'hashed SubPlan', `${field}: entries are not compared one by one`);
  }
});

t.test('ranges and multiranges', async (t) => {
  await expectIds(t, 'kinds', [
    [{ spans: { _contains_value: 4 } }, [1]],
    [{ spans: { _contains_value: 5 } }, [2]],
    [{ days: { _contains_value: '2024-01-31' } }, [1]],
    [{ days: { _contains_value: '$NOW' } }, [2]],
    [{ own: { _contains_value: 1.5 } }, [2]],
    [{ many_spans: { _contains_value: 8 } }, [1]],
    [{ spans: { _overlaps: '[4,6)' } }, [1, 2]],
    [{ spans: { _overlaps: '(,2]' } }, [1]],
    [{ days: { _overlaps: '[2024-01-10,"2024-01-12"]' } }, [1]],
    [{ many_spans: { _overlaps: '[2,25]' } }, [1, 3]],
    [{ many_spans: { _overlaps: '{[0,1),[29,40)}' } }, [3]],
    [{ own: { _overlaps: '[100,)' } }, [2]],
    [{ spans: { _adjacent: '[9,10)' } }, [2]],
    [{ days: { _adjacent: '[2023-01-01,2024-01-01)' } }, [1]],
    [{ many_spans: { _adjacent: '[9,10)' } }, [1]],
  ]);
  const url = await get(service, encodeURI('/items/kinds?fields=id&filter[spans][_overlaps]=[1,2]'));
  t.strictSame(ids(url), [1], 'a text that is JSON too');
  const found = await graphql('{ kinds(filter: { spans: { _overlaps: "[1,2)" } }) { id } }');
  t.strictSame(found.json, { data: { kinds: [{ id: '1' }] } }, found.text);
  for (const name of ['spans', 'many_spans'])
    for (const test of ['_contains_value]=77', '_overlaps]=[77,78)', '_adjacent]=[77,78)'])
      await expectIndex(
        t,
        `/items/many_kinds?fields=id&limit=-1&filter[${name}][${test}`,
        name === 'spans' ? 'many_spans' : 'many_many_spans',
      );
  await expectRefusals(t, 'kinds', [
    [{ spans: { _overlaps: '1,2' } }, /_overlaps.* of field .*spans.*: it must be a range such as/],
    [{ spans: { _overlaps: [1, 2] } }, /_overlaps.* of field .*spans/],
    [{ spans: { _adjacent: '[1,2' } }, /_adjacent.* of field .*spans/],
    [{ spans: { _overlaps: '[x,y)' } }, /does not fit/],
    [{ spans: { _overlaps: '[9,1)' } }, /does not fit/],
    [{ many_spans: { _overlaps: '{[1,2)' } }, /_overlaps.* of field .*many_spans.*: it must be a multirange/],
    [{ spans: { _contains_value: 'x' } }, /_contains_value.* of field .*spans.*: it must be a whole number/],
    [{ id: { _contains_value: 1 } }, /integer.* does not contain the .*_contains_value/],
    [{ spans: { _contains_value: '$CURRENT_USER.email' } }, /cannot be used with a field of \$CURRENT_USER/],
  ]);
});

t.test('documents', async (t) => {
  await expectIds(t, 'kinds', [
    [{ doc: { _json_contains: { a: 1 } } }, [1]],
    [{ doc: { _json_contains: { b: { c: [2] } } } }, [1]],
    [{ doc: { _json_contains: ['b'] } }, [2]],
    [{ doc: { _json_contains: 'a' } }, [2, 3]],
    [{ old: { _json_contains: { a: 1 } } }, [1]],
    [{ old: { _json_contains: [1] } }, [2]],
    [{ doc: { _has_key: 'a' } }, [1, 2, 3]],
    [{ doc: { _has_key: 'b' } }, [1, 2]],
    [{ old: { _has_key: 'a' } }, [1]],
  ]);
  const url = await get(service, `/items/kinds?fields=id&filter[doc][_json_contains]=${encodeURIComponent('{"a":1}')}`);
  t.strictSame(ids(url), [1]);
  const query = 'query ($part: JSON) { kinds(filter: { doc: { _json_contains: $part, _has_key: "a" } }) { id } }';
  const found = await graphql(query, { part: { b: { c: [1] } } });
  t.strictSame(found.json, { data: { kinds: [{ id: '1' }] } }, found.text);
  await expectIndex(t, '/items/many_kinds?fields=id&limit=-1&filter[doc][_json_contains]={"n":7}', 'many_doc');
  await expectIndex(t, '/items/many_kinds?fields=id&limit=-1&filter[doc][_has_key]=k7', 'many_doc');
  await expectRefusals(t, 'kinds', [
    [{ doc: { _has_key: { a: 1 } } }, /_has_key.* of field .*doc/],
    [{ doc: { _has_key: null } }, /doc.* compares with null/],
    [{ tags: { _json_contains: [] } }, /does not contain the .*_json_contains/],
    [{ doc: { _has_key: '\u0000' } }, /_has_key.* of field .*doc.*NUL/],
    [{ doc: { _json_contains: { a: '\u0000' } } }, /does not fit/],
  ]);
});

t.test('networks', async (t) => {
  await expectIds(t, 'kinds', [
    [{ host: { _within_network: '10.0.0.0/8' } }, [1]],
    [{ host: { _within_network: '192.168.0.9/24' } }, [2]],
    [{ host: { _within_network: 'fe80::/10' } }, [3]],
    [{ net: { _within_network: '0.0.0.0/0' } }, [1, 2]],
  ]);
  const found = await graphql('{ kinds(filter: { host: { _within_network: "10.0.0.0/8" } }) { id } }');
  t.strictSame(found.json, { data: { kinds: [{ id: '1' }] } }, found.text);
  await expectIndex(t, '/items/many_kinds?fields=id&limit=-1&filter[host][_within_network]=10.0.7.0/28', 'many_host');
  await expectRefusals(t, 'kinds', [
    [
      { host: { _within_network: '10.0.0.0/33' } },
      /_within_network.* of field .*host.*: it must be an address or a network/,
    ],
    [{ host: { _within_network: 'x' } }, /_within_network.* of field .*host/],
    [{ host: { _within_network: ['10.0.0.0/8'] } }, /_within_network.* of field .*host/],
    [{ tags: { _within_network: '10.0.0.0/8' } }, /does not contain the .*_within_network/],
  ]);
});

t.test('permissions and validations', async (t) => {
  const rules: readonly (readonly [permissions: object, found: readonly number[]])[] = [
    [{ plain: { _gt: 'b' } }, []],
    [{ tags: { _contains_any: ['a'] } }, [1]],
    [{ tags: { _length: { _lt: 2 } } }, [3]],
    [{ days: { _contains_value: '$NOW' } }, [2]],
    [{ many_spans: { _overlaps: '[25,26)' } }, [3]],
    [{ doc: { _json_contains: { a: 1 } } }, [1]],
    [{ host: { _within_network: '192.168.0.0/16' } }, [2]],
    [{ numbers: { _contains_all: ['x'] } }, []],
    [{ host: { _within_network: 'nowhere' } }, []],
  ];
  for (const [number, [permissions, found]] of rules.entries()) {
    const { token } = await withSql(databaseUrl, (sql) =>
      makeCaller(sql, `rule${number}`, [{ permissions: [{ collection: 'kinds', action: 'read', permissions }] }]),
    );
    await request(service, 'POST', '/utils/cache/clear');
    const answer = await get(service, '/items/kinds?fields=id&sort=id', { token });
    t.strictSame(found.length > 0 || answer.status === 200 ? ids(answer) : [], found, JSON.stringify(permissions));
  }
  const validation = { tags: { _contained_in: ['a', 'b'], _length: { _gt: 0 } }, word: { _lt: 'm' } };
  const writer = await withSql(databaseUrl, (sql) =>
    makeCaller(sql, 'writer', [
      {
        permissions: [
          { collection: 'kinds', action: 'create', validation: { tags: validation.tags } },
          { collection: 'words', action: 'create', validation: { word: validation.word } },
        ],
      },
    ]),
  );
  // What plain SQL wrote is heard of within a moment; the test must not depend on when.
  await request(service, 'POST', '/utils/cache/clear');
  const post = (collection: string, item: object): Promise<Answer> =>
    request(service, 'POST', `/items/${collection}`, { headers, body: JSON.stringify(item), token: writer.token });
  t.match(await post('kinds', { id: 10, tags: ['a', 'c'] }), { status: 400, text: /FAILED_VALIDATION.*contained_in/ });
  t.match(await post('kinds', { id: 10, tags: [] }), { status: 400, text: /FAILED_VALIDATION.*gt/ });
  t.equal((await post('kinds', { id: 10, tags: ['a'] })).status, 204);
  t.match(await post('words', { id: 10, word: 'zoo' }), { status: 400, text: /FAILED_VALIDATION.*lt/ });
  t.equal((await post('words', { id: 10, word: 'gnu' })).status, 204);
});

t.test('a value that PostgreSQL alone can judge is named by the error', async (t) => {
  await expectRefusals(t, 'kinds', [
    [{ moods: { _contains_any: ['ok', 'angry'] } }, /_contains_any.* of field .*moods.*angry.* does not fit its type/],
    [{ spans: { _overlaps: '[x,5)' } }, /_overlaps.* of field .*spans.*\[x,5\).* does not fit its type/],
    [{ spans: { _overlaps: '[5,1)' } }, /_overlaps.* of field .*spans.*\[5,1\).* does not fit its type/],
    [{ days: { _contains_value: '2024-02-31' } }, /_contains_value.* of field .*days.*2024-02-31.* does not fit/],
    [{ many_spans: { _overlaps: '{[3,1)}' } }, /_overlaps.* of field .*many_spans.*does not fit its type/],
    [{ spans: { _eq: '[1,5' } }, /field .*spans.*\[1,5.* does not fit its type/],
    [{ host: { _eq: 'nowhere' } }, /field .*host.*nowhere.* does not fit its type/],
    [{ host: { _in: ['10.1.2.3', '10.1.2'] } }, /field .*host.*10\.1\.2.* does not fit its type/],
    [{ _and: [{ host: { _eq: '10.1.2.3' } }, { net: { _eq: '10.1.0.1/16' } }] }, /field .*net.*10\.1\.0\.1\/16/],
  ]);
  const write = (body: unknown): Promise<Answer> =>
    request(service, 'POST', '/items/kinds', { headers, body: JSON.stringify(body) });
  const refused: readonly (readonly [object | object[], RegExp])[] = [
    [{ id: 90, spans: '[5,1)', tags: ['[5,1)'] }, /The value of "spans" does not fit its type: "\[5,1\)"/],
    [{ id: 90, days: '[2024-02-31,)' }, /The value of "days" does not fit its type/],
    [{ id: 90, many_spans: '[1,2' }, /The value of "many_spans" does not fit its type/],
    [
      [
        { id: 90, host: '::1' },
        { id: 91, host: '1.2.3' },
      ],
      /The value of "\[?1\]?\.host" does not fit its type: "1\.2\.3"/,
    ],
    [{ id: 90, net: '10.1.0.1/16', host: '10.1.0.1' }, /The value of "net" does not fit its type/],
    [{ id: 90, moods: ['ok', 'angry'] }, /"moods\.1" must be one of sad, ok, happy|The value of "moods" does not fit/],
  ];
  for (const [body, message] of refused) {
    const answer = await write(body);
    const expected = { status: 400, json: { errors: [{ message, extensions: { code: 'INVALID_PAYLOAD' } }] } };
    t.match(answer, expected, `${JSON.stringify(body)}: ${answer.text}`);
  }
  t.strictSame(ids(await search('kinds', { id: { _gte: 90 } })), [], 'and nothing is written');
});
