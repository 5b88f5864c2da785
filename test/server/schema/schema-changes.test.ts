/**
 * Fields, collections and relations over HTTP: what a client asks for is what the catalog then says, what the catalog says
 * is what a client reads, and everything that is said about a thing leaves with it.
 */
import t, { type Test } from 'tap';
import {
  type Answer,
  connectSql,
  createLibrary,
  request,
  startDatabase,
  startTestService,
  waitFor,
} from '../../support/service.js';

t.setTimeout(110_000);

const server = await startDatabase();
const databaseUrl = await createLibrary(server, 'structure');
const sql = connectSql(databaseUrl);
t.teardown(() => sql.end());
const service = await startTestService({ databaseUrl });

interface FieldObject {
  readonly collection: string;
  readonly field: string;
  readonly type: string;
  readonly meta: Record<string, unknown> | null;
  readonly schema: Record<string, unknown> | null;
}

async function send(method: string, path: string, body?: unknown): Promise<Answer> {
  const headers = { 'content-type': 'application/json' };
  return request(service, method, path, body === undefined ? {} : { headers, body: JSON.stringify(body) });
}

/** The data of an answer that has to be 200. */
async function ask<Data>(method: string, path: string, body?: unknown): Promise<Data> {
  const answer = await send(method, path, body);
  if (answer.status !== 200) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
  return (answer.json as { data: Data }).data;
}

async function refusal(method: string, path: string, body?: unknown): Promise<string> {
  const answer = await send(method, path, body);
  const { errors } = answer.json as { errors: [{ extensions: { code: string; type?: string } }] };
  const { code, type } = errors[0].extensions;
  return `${answer.status} ${code}${type ? ` ${type}` : ''}`;
}

async function version(): Promise<unknown> {
  const [row] = await sql`select version from service_schema`;
  return row?.['version'];
}

const SCHEMA_PROPERTIES = [
  'name',
  'table',
  'data_type',
  'default_value',
  'max_length',
  'numeric_precision',
  'numeric_scale',
  'is_generated',
  'generation_expression',
  'is_nullable',
  'is_unique',
  'is_indexed',
  'is_primary_key',
  'primary_key',
  'has_auto_increment',
  'foreign_key_column',
  'foreign_key_table',
  'choices',
  'comment',
];

/** What information_schema and pg_catalog say of a table, in the words of SPEC 2.4; defaults as the expressions they are. */
async function catalog(table: string): Promise<Record<string, Record<string, unknown>>> {
  const rows = await sql<Record<string, unknown>[]>`
    select c.column_name as name, c.table_name as "table", t.type as data_type, c.column_default as default_value,
      c.character_maximum_length as max_length,
      case when c.domain_name is null then c.numeric_precision end as numeric_precision,
      case when c.data_type like '%int%' or c.data_type = 'numeric' then c.numeric_scale end as numeric_scale,
      c.is_generated = 'ALWAYS' as is_generated, c.generation_expression, c.is_nullable = 'YES' as is_nullable,
      exists (select from pg_index i where i.indrelid = a.attrelid and i.indisunique and i.indnkeyatts = 1
        and i.indkey[0] = a.attnum and i.indpred is null) as is_unique,
      exists (select from pg_index i where i.indrelid = a.attrelid and not i.indisunique and i.indnkeyatts = 1
        and i.indkey[0] = a.attnum and i.indpred is null) as is_indexed,
      exists (select from pg_constraint k where k.conrelid = a.attrelid and k.contype = 'p' and k.conkey = array[a.attnum]) as is_primary_key,
      (select json_agg(f.attname order by p.position) from pg_constraint k cross join unnest(k.conkey) with ordinality p (number, position)
        join pg_attribute f on f.attrelid = k.conrelid and f.attnum = p.number
        where k.conrelid = a.attrelid and k.contype = 'p' and a.attnum = any (k.conkey)) as primary_key,
      c.is_identity = 'YES' or coalesce(c.column_default like 'nextval(%', false) as has_auto_increment,
      (select f.attname from pg_constraint k join pg_attribute f on f.attrelid = k.confrelid and f.attnum = k.confkey[1]
        where k.conrelid = a.attrelid and k.contype = 'f' and k.conkey = array[a.attnum]) as foreign_key_column,
      (select k.confrelid::regclass::text from pg_constraint k
        where k.conrelid = a.attrelid and k.contype = 'f' and k.conkey = array[a.attnum]) as foreign_key_table,
      (select json_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = a.atttypid) as choices,
      col_description(a.attrelid, a.attnum) as comment
    from information_schema.columns c
    join pg_attribute a on a.attrelid = ${table}::regclass and a.attname = c.column_name
    cross join lateral (select format_type(a.atttypid, null) as type) t
    where c.table_schema = 'public' and c.table_name = ${table}
    order by c.ordinal_position`;
  return Object.fromEntries(rows.map((row) => [String(row['name']), { ...row }]));
}

/** All but the default, which the API gives as a value. */
async function compareWithCatalog(t: Test, table: string): Promise<Map<string, FieldObject>> {
  const fields = await ask<FieldObject[]>('GET', `/fields/${table}`);
  const columns = await catalog(table);
  const real = fields.filter(({ schema }) => schema !== null);
  t.strictSame(
    real.map(({ field }) => field),
    Object.keys(columns),
    `the columns of ${table}`,
  );
  for (const field of real) {
    const { default_value: _, choices: labels, ...expected } = columns[field.field] ?? {};
    const { default_value: __, choices, ...found } = field.schema ?? {};
    t.strictSame(found, expected, `${table}.${field.field}`);
    if (labels) t.strictSame(choices, labels, `the labels of ${table}.${field.field}`);
    t.strictSame(Object.keys(field.schema ?? {}).sort(), [...SCHEMA_PROPERTIES].sort());
    t.strictSame(Object.keys(field).sort(), ['collection', 'field', 'meta', 'schema', 'type']);
    t.equal(field.collection, table);
  }
  return new Map(fields.map((field) => [field.field, field]));
}

t.test('a table with every type, default, constraint and comment that nobody told the service about', async (t) => {
  await sql.unsafe(`
    create domain short_text as varchar(12);
    create type mood as enum ('good', 'bad');
    create table strange (
      "Id" bigint generated always as identity primary key,
      small smallint default 3, whole integer not null default -7, big bigint default 9007199254740993, counter serial,
      exact numeric(12, 3) default 1.50, "any" numeric, single real default 0.5, double double precision default 1e10,
      short varchar(20) default 'it''s', wide varchar, fixed char(4) default 'ab', long text default 'x' not null,
      yes boolean default true, day date default '2024-02-29', hour time default '12:30:00', hour_zone timetz,
      local timestamp default current_timestamp, moment timestamptz default now(),
      doc json default '{"a": [1, null]}', docb jsonb default '[]', key uuid default gen_random_uuid(),
      raw bytea default '\\x00ff', list integer[] default '{1,2}', feeling mood default 'good', span interval,
      net inet, limited short_text, computed text generated always as (lower(long)) stored,
      code varchar(8) constraint strange_code_unique unique, lookup integer, lone integer unique, owner integer references authors (id),
      pair_a integer, pair_b integer, unique (pair_a, pair_b)
    );
    create index on strange (lookup);
    create index on strange (pair_a) where pair_a > 0;
    comment on table strange is 'Of every kind';
    comment on column strange.whole is 'A "whole" number; it''s -- fine';`);
  const path = '/fields/strange';
  await waitFor(async () => (await send('GET', path)).status === 200, 5_000);
  const fields = await compareWithCatalog(t, 'strange');
  const defaults = [...fields].map(([name, { schema }]) => [name, schema?.['default_value']]);
  t.strictSame(Object.fromEntries(defaults.filter(([, value]) => value !== null)), {
    small: 3,
    whole: -7,
    big: '9007199254740993',
    counter: "nextval('strange_counter_seq'::regclass)",
    exact: 1.5,
    single: 0.5,
    double: 10000000000,
    short: "it's",
    fixed: 'ab',
    long: 'x',
    yes: true,
    day: '2024-02-29',
    hour: '12:30:00',
    local: 'CURRENT_TIMESTAMP',
    moment: 'now()',
    doc: { a: [1, null] },
    docb: [],
    key: 'gen_random_uuid()',
    raw: '\\x00ff',
    list: '{1,2}',
    feeling: 'good',
  });
  t.ok([...fields.values()].every(({ meta }) => meta === null));
  t.strictSame(await ask('GET', '/collections/strange'), {
    collection: 'strange',
    meta: null,
    schema: { schema: 'public', name: 'strange', kind: 'table', comment: 'Of every kind', primary_key: ['Id'] },
  });
  const all = await ask<FieldObject[]>('GET', '/fields');
  for (const { field } of fields.values())
    t.ok(all.some((each) => each.collection === 'strange' && each.field === field));
  await compareWithCatalog(t, 'service_users');
});

t.test('every type with every option, created and read back', async (t) => {
  await ask('POST', '/collections', { collection: 'made', schema: { comment: 'Made here' }, meta: { icon: 'box' } });
  const definitions: [string, string, Record<string, unknown>, unknown][] = [
    ['f_string', 'string', { max_length: 40, default_value: "it's; fine", is_nullable: false }, 'character varying'],
    ['f_text', 'text', { default_value: 'Some words.', comment: 'A "comment"; it\'s -- fine' }, 'text'],
    ['f_boolean', 'boolean', { default_value: false, is_nullable: false }, 'boolean'],
    ['f_integer', 'integer', { default_value: 5, is_indexed: true }, 'integer'],
    ['f_counter', 'integer', { has_auto_increment: true }, 'integer'],
    ['f_big_counter', 'bigInteger', { has_auto_increment: true, is_unique: true }, 'bigint'],
    ['f_big', 'bigInteger', { default_value: '9007199254740993', is_indexed: true }, 'bigint'],
    ['f_float', 'float', { default_value: 1.25 }, 'double precision'],
    ['f_decimal', 'decimal', { numeric_precision: 20, numeric_scale: 4, default_value: '12.5000' }, 'numeric'],
    ['f_usual', 'decimal', {}, 'numeric'],
    ['f_date', 'date', { default_value: '2024-02-29' }, 'date'],
    ['f_datetime', 'dateTime', { default_value: 'CURRENT_TIMESTAMP(3)' }, 'timestamp without time zone'],
    ['f_time', 'time', { default_value: '12:30:00' }, 'time without time zone'],
    ['f_timestamp', 'timestamp', { default_value: 'now()', is_nullable: false }, 'timestamp with time zone'],
    ['f_json', 'json', { default_value: { a: ["it's", null] } }, 'json'],
    ['f_csv', 'csv', { default_value: ['a', 'b'] }, 'text'],
    ['f_uuid', 'uuid', { default_value: 'gen_random_uuid()', is_unique: true }, 'uuid'],
    ['f_hash', 'hash', {}, 'character varying'],
    ['f_binary', 'binary', { default_value: 'AP8=' }, 'bytea'],
    ['f_generated', 'text', { generation_expression: "lower(f_text) || '!'", is_indexed: true }, 'text'],
  ];
  for (const [field, type, schema, dataType] of definitions) {
    const made = await ask<FieldObject>('POST', '/fields/made', { field, type, schema, meta: { note: field } });
    t.match(made, { collection: 'made', field, type, meta: { field, note: field }, schema: { data_type: dataType } });
    const { default_value: wanted, generation_expression: _, ...others } = schema;
    t.match(made.schema, others, field);
    const special = { csv: 'csv', hash: 'hash' }[type] ?? null;
    t.equal(made.meta?.['special'], special);
    const expected: Record<string, unknown> = { f_decimal: 12.5, f_csv: 'a,b', f_binary: '\\x00ff' };
    if (wanted !== undefined)
      t.strictSame(made.schema?.['default_value'], expected[field] ?? wanted, `default of ${field}`);
    t.strictSame(await ask('GET', `/fields/made/${field}`), made, 'the same when read again');
  }
  const fields = await compareWithCatalog(t, 'made');
  t.equal(fields.get('f_decimal')?.schema?.['numeric_scale'], 4);
  t.equal(fields.get('f_usual')?.schema?.['numeric_precision'], 10);
  t.match(fields.get('f_generated')?.schema, {
    is_generated: true,
    generation_expression: "(lower(f_text) || '!'::text)",
  });
  t.match(fields.get('id'), { meta: { sort: 1, hidden: true }, schema: { has_auto_increment: true } });
  t.equal(fields.get('f_generated')?.meta?.['sort'], definitions.length + 1);
  const item = await ask<Record<string, unknown>>('POST', '/items/made', {});
  t.match(item, { id: 1, f_string: "it's; fine", f_text: 'Some words.', f_boolean: false, f_integer: 5, f_counter: 1 });
  t.match(item, {
    f_decimal: '12.5000',
    f_json: { a: ["it's", null] },
    f_csv: 'a,b',
    f_generated: 'some words.!',
  });
  t.equal(await refusal('POST', '/fields/made', { field: 'place', type: 'geometry.Point' }), '400 INVALID_PAYLOAD');
});

t.test('an alias field makes no column', async (t) => {
  const before = await catalog('made');
  for (const type of ['alias', 'o2m', 'm2m', 'm2a', 'files', 'translations']) {
    const made = await ask<FieldObject>('POST', '/fields/made', { field: `alias_${type}`, type, schema: null });
    t.match(made, { type: 'alias', schema: null, meta: { special: type === 'alias' ? null : type } });
  }
  t.strictSame(await catalog('made'), before);
  t.equal(await refusal('PATCH', '/fields/made/alias_o2m', { type: 'string' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('PATCH', '/fields/made/f_text', { type: 'alias' }), '400 INVALID_PAYLOAD');
  t.equal((await send('DELETE', '/fields/made/alias_o2m')).status, 204);
  t.equal(await refusal('GET', '/fields/made/alias_o2m'), '403 FORBIDDEN');
});

t.test('all widths, and metadata of any kind', async (t) => {
  for (const width of ['half', 'half-left', 'half-right', 'half-space', 'full', 'fill']) {
    const made = await ask<FieldObject>('PATCH', '/fields/made/f_text', { meta: { width } });
    t.equal(made.meta?.['width'], width);
  }
  t.equal(await refusal('PATCH', '/fields/made/f_text', { meta: { width: 'quarter' } }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('PATCH', '/fields/made/f_text', { meta: { wdith: 'full' } }), '400 INVALID_PAYLOAD');
  const encrypted = { meta: { special: ['unheard-of', 'encrypt'] } };
  t.equal(await refusal('PATCH', '/fields/made/f_text', encrypted), '400 INVALID_PAYLOAD');
  const secret = { field: 'f_secret', type: 'text', ...encrypted };
  t.equal(await refusal('POST', '/fields/made', secret), '400 INVALID_PAYLOAD');
  const hinted = await ask<FieldObject>('PATCH', '/fields/made/f_text', { meta: { special: ['unheard-of'] } });
  t.equal(hinted.meta?.['special'], 'unheard-of');
  const meta = {
    special: 'conceal,cast-json',
    interface: 'input-code',
    options: { language: 'json', nested: [1, { two: null }] },
    display: 'raw',
    display_options: 'as written',
    readonly: true,
    required: true,
    hidden: true,
    sort: 77,
    translations: [{ language: 'de-DE', translation: 'Ünïcode ✓' }],
    note: 'A "note"; it\'s fine',
    group: null,
    conditions: [{ rule: { a: { _eq: 1 } } }],
    validation: { f_text: { _nnull: true } },
    validation_message: 'No',
    searchable: false,
  };
  const changed = await ask<FieldObject>('PATCH', '/fields/made/f_text', { meta });
  t.match(changed.meta, { ...meta, width: 'fill', field: 'f_text', collection: 'made' });
  t.same(Object.keys(changed.meta ?? {}).length, 20);
  const back = await ask<FieldObject>('PATCH', '/fields/made/f_text', {
    ...changed,
    meta: { ...changed.meta, special: [] },
  });
  t.equal(back.meta?.['special'], null, 'a whole object can be sent back');
  t.strictSame(back.schema, changed.schema);
});

t.test('many fields change together or not at all', async (t) => {
  const changed = await ask<FieldObject[]>('PATCH', '/fields/made', [
    { field: 'f_integer', type: 'bigInteger', meta: { sort: 3 } },
    { field: 'f_date', schema: { is_nullable: false } },
  ]);
  t.match(changed, [
    { field: 'f_integer', type: 'bigInteger', meta: { sort: 3 }, schema: { default_value: 5, is_indexed: true } },
    { field: 'f_date', schema: { is_nullable: false } },
  ]);
  const before = await catalog('made');
  const bad = [
    { field: 'f_date', schema: { is_nullable: true } },
    { field: 'nothing', meta: { note: 'x' } },
  ];
  t.equal(await refusal('PATCH', '/fields/made', bad), '403 FORBIDDEN');
  t.equal(await refusal('PATCH', '/fields/made', [bad[0], bad[0]]), '400 INVALID_PAYLOAD');
  t.strictSame(await catalog('made'), before);
});

t.test('options of a column are changed one by one, and what already exists asks for nothing', async (t) => {
  const change = async (schema: Record<string, unknown>): Promise<FieldObject> =>
    ask<FieldObject>('PATCH', '/fields/made/f_string', { schema });
  t.match(await change({ is_unique: true, is_indexed: true }), { schema: { is_unique: true, is_indexed: true } });
  t.match(await change({ is_unique: false }), { schema: { is_unique: false, is_indexed: true } });
  t.match(await change({ is_indexed: false, is_nullable: true }), { schema: { is_indexed: false, is_nullable: true } });
  t.match(await change({ default_value: null }), { schema: { default_value: null, max_length: 40 } });
  t.match(await change({ max_length: 60, comment: 'new' }), { schema: { max_length: 60, comment: 'new' } });
  t.match(await change({ comment: null }), { schema: { comment: null } });
  t.match(await change({ default_value: "'quoted (text)'" }), { schema: { default_value: 'quoted (text)' } });
  const decimal = { schema: { numeric_precision: 30 } };
  t.match(await ask('PATCH', '/fields/made/f_decimal', decimal), {
    schema: { numeric_precision: 30, numeric_scale: 4 },
  });
  const plain = { schema: { has_auto_increment: false } };
  t.match(await ask('PATCH', '/fields/made/f_counter', plain), {
    schema: { has_auto_increment: false, default_value: null },
  });
  const counting = { schema: { has_auto_increment: true } };
  await ask('POST', '/fields/made', { field: 'f_serial', type: 'integer', ...counting });
  t.match(
    await ask('PATCH', '/fields/made/f_serial', { type: 'bigInteger', ...plain }),
    { type: 'bigInteger', schema: { has_auto_increment: false } },
    'a sequence that is dropped is not widened',
  );
  await send('DELETE', '/fields/made/f_serial');
  t.match(await ask('PATCH', '/fields/made/f_counter', counting), {
    schema: { has_auto_increment: true, is_nullable: false },
  });
  t.match(
    await ask('POST', '/items/made', { f_date: '2024-01-01' }),
    { f_counter: 2 },
    'it goes on behind what is there',
  );
  const frozen = { schema: { is_generated: false } };
  t.match(await ask('PATCH', '/fields/made/f_generated', frozen), {
    schema: { is_generated: false, generation_expression: null },
  });
  const before = await version();
  for (const field of await ask<FieldObject[]>('GET', '/fields/made')) {
    const { meta: _, ...rest } = field;
    if (field.schema)
      t.strictSame((await ask<FieldObject>('PATCH', `/fields/made/${field.field}`, rest)).schema, field.schema);
  }
  t.equal(await version(), before, 'nothing was done');
  await compareWithCatalog(t, 'made');
});

t.test('a change that would break something is refused, and nothing happens', async (t) => {
  await ask('POST', '/items/made', [
    { f_integer: 1, f_string: 'same' },
    { f_integer: null, f_string: 'same' },
  ]);
  const before = await catalog('made');
  const path = '/fields/made/f_string';
  t.equal(await refusal('PATCH', path, { schema: { is_unique: true } }), '400 FAILED_VALIDATION unique');
  t.equal(
    await refusal('PATCH', '/fields/made/f_integer', { schema: { is_nullable: false } }),
    '400 FAILED_VALIDATION nnull',
  );
  t.equal(await refusal('PATCH', path, { schema: { max_length: 3 } }), '400 FAILED_VALIDATION too_long');
  t.equal(await refusal('PATCH', path, { type: 'integer' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('PATCH', path, { field: 'other' }), '400 INVALID_PAYLOAD', 'a rename');
  t.equal(await refusal('PATCH', '/fields/made/nothing', { type: 'text' }), '403 FORBIDDEN');
  t.equal(await refusal('PATCH', '/fields/made/id', { schema: { is_nullable: true } }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('PATCH', '/fields/made/id', { schema: { is_primary_key: false } }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('DELETE', '/fields/made/id'), '400 INVALID_PAYLOAD');
  t.equal(await refusal('DELETE', '/fields/made/nothing'), '403 FORBIDDEN');
  t.equal(await refusal('POST', '/fields/made', { field: 'f_text', type: 'text' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/fields/made', { field: 'ctid', type: 'text' }), '400 INVALID_PAYLOAD');
  t.equal(
    await refusal('POST', '/fields/made', { field: 'late', type: 'integer', schema: { is_nullable: false } }),
    '400 FAILED_VALIDATION nnull',
  );
  t.equal(
    await refusal('POST', '/fields/made', { field: 'pk', type: 'integer', schema: { is_primary_key: true } }),
    '400 INVALID_PAYLOAD',
  );
  t.equal(
    await refusal('POST', '/fields/made', { field: 'bad', type: 'integer', schema: { default_value: 'now()' } }),
    '400 INVALID_PAYLOAD',
  );
  t.equal(await refusal('POST', '/fields/made', { field: 'bad', type: 'unknown' }), '400 INVALID_PAYLOAD');
  t.equal(await refusal('POST', '/fields/made'), '400 INVALID_PAYLOAD');
  t.equal((await request(service, 'GET', '/fields/made', { token: null })).status, 403);
  t.equal((await request(service, 'DELETE', '/fields/made/f_text', { token: null })).status, 403);
  t.strictSame(await catalog('made'), before);
});

/** A value of the first type becomes the value of the second. */
const CONVERSIONS: readonly [from: string, value: unknown, to: string, result: unknown][] = [
  ['string', '12', 'integer', 12],
  ['integer', 12, 'string', '12'],
  ['integer', 12, 'bigInteger', '12'],
  ['bigInteger', '12', 'integer', 12],
  ['integer', 12, 'decimal', '12.00000'],
  ['decimal', '1.5', 'float', 1.5],
  ['float', 1.5, 'text', '1.5'],
  ['integer', 2, 'boolean', true],
  ['boolean', true, 'integer', 1],
  ['boolean', true, 'bigInteger', '1'],
  ['boolean', false, 'string', 'false'],
  ['string', 'true', 'boolean', true],
  ['date', '2024-02-29', 'timestamp', '2024-02-29T00:00:00.000Z'],
  ['timestamp', '2024-02-29T10:00:00Z', 'dateTime', '2024-02-29T10:00:00'],
  ['dateTime', '2024-02-29T10:00:00', 'date', '2024-02-29'],
  ['dateTime', '2024-02-29T10:00:00', 'time', '10:00:00'],
  ['string', '2024-02-29', 'date', '2024-02-29'],
  ['text', '{"a":1}', 'json', { a: 1 }],
  ['json', { a: 1 }, 'text', '{"a":1}'],
  ['csv', 'a,b', 'text', 'a,b'],
  ['text', 'a,b', 'csv', 'a,b'],
  ['uuid', 'b7f3d1f0-0000-4000-8000-000000000001', 'string', 'b7f3d1f0-0000-4000-8000-000000000001'],
  ['string', 'b7f3d1f0-0000-4000-8000-000000000001', 'uuid', 'b7f3d1f0-0000-4000-8000-000000000001'],
];

t.test('a new type converts the values', async (t) => {
  await ask('POST', '/collections', { collection: 'turned', schema: {} });
  for (const [from, value, to, result] of CONVERSIONS) {
    await ask('POST', '/fields/turned', { field: 'f', type: from });
    const { id } = await ask<{ id: number }>('POST', '/items/turned', { f: value });
    const changed = await ask<FieldObject>('PATCH', '/fields/turned/f', { type: to });
    t.equal(changed.type, to, `${from} to ${to}`);
    t.strictSame(await ask('GET', `/items/turned/${id}?fields=f`), { f: result }, `${from} to ${to}`);
    await send('DELETE', '/fields/turned/f');
  }
});

t.test('a csv field is a list only with the flag cast-csv, and else the text of its column', async (t) => {
  await ask('POST', '/collections', { collection: 'listed', schema: {} });
  const typeOf = async (field: string): Promise<string> =>
    (await ask<FieldObject>('GET', `/fields/listed/${field}`)).type;
  const made = await ask<FieldObject>('POST', '/fields/listed', { field: 'plain', type: 'csv' });
  t.match(made, { type: 'csv', meta: { special: 'csv' }, schema: { data_type: 'text' } });
  await ask('POST', '/fields/listed', { field: 'words', type: 'csv', meta: { special: ['cast-csv'] } });
  t.strictSame(await ask('POST', '/items/listed', { plain: ' a,,b', words: ['a', 'b'] }), {
    id: 1,
    plain: ' a,,b',
    words: ['a', 'b'],
  });
  t.match(await refusal('POST', '/items/listed', { plain: ['a', 'b'] }), /^400 INVALID_PAYLOAD/);
  t.match(await ask('GET', '/items/listed?search=,,b'), [{ id: 1 }], 'and is searched as a text');
  const { text: sdl } = await request(service, 'GET', '/server/specs/graphql/items');
  t.match(/type listed \{[^}]*\}/.exec(sdl)?.[0], /plain: String\n[^}]*words: \[String\]/);
  await ask('PATCH', '/fields/listed/plain', { type: 'csv', meta: { special: ['cast-csv'] } });
  t.strictSame(await ask('GET', '/items/listed/1?fields=plain'), { plain: [' a', '', 'b'] });
  t.equal(await typeOf('plain'), 'csv');
  await ask('PATCH', '/fields/listed/plain', { meta: { note: 'x' } });
  t.strictSame(await ask('GET', '/items/listed/1?fields=plain'), { plain: [' a', '', 'b'] }, 'other changes keep it');
  await ask('PATCH', '/fields/listed/plain', { type: 'text' });
  t.equal(await typeOf('plain'), 'text');
  const again = await ask<FieldObject>('PATCH', '/fields/listed/plain', { type: 'csv' });
  t.match(again, { type: 'csv', meta: { special: 'csv' } });
  await ask('PATCH', '/fields/listed/plain', { type: 'text' });
  t.match(await ask('GET', '/fields/listed/plain'), { type: 'text', meta: { special: null } });
});

t.test('a new type that does not suit the values is refused; an empty column takes any', async (t) => {
  const types = ['string', 'boolean', 'decimal', 'timestamp', 'json', 'uuid'];
  const misfits: readonly [string, unknown, string][] = [
    ['string', 'words', 'integer'],
    ['string', 'words', 'date'],
    ['text', 'words', 'json'],
    ['text', 'words', 'uuid'],
    ['integer', 5, 'date'],
    ['integer', 5, 'uuid'],
    ['timestamp', '2024-02-29T10:00:00.000Z', 'integer'],
    ['bigInteger', '9007199254740993', 'integer'],
  ];
  for (const [from, value, to] of misfits) {
    await ask('POST', '/fields/turned', { field: 'f', type: from });
    const { id } = await ask<{ id: number }>('POST', '/items/turned', { f: value });
    t.match(await refusal('PATCH', '/fields/turned/f', { type: to }), /^400 /, `${from} to ${to}`);
    t.strictSame(await ask('GET', `/items/turned/${id}?fields=f`), { f: value }, 'as before');
    await send('DELETE', '/fields/turned/f');
  }
  await sql`delete from turned`;
  for (const from of types) {
    await ask('POST', '/fields/turned', { field: 'f', type: from });
    for (const to of types) {
      const made = await ask<FieldObject>('PATCH', '/fields/turned/f', { type: to });
      t.equal(made.type, to, `${from} to ${to}`);
    }
    await send('DELETE', '/fields/turned/f');
  }
});

t.test('defaults change with the type', async (t) => {
  const turn = async (from: string, initial: unknown, to: string): Promise<unknown> => {
    await ask('POST', '/fields/turned', { field: 'f', type: from, schema: { default_value: initial } });
    const { schema } = await ask<FieldObject>('PATCH', '/fields/turned/f', { type: to });
    await send('DELETE', '/fields/turned/f');
    return schema?.['default_value'];
  };
  t.equal(await turn('integer', 5, 'string'), '5');
  t.equal(await turn('string', '5', 'integer'), 5);
  t.equal(await turn('boolean', true, 'integer'), 1);
  t.equal(await turn('integer', 0, 'boolean'), false);
  t.strictSame(await turn('json', { a: 1 }, 'text'), '{"a":1}');
  t.match(await turn('timestamp', 'now()', 'date'), /now\(\)|CURRENT/);
});
