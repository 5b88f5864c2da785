/**
 * Names, defaults and expressions that nobody means well: refused with 400, in no time, and without a trace in the catalogs
 * or the metadata. What only looks strange is taken for what it is.
 */
import t from 'tap';
import {
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
} from '../../support/service.js';

t.setTimeout(110_000);

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'hostile_structure');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl });

async function send(method: string, path: string, body?: unknown): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, body === undefined ? {} : { headers, body: JSON.stringify(body) });
}

async function everything(): Promise<unknown> {
  const [row] = await sql`
    select md5(string_agg(fact, ' ' order by fact)) as digest from (
      select concat_ws(' ', attrelid, attnum, attname, atttypid, atttypmod, attnotnull) as fact from pg_attribute where attrelid >= 16384
      union all select concat_ws(' ', oid, relname) from pg_class where oid >= 16384
      union all select concat_ws(' ', oid, proname) from pg_proc where oid >= 16384
      union all select concat_ws(' ', adrelid, adnum, pg_get_expr(adbin, adrelid)) from pg_attrdef
      union all select concat_ws(' ', oid, conname) from pg_constraint
      union all select concat_ws(' ', objoid, objsubid, description) from pg_description where objoid >= 16384
      union all select rolname from pg_roles
      union all select to_json(r)::text from service_collections r
      union all select to_json(r)::text from service_fields r
      union all select to_json(r)::text from service_relations r
      union all select to_json(r)::text from service_schema r
      union all select to_json(r)::text from service_users r
    ) facts`;
  return row?.['digest'];
}

const NAMES: readonly unknown[] = [
  '',
  ' ',
  ' spaced',
  'spaced ',
  'two words',
  'quo"te',
  "quo'te",
  'back`tick',
  'semi;colon',
  'a; drop table articles; --',
  'a"; drop table articles; --',
  'com--ment',
  'com/*ment*/',
  'line\nbreak',
  'nul\u0000',
  'dot.ted',
  'sla/sh',
  'back\\slash',
  'per%cent',
  '%1',
  '$thumb',
  'par(en)',
  'br[acket]',
  'com,ma',
  'col:on',
  'ünïcode',
  '漢字',
  'zero\u200bwidth',
  'right\u202eleft',
  'ａfull',
  '🙂',
  '\ud800',
  '1starts',
  '-starts',
  'ends-',
  '__proto__',
  '__typename',
  'x'.repeat(64),
  'x'.repeat(100_000),
  `${'x'.repeat(62)}é`,
  1,
  true,
  ['a'],
  { a: 1 },
  null,
];

t.test('hostile names', async (t) => {
  const before = await everything();
  for (const name of NAMES) {
    const shown = JSON.stringify(name).slice(0, 40);
    const bodies: [string, unknown][] = [
      ['/fields/articles', { field: name, type: 'string', meta: {} }],
      ['/collections', { collection: name, schema: {}, meta: {} }],
      ['/collections', { collection: name }],
      ['/collections', { collection: 'harmless', schema: {}, fields: [{ field: name, type: 'string' }] }],
    ];
    for (const [path, body] of bodies) {
      const answer = await send('POST', path, body);
      t.match(
        answer,
        { status: 400, json: { errors: [{ extensions: { code: 'INVALID_PAYLOAD' } }] } },
        `${path} ${shown}`,
      );
    }
  }
  for (const name of ['service_mine', 'SERVICE_mine', 'pg_mine', 'service_users', 'articles']) {
    for (const schema of [{}, null])
      t.equal((await send('POST', '/collections', { collection: name, schema })).status, 400, name);
  }
  t.equal(await everything(), before);
});

/** For a field of each of these types. */
const DEFAULTS: readonly (readonly [type: string, value: unknown])[] = [
  ...['string', 'csv', 'integer', 'boolean', 'timestamp', 'uuid'].flatMap((type) =>
    [
      'pg_sleep(10)',
      'pg_catalog.pg_sleep(10)',
      'PG_SLEEP (10)',
      '(select pg_sleep(10))',
      '(select password from service_users limit 1)',
      '(select 1)',
      'exists (select 1)',
      "pg_read_file('/etc/passwd')",
      "lo_import('/etc/passwd')",
      "set_config('role', 'x', false)",
      'pg_terminate_backend(1)',
      "nextval('articles_id_seq')",
      "query_to_xml('drop table articles', true, true, '')",
      "dblink('x', 'y')",
      '1; drop table articles',
      "'x'; drop table articles",
      "'; drop table articles; --",
      '1); drop table articles; select (1',
      'select pg_sleep(10)',
      'select password from service_users',
      "'); drop table articles; --",
      "' || pg_sleep(10) || '",
      "x' || (select password from service_users limit 1) || '",
      'now() + pg_sleep(1)',
      'now(); select pg_sleep(10)',
      'count(*) over ()',
      'public.now()',
      "version() || 'x'",
      "current_setting('data_directory')",
      "coalesce(pg_sleep(1)::text, '')",
      'case when true then pg_sleep(1) end',
      "lower((select 'x'))",
      "('articles'::regclass)::text || lower('x')",
      "format('%s', pg_sleep(1))",
    ].map((value) => [type, value] as const),
  ),
  ['integer', 'abc'],
  ['integer', '1e999'],
  ['integer', 2 ** 40],
  ['integer', 1.5],
  ['integer', { a: 1 }],
  ['bigInteger', '99999999999999999999'],
  ['boolean', 'maybe'],
  ['date', '2024-02-30'],
  ['timestamp', 'yesterday'],
  ['timestamp', 'user'],
  ['uuid', 'zzz'],
  ['string', { a: 1 }],
  ['string', ['a']],
  ['string', 'nul\u0000'],
  ['string', 'half \ud800'],
  ['string', 'x'.repeat(256)],
  ['binary', 'no base 64!'],
];

t.test('hostile defaults', async (t) => {
  const before = await everything();
  const start = performance.now();
  for (const [type, default_value] of DEFAULTS) {
    const answer = await send('POST', '/fields/articles', {
      field: 'harmless',
      type,
      schema: { default_value },
      meta: {},
    });
    t.equal(answer.status, 400, `${type} ${JSON.stringify(default_value).slice(0, 60)}: ${answer.text.slice(0, 160)}`);
  }
  for (const [type, default_value] of DEFAULTS.filter(([type]) => type === 'string')) {
    const fields = [{ field: 'harmless', type, schema: { default_value } }];
    t.equal((await send('POST', '/collections', { collection: 'harmless', schema: {}, fields })).status, 400);
    t.equal((await send('PATCH', '/fields/articles/title', { schema: { default_value } })).status, 400);
  }
  t.ok(performance.now() - start < 60_000, 'nobody slept');
  t.equal(await everything(), before);
});

const EXPRESSIONS: readonly unknown[] = [
  'pg_sleep(10)::text',
  '(select 1)::text',
  '(select title from articles limit 1)',
  'title) stored, add column evil text generated always as (title',
  'title) stored; drop table articles; --',
  '1) stored, evil int generated always as (2',
  'title) || (title',
  'lower(title)) || (upper(title)',
  '(title',
  'title; drop table articles',
  'title -- comment',
  'nothing',
  'articles.title',
  '"articles"."title"',
  'authors.name',
  'articles.*',
  'title || now()::text',
  'title || random()::text',
  'title || current_user',
  'title collate "C"',
  'harmless',
  'row(title)::text',
  '$1',
  'title::regclass::text',
  'sum(views)::text',
  'md5(title) over ()',
  '',
  ' ',
  '/**/',
  5,
  { a: 1 },
  'title || \u0000',
];

t.test('hostile expressions', async (t) => {
  const before = await everything();
  for (const generation_expression of EXPRESSIONS) {
    const body = { field: 'harmless', type: 'text', schema: { generation_expression, is_generated: true } };
    const answer = await send('POST', '/fields/articles', body);
    t.equal(answer.status, 400, `${JSON.stringify(generation_expression)}: ${answer.text.slice(0, 160)}`);
  }
  t.equal(await everything(), before);
});

/** Bodies of any shape: an answer below 500, whatever they hold. */
t.test('hostile bodies', async (t) => {
  const before = await everything();
  const values: readonly unknown[] = [
    null,
    true,
    0,
    -1,
    1e300,
    '',
    'x',
    [],
    [[]],
    {},
    { a: 1 },
    '\u0000',
    [null],
    'x'.repeat(300),
  ];
  const properties = [
    'field',
    'type',
    'schema',
    'meta',
    'collection',
    'fields',
    'related_collection',
    'evil',
    '__proto__',
    'constructor',
  ];
  const inner = [
    'is_nullable',
    'max_length',
    'numeric_precision',
    'numeric_scale',
    'comment',
    'is_unique',
    'has_auto_increment',
  ];
  const metas = [
    'special',
    'sort',
    'width',
    'hidden',
    'note',
    'translations',
    'options',
    'id',
    'group',
    'one_field',
    'evil',
  ];
  const attempts: [string, string, unknown][] = [];
  for (const value of values) {
    for (const path of ['/fields/articles', '/collections', '/relations']) {
      attempts.push(['POST', path, value]);
      for (const property of properties) {
        const body = JSON.parse(
          `{"field": "x", "type": "nonsense", "collection": "nothing/", ${JSON.stringify(property)}: ${JSON.stringify(value)}}`,
        );
        attempts.push(['POST', path, body]);
      }
    }
    for (const name of inner)
      attempts.push(['POST', '/fields/nothing', { field: 'x', type: 'decimal', schema: { [name]: value } }]);
    for (const name of metas) {
      attempts.push(['PATCH', '/fields/nothing/x', { meta: { [name]: value } }]);
      attempts.push(['PATCH', '/relations/nothing/x', { meta: { [name]: value } }]);
      attempts.push(['PATCH', '/collections/nothing', { meta: { [name]: value } }]);
    }
    attempts.push(['PATCH', '/fields/articles', value], ['PATCH', '/collections', value]);
  }
  for (let position = 0; position < attempts.length; position += 10) {
    const together = attempts.slice(position, position + 10);
    const answers = await Promise.all(together.map(([method, path, body]) => send(method, path, body)));
    for (const [number, { status, text }] of answers.entries()) {
      if (status === 400 || status === 403) continue;
      // An empty list of changes changes nothing.
      if (status === 200 && text === '{"data":[]}') continue;
      t.fail(`${JSON.stringify(together[number]).slice(0, 200)}: ${status} ${text.slice(0, 200)}`);
    }
  }
  t.ok(attempts.length > 500);
  t.equal(await everything(), before);
  const deep = `${'{"a":'.repeat(5_000)}1${'}'.repeat(5_000)}`;
  const nested = await request(service, 'PATCH', '/fields/articles/title', {
    headers: { 'content-type': 'application/json' },
    body: `{"meta":{"options":${deep}}}`,
  });
  t.ok(nested.status === 200 || nested.status === 400, `${nested.status}`);
  t.equal((await request(service, 'POST', '/fields/articles', { body: 'field=x' })).status, 415);
});

t.test('names that only look strange', async (t) => {
  const texts = [
    "it's; fine",
    'a "b" c',
    'user',
    'select',
    'Select an option',
    'draft',
    'en-US',
    '-- none',
    'N/A',
    '100%',
    'back\\slash',
    "quote'",
    'ünïcode ✓',
    '$1',
    '',
  ];
  for (const [number, default_value] of texts.entries()) {
    const field = `strange_${number}`;
    const made = await send('POST', '/fields/articles', { field, type: 'string', schema: { default_value } });
    t.match(made.json, { data: { schema: { default_value } } }, default_value);
  }
  const { json } = await send('POST', '/items/articles', { title: 'x' });
  const { data } = json as { data: Record<string, unknown> };
  for (const [number, text] of texts.entries()) t.equal(data[`strange_${number}`], text);
  for (const name of ['select', 'order', 'Mixed_Case', 'a-b', '_hidden', 'constructor', 'toString', 'x'.repeat(63)]) {
    t.equal(
      (
        await send('POST', '/fields/articles', {
          field: name,
          type: 'string',
          schema: { is_unique: true, is_indexed: true },
        })
      ).status,
      200,
      name,
    );
    t.equal((await send('POST', '/collections', { collection: name, schema: {} })).status, 200, name);
    t.match((await send('POST', `/items/${name}`, {})).json, { data: { id: 1 } }, name);
  }
  const safe = [
    'CURRENT_TIMESTAMP',
    'now()',
    "now() + interval '1 day'",
    "date_trunc('day', now())",
    'current_timestamp(3)',
  ];
  for (const [number, default_value] of safe.entries()) {
    const made = await send('POST', '/fields/articles', {
      field: `moment_${number}`,
      type: 'timestamp',
      schema: { default_value },
    });
    t.equal(made.status, 200, `${default_value}: ${made.text.slice(0, 200)}`);
  }
});
