/**
 * The model of a database that was made for other purposes: what is served and what is refused, every property of its
 * columns, every kind of relation, with metadata that helps and metadata that is wrong. And how changes are announced.
 */
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import t from 'tap';
import { features } from '../../../src/app/features.js';
import { packagePath } from '../../../src/base/package-files.js';
import type { CatalogDocument } from '../../../src/compiler/model/catalog-document.js';
import type { SchemaNames } from '../../../src/compiler/model/collection-names.js';
import { choicesOf, defaultValueOf, fieldTypeOf } from '../../../src/compiler/model/column-types.js';
import { buildModel } from '../../../src/compiler/model/introspect.js';
import { requireSingleKey } from '../../../src/compiler/model/item-key.js';
import {
  type Collection,
  collectionOf,
  type Field,
  type Model,
  type Relation,
} from '../../../src/compiler/model/model.js';
import { startEmbedded } from '../../../src/features/embedded/cluster.js';
import { openTables } from '../../../src/server/feature/tables.js';
import { systemTables } from '../../../src/server/postgres/catalog/system-tables.js';

const directory = await mkdtemp(join(tmpdir(), 'lateral-mirror-'));
await chmod(directory, 0o755);
const server = await startEmbedded({ directory, settings: { fsync: 'off' } });
const sql = postgres(server.url, { max: 4, onnotice: () => {} });
const introspect = await readFile(packagePath('sql', 'server', 'introspect.sql'), 'utf8');

t.teardown(async () => {
  await sql.end();
  await server.stop();
  await rm(directory, { recursive: true, force: true });
});

await createTables('public');
await sql.unsafe(await readFile(packagePath('test', 'schemas', 'foreign.sql'), 'utf8'));

t.test('serves what has one key and says why not', async (t) => {
  await sql`
    insert into service_collections (collection, primary_key, singleton, sort_field, accountability) values
      ('declared_view', 'item', false, null, 'all'),
      ('totals', 'label', false, null, 'activity'),
      ('misdeclared_view', 'no such column', false, null, 'all'),
      ('key_serial', 'label', false, 'label', null),
      ('key_text', null, true, 'nowhere', 'all'),
      ('gone', 'id', true, 'id', 'all')`;
  const model = await load();
  t.strictSame(Object.fromEntries(model.refused), {
    misdeclared_view: 'is a view whose declared key "no such column" is not one of its columns',
    no_columns: 'has no columns',
    reserved_column: 'has a column whose name starts with %',
  });
  t.strictSame(
    [...model.collections.values()].filter(({ system }) => !system).map(({ name, kind }) => `${name}: ${kind}`),
    [
      'Mixed Case: table',
      '__proto__: table',
      'a.b/c "d" %e: table',
      'any_links: table',
      'beside_key: table',
      'declared_view: view',
      'events: partitioned',
      'everything: table',
      'key_bigserial: table',
      'key_composite: table',
      'key_identity_always: table',
      'key_identity_default: table',
      'key_none: table',
      'key_serial: table',
      'key_text: table',
      'key_uuid: table',
      'measurement_notes: table',
      'measurements: partitioned',
      'messages: table',
      'n63_56789012345678901234567890123456789012345678901234567890123: table',
      'people: table',
      'plain_view: view',
      'pointer_to_refused: table',
      'profiles: table',
      'refused_target: table',
      'select: table',
      'totals: view',
    ],
  );
  t.strictSame(
    [...model.collections.values()].filter(({ system }) => system).map(({ name }) => name),
    // All of them but those that hold the state of the installation itself.
    [...systemTables()].filter((name) => name !== 'service_migrations' && name !== 'service_schema').sort(),
  );
  const view = collectionOf(model, 'declared_view');
  t.equal(requireSingleKey(view).name, 'item');
  t.equal(requireSingleKey(view).column?.is_primary_key, true);
  t.equal(requireSingleKey(collectionOf(model, 'totals')).column?.is_unique, true);
  t.equal(collectionOf(model, 'totals').accountability, 'activity');
  const serial = collectionOf(model, 'key_serial');
  t.equal(requireSingleKey(serial).name, 'id', 'a primary key comes before a declared one');
  t.equal(serial.sortField, 'label');
  t.equal(serial.accountability, null);
  const text = collectionOf(model, 'key_text');
  t.equal(text.singleton, true);
  t.equal(text.sortField, null, 'a sort field that does not exist is none');
  t.equal(collectionOf(model, 'people').accountability, 'all');
  t.equal(collectionOf(model, 'people').meta, null);
  t.equal(collectionOf(model, 'everything').comment, 'One column of each kind');
  t.equal(collectionOf(model, 'service_settings').singleton, true);
});

t.test('a type of the service for every column', async (t) => {
  const everything = collectionOf(await load(), 'everything');
  const types: Record<string, string> = {
    id: 'integer integer',
    small_number: 'integer smallint',
    big_number: 'bigInteger bigint',
    exact: 'decimal numeric',
    exact_rounded: 'decimal numeric',
    exact_any: 'decimal numeric',
    single_float: 'float real',
    double_float: 'float double precision',
    flag: 'boolean boolean',
    fixed: 'string character',
    limited: 'string character varying',
    unlimited: 'string character varying',
    prose: 'text text',
    token: 'uuid uuid',
    day: 'date date',
    clock: 'time time without time zone',
    clock_zone: 'time time with time zone',
    wall: 'dateTime timestamp without time zone',
    instant: 'timestamp timestamp with time zone',
    document: 'json json',
    binary_document: 'json jsonb',
    bytes: 'binary bytea',
    feeling: 'string mood',
    share: 'integer percentage',
    country: 'string country_code',
    price: 'decimal money_amount',
    labels: 'unknown text[]',
    tagged: 'unknown tag_list',
    grid: 'unknown integer[]',
    feelings: 'unknown mood[]',
    span: 'unknown int4range',
    period: 'unknown tstzrange',
    address: 'unknown inet',
    network: 'unknown cidr',
    duration: 'string interval',
    cash: 'unknown money',
    spot: 'unknown point',
    bits: 'unknown bit',
    words: 'unknown tsvector',
    markup: 'unknown xml',
    joined: 'text text',
    counted: 'integer integer',
    composed: 'text text',
    unique_number: 'integer integer',
    indexed_number: 'integer integer',
    paired_left: 'integer integer',
    paired_right: 'integer integer',
  };
  const found = [...everything.fields.values()].map(({ name, type, column }) => [name, `${type} ${column?.data_type}`]);
  t.strictSame(found, Object.entries(types), 'in the order of the columns');
});

t.test('the values that a check lists', async (t) => {
  for (const [check, choices] of [
    [`status in ('draft', 'it''s', '[x], y')`, ['draft', `it's`, '[x], y']],
    ['count in (1, -2, 3)', ['1', '-2', '3']],
    ['"odd name" in (1.5, 2)', ['1.5', '2']],
    [`status = 'draft' or status is null`, null],
    [`lower(status) in ('a', 'b')`, null],
    [`status not in ('a', 'b')`, null],
    [`status in ('a', 'b') or count > 1`, null],
  ] as const) {
    await sql.unsafe(`
      create table listed (id serial primary key, status varchar(20), count integer, "odd name" numeric, check (${check}))`);
    const [row] =
      await sql`select pg_get_expr(conbin, conrelid) as text from pg_constraint where conrelid = 'listed'::regclass and contype = 'c'`;
    t.strictSame(choicesOf(String(row?.['text'])), choices, check);
    await sql`drop table listed`;
  }
});

t.test('every property of a column', async (t) => {
  const everything = collectionOf(await load(), 'everything');
  const column = (name: string) => fieldOf(everything, name).column;
  t.strictSame(column('exact'), {
    name: 'exact',
    table: 'everything',
    data_type: 'numeric',
    base_type: 'numeric',
    base_schema: 'pg_catalog',
    is_array: false,
    enum_values: null,
    choices: null,
    composite: null,
    inner: null,
    default_value: 1.5,
    default_expression: '1.50',
    max_length: null,
    numeric_precision: 10,
    numeric_scale: 2,
    srid: null,
    is_generated: false,
    generation_expression: null,
    is_nullable: true,
    is_filled: false,
    is_unique: false,
    is_indexed: false,
    is_primary_key: false,
    has_auto_increment: false,
    identity: null,
    sequence: null,
    foreign_key_schema: null,
    foreign_key_table: null,
    foreign_key_column: null,
    foreign_keys: [],
    indexes: [],
    privileges: { select: true, insert: true, update: true, delete: true },
    comment: 'Two digits, "exactly"',
  });
  t.match(column('id'), { is_primary_key: true, is_unique: true, is_indexed: false, is_nullable: false });
  t.match(column('id'), { numeric_precision: 32, numeric_scale: 0, has_auto_increment: false });
  t.match(column('small_number'), { numeric_precision: 16, numeric_scale: 0 });
  t.match(column('big_number'), { numeric_precision: 64, numeric_scale: 0 });
  t.match(column('exact_rounded'), { numeric_precision: 3, numeric_scale: -2 });
  t.match(column('exact_any'), { numeric_precision: null, numeric_scale: null });
  t.match(column('single_float'), { numeric_precision: 24, numeric_scale: null });
  t.match(column('double_float'), { numeric_precision: 53, numeric_scale: null });
  t.match(column('limited'), { max_length: 40, base_type: 'varchar' });
  t.match(column('fixed'), { max_length: 3, base_type: 'bpchar' });
  t.match(column('unlimited'), { max_length: null });
  t.match(column('feeling'), { base_type: 'mood', base_schema: 'public', enum_values: ['sad', 'ok', 'very happy'] });
  t.match(column('share'), { base_type: 'int4', base_schema: 'pg_catalog', is_nullable: false, numeric_precision: 32 });
  t.match(column('country'), { base_type: 'varchar', max_length: 8, is_nullable: true });
  t.match(column('price'), { base_type: 'numeric', numeric_precision: 12, numeric_scale: 3 });
  t.match(column('labels'), { base_type: '_text', is_array: true });
  t.match(column('tagged'), { base_type: '_text', is_array: true });
  t.match(column('feelings'), { base_type: '_mood', is_array: true, enum_values: null });
  t.match(column('joined'), { is_generated: true, default_value: null, default_expression: null });
  t.equal(column('joined')?.generation_expression, "(prose || '!'::text)");
  t.match(column('unique_number'), { is_unique: true, is_indexed: false });
  t.match(column('indexed_number'), { is_unique: false, is_indexed: true });
  t.match(column('paired_left'), { is_unique: false, is_indexed: false }, 'part of a key, and a partial index');
  t.match(column('prose'), { is_unique: false }, 'an index over an expression');
  t.match(column('counted'), { has_auto_increment: true, sequence: null }, 'a sequence that belongs to nobody');
});

t.test('columns that are computed when read', async (t) => {
  await sql`create table computed (id integer primary key, doubled integer generated always as (id * 2) virtual)`;
  const { column } = fieldOf(collectionOf(await load(), 'computed'), 'doubled');
  t.match(column, { is_generated: true, generation_expression: '(id * 2)', default_value: null });
  await sql`drop table computed`;
});

t.test('defaults as values', async (t) => {
  const everything = collectionOf(await load(), 'everything');
  const defaults = [...everything.fields.values()].flatMap(({ name, column }) =>
    column?.default_expression ? [[name, column.default_value]] : [],
  );
  t.strictSame(Object.fromEntries(defaults), {
    small_number: 7,
    big_number: '9007199254740993',
    exact: 1.5,
    exact_any: -0.5,
    single_float: 0.25,
    double_float: 'NaN',
    flag: true,
    fixed: 'abc',
    limited: "it's",
    prose: 'back\\slash',
    token: 'gen_random_uuid()',
    day: '2020-02-29',
    clock: '12:34:56',
    wall: '2020-01-02 03:04:05',
    instant: 'now()',
    document: { a: [1, null] },
    binary_document: [],
    feeling: 'ok',
    share: 50,
    country: 'NO',
    price: 9.125,
    labels: '{}',
    duration: '1 day 02:00:00',
    counted: "nextval('numbers'::regclass)",
    composed: "('a'::text || (now())::text)",
  });
  t.equal(defaultValueOf('NULL::character varying', 'string'), null);
  t.equal(defaultValueOf("E'a\\\\b''c'::text", 'text'), "a\\b'c");
  t.equal(defaultValueOf("('x'::text)::character varying(10)", 'string'), 'x');
  t.equal(defaultValueOf("('now'::text)::date", 'date'), "('now'::text)::date");
  t.equal(defaultValueOf('(0)::numeric', 'decimal'), 0);
  t.equal(defaultValueOf('(-1)', 'integer'), -1);
  t.equal(defaultValueOf("timezone('utc'::text, now())", 'dateTime'), "timezone('utc'::text, now())");
  t.equal(defaultValueOf("'no json'::text", 'json'), 'no json');
  t.equal(defaultValueOf("'Infinity'::real", 'float'), 'Infinity');
  t.equal(defaultValueOf('0.12345678901234567890', 'decimal'), '0.12345678901234567890');
  t.equal(defaultValueOf("'f'::boolean", 'boolean'), false);
  t.equal(defaultValueOf("'::'::text", 'text'), '::');
});

t.test('keys that fill themselves', async (t) => {
  const model = await load();
  const key = (name: string) => {
    const { type, column } = requireSingleKey(collectionOf(model, name));
    return [type, column?.has_auto_increment, column?.identity, column?.sequence];
  };
  t.strictSame(key('key_serial'), ['integer', true, null, 'public.key_serial_id_seq']);
  t.strictSame(key('key_bigserial'), ['bigInteger', true, null, 'public.key_bigserial_id_seq']);
  t.strictSame(key('key_identity_always'), ['integer', true, 'always', 'public.key_identity_always_id_seq']);
  t.strictSame(key('key_identity_default'), ['bigInteger', true, 'default', 'public.key_identity_default_id_seq']);
  t.strictSame(key('key_uuid'), ['uuid', false, null, null]);
  t.strictSame(key('key_text'), ['text', false, null, null]);
  t.strictSame(key('Mixed Case'), ['integer', true, null, 'public."Mixed Case_Id_seq"']);
  for (const name of ['key_serial', 'key_bigserial', 'key_identity_always', 'Mixed Case']) {
    const sequence = requireSingleKey(collectionOf(model, name)).column?.sequence ?? '';
    const [row] = await sql`select ${sequence}::text::regclass::oid > 0 as found`;
    t.equal(row?.['found'], true, `${sequence} names a sequence`);
  }
});

t.test('names of every kind', async (t) => {
  const model = await load();
  t.strictSame(
    [...collectionOf(model, 'Mixed Case').fields.keys()],
    [
      'Id',
      'camelCase',
      'with space',
      'dot.ted',
      'sla/sh',
      'quo"te',
      'per%cent',
      'ünïcode 漢字',
      'comma,colon:',
      '$dollar',
      '_under',
      '1digit',
    ],
  );
  t.strictSame([...collectionOf(model, 'select').fields.keys()], ['user', 'order', 'group']);
  t.equal(relationOf(model, 'a.b/c "d" %e', 'parent').kind, 'many-to-one');
  t.strictSame([...collectionOf(model, '__proto__').fields.keys()], ['id', 'constructor', 'toString', '__proto__']);
  const long = collectionOf(model, 'n63_56789012345678901234567890123456789012345678901234567890123');
  t.equal(Buffer.byteLength(requireSingleKey(long).name), 63);
  t.notOk(model.collections.has('measurements_low'), 'partitions are parts');
  t.notOk(model.collections.has('offices'), 'another schema');
  t.notOk(model.collections.has('spatial_ref_sys') || model.refused.has('spatial_ref_sys'));
  t.notOk(model.collections.has('service_schema') || model.refused.has('service_schema'));
});

t.test('foreign keys are relations without any metadata', async (t) => {
  const model = await load();
  const references = [...model.collections.values()]
    .filter(({ system }) => !system)
    .flatMap(({ name, fields }) =>
      [...fields.values()].flatMap(({ name: field, relation }) =>
        relation?.kind === 'many-to-one' ? [`${name}.${field} -> ${relation.oneCollection}`] : [],
      ),
    );
  t.strictSame(references, [
    'a.b/c "d" %e.parent -> a.b/c "d" %e',
    'any_links.person -> people',
    'beside_key.pointed -> pointer_to_refused',
    'measurement_notes.measurement -> measurements',
    'messages.sender -> people',
    'messages.receiver -> people',
    'messages.sender_email -> people',
    'people.manager -> people',
    'people.serial_item -> key_serial',
    'people.uuid_item -> key_uuid',
    'pointer_to_refused.composite_less -> refused_target',
    'profiles.person -> people',
    'select.group -> select',
  ]);
  t.strictSame(relationOf(model, 'messages', 'sender'), {
    kind: 'many-to-one',
    manyCollection: 'messages',
    manyField: 'sender',
    oneCollection: 'people',
    referenced: 'id',
    columns: [{ column: 'sender', referenced: 'id' }],
    oneField: null,
    junctionField: null,
    sortField: null,
    deselectAction: 'nullify',
    meta: null,
  });
  t.match(fieldOf(collectionOf(model, 'people'), 'office').column, {
    foreign_key_schema: 'elsewhere',
    foreign_key_table: 'offices',
    foreign_key_column: 'code',
  });
  t.match(fieldOf(collectionOf(model, 'messages'), 'sender_email').column, {
    foreign_key_table: 'people',
    foreign_key_column: 'email',
  });
  t.match(relationOf(model, 'messages', 'sender_email'), { oneCollection: 'people', referenced: 'email' });
  t.match(fieldOf(collectionOf(model, 'messages'), 'pair_left').column, { foreign_key_table: null });
});

t.test('relations by metadata', async (t) => {
  await sql`
    insert into service_fields (collection, field, special, sort, options) values
      ('people', 'sent', 'o2m', 2, null),
      ('people', 'links', 'm2a', 1, '{"deep": {"list": [1, 2]}}'),
      ('people', 'divider', 'alias,no-data', 3, null),
      ('people', 'box', 'group', 4, null),
      ('messages', 'sender', 'm2o', 1, null),
      ('everything', 'prose', 'cast-csv', null, null),
      ('everything', 'limited', 'hash,conceal', null, null),
      ('everything', 'fixed', ' uuid ,', null, null),
      ('everything', 'composed', 'cast-json', null, null),
      ('everything', 'wall', 'cast-timestamp', null, null),
      ('everything', 'small_number', 'hash', null, null),
      ('everything', 'labels', 'cast-csv', null, null),
      ('everything', 'flag', 'constructor,__proto__', null, null)`;
  await sql`
    insert into service_relations (many_collection, many_field, one_collection, one_field, one_collection_field,
      one_allowed_collections, junction_field, sort_field, one_deselect_action) values
      ('messages', 'sender', 'people', 'sent', null, null, null, 'position', 'delete'),
      ('messages', 'receiver', 'people', 'received', null, null, null, null, 'nullify'),
      ('messages', 'loose_person', 'people', 'mentions', null, null, null, null, 'nullify'),
      ('people', 'manager', 'people', 'name', null, null, null, null, 'nullify'),
      ('profiles', 'person', 'people', 'divider', null, null, null, null, 'nullify'),
      ('any_links', 'person', 'people', 'links', null, null, 'item', 'position', 'nullify'),
      ('any_links', 'item', null, null, 'kind', 'key_serial, key_uuid,gone,key_none', 'person', null, 'nullify')`;
  const model = await load();
  const people = collectionOf(model, 'people');
  t.strictSame(
    [...people.fields.keys()],
    [
      'id',
      'name',
      'email',
      'manager',
      'office',
      'serial_item',
      'uuid_item',
      'links',
      'sent',
      'divider',
      'box',
      'received',
      'mentions',
    ],
    'columns, aliases by sort, aliases that only a relation names',
  );
  const sent = fieldOf(people, 'sent');
  t.match(sent, { type: 'alias', column: null, special: ['o2m'] });
  t.match(sent.relation, {
    kind: 'one-to-many',
    manyCollection: 'messages',
    manyField: 'sender',
    oneCollection: 'people',
    oneField: 'sent',
    junctionField: null,
    sortField: 'position',
    deselectAction: 'delete',
    meta: { one_field: 'sent' },
  });
  t.match(relationOf(model, 'messages', 'sender'), { kind: 'many-to-one', oneField: 'sent', sortField: 'position' });
  t.match(fieldOf(people, 'received'), { type: 'alias', meta: null, special: [], relation: { kind: 'one-to-many' } });
  t.match(relationOf(model, 'messages', 'loose_person'), { kind: 'many-to-one', oneCollection: 'people' });
  t.match(relationOf(model, 'people', 'mentions'), { kind: 'one-to-many', manyField: 'loose_person' });
  t.equal(fieldOf(people, 'name').relation, null, 'a column keeps its name');
  t.match(relationOf(model, 'people', 'manager'), { kind: 'many-to-one', oneCollection: 'people' });
  t.equal(fieldOf(people, 'divider').relation, null, 'presentation leads nowhere');
  t.equal(fieldOf(people, 'box').relation, null);
  t.match(relationOf(model, 'people', 'links'), {
    kind: 'one-to-many',
    manyCollection: 'any_links',
    junctionField: 'item',
    sortField: 'position',
  });
  const item = relationOf(model, 'any_links', 'item');
  t.match(item, { kind: 'many-to-any', collectionField: 'kind', junctionField: 'person' });
  t.strictSame(item.kind === 'many-to-any' && item.allowedCollections, ['key_serial', 'key_uuid']);
  const types = ['prose', 'limited', 'fixed', 'composed', 'wall', 'small_number', 'labels', 'flag'];
  t.strictSame(
    types.map((name) => fieldOf(collectionOf(model, 'everything'), name).type),
    ['csv', 'hash', 'uuid', 'json', 'timestamp', 'integer', 'unknown', 'boolean'],
  );
  t.strictSame(fieldOf(collectionOf(model, 'everything'), 'fixed').special, ['uuid']);
  t.equal(fieldTypeOf('geometry', ['geometry.Point']), 'geometry.Point');
});

t.test('metadata that fits nothing is passed over', async (t) => {
  const before = await load();
  await sql`insert into service_fields (collection, field, special) values
    ('gone', 'id', null), ('no_columns', 'alias', 'o2m'), ('people', '%r', 'o2m')`;
  await sql`
    insert into service_relations (many_collection, many_field, one_collection, one_field, one_collection_field,
      one_allowed_collections, junction_field, sort_field) values
      ('gone', 'person', 'people', 'ghosts', null, null, null, null),
      ('messages', 'gone', 'people', 'ghosts', null, null, null, null),
      ('messages', 'position', 'gone', 'ghosts', null, null, null, null),
      ('messages', 'pair_left', 'key_none', 'ghosts', null, null, null, null),
      ('messages', 'loose_text', 'people', 'ghosts', null, null, null, null),
      ('key_text', 'label', null, null, 'gone', 'people', null, null),
      ('key_serial', 'label', null, null, 'id', 'gone,key_none', null, null),
      ('key_uuid', 'label', null, null, null, null, null, null),
      ('measurement_notes', 'measurement', 'measurements', '%r', null, null, 'gone', 'gone'),
      ('people', 'serial_item', 'gone', 'ghosts', null, null, null, null)`;
  const model = await load();
  t.strictSame(shapeOf(model), shapeOf(before));
  t.match(relationOf(model, 'measurement_notes', 'measurement'), { junctionField: null, sortField: null });
  t.match(relationOf(model, 'people', 'serial_item'), { oneCollection: 'key_serial', meta: null });
});

t.test('the tables of the service describe themselves', async (t) => {
  const model = await load();
  const users = collectionOf(model, 'service_users');
  t.match(fieldOf(users, 'password'), { type: 'hash', special: ['hash', 'conceal'] });
  t.strictSame(fieldOf(users, 'token').special, ['digest', 'conceal']);
  t.strictSame(fieldOf(users, 'tfa_secret').special, ['sealed', 'conceal']);
  t.equal(fieldOf(collectionOf(model, 'service_permissions'), 'fields').type, 'csv');
  t.equal(fieldOf(collectionOf(model, 'service_policies'), 'ip_access').type, 'csv');
  t.match(relationOf(model, 'service_users', 'role'), { kind: 'many-to-one', oneCollection: 'service_roles' });
  const lists: [string, string, string, string][] = [
    ['service_users', 'policies', 'service_access', 'user'],
    ['service_roles', 'policies', 'service_access', 'role'],
    ['service_roles', 'users', 'service_users', 'role'],
    ['service_roles', 'children', 'service_roles', 'parent'],
    ['service_policies', 'permissions', 'service_permissions', 'policy'],
    ['service_policies', 'users', 'service_access', 'policy'],
    ['service_policies', 'roles', 'service_access', 'policy'],
  ];
  for (const [collection, field, manyCollection, manyField] of lists) {
    t.match(relationOf(model, collection, field), { kind: 'one-to-many', manyCollection, manyField });
  }
  const [settings] = await sql`select project_name, auth_login_attempts from service_settings`;
  t.strictSame({ ...settings }, { project_name: 'Lateral', auth_login_attempts: null });
});

t.test('the tables of the service hold to their rules', async (t) => {
  await sql`insert into service_users (email, token) values ('Someone@example.com', 'digest')`;
  const [user] = await sql`select status, provider from service_users where token = 'digest'`;
  t.strictSame({ ...user }, { status: 'active', provider: 'default' });
  const refusals: [string, postgres.PendingQuery<postgres.Row[]>][] = [
    ['23505', sql`insert into service_users (email) values ('sOMEONE@EXAMPLE.COM')`],
    ['23505', sql`insert into service_users (token) values ('digest')`],
    ['23514', sql`insert into service_users (status) values ('asleep')`],
    ['23514', sql`insert into service_fields (collection, field, width) values ('people', 'x', 'wide')`],
    ['23505', sql`insert into service_fields (collection, field) values ('people', 'sent')`],
    [
      '23514',
      sql`insert into service_permissions (policy, collection, action)
      values (gen_random_uuid(), 'people', 'look')`,
    ],
    [
      '23514',
      sql`insert into service_relations (many_collection, many_field, one_deselect_action)
      values ('people', 'x', 'forget')`,
    ],
    ['23505', sql`insert into service_relations (many_collection, many_field) values ('messages', 'sender')`],
    ['23514', sql`insert into service_settings (id) values (2)`],
    ['23505', sql`insert into service_settings default values`],
  ];
  for (const [code, statement] of refusals) await t.rejects(statement, { code });
});

t.test('the model is frozen through and through', async (t) => {
  const model = await load();
  const people = collectionOf(model, 'people');
  const open = [model, people, ...people.fields.values()]
    .flatMap((object) => [object, ...Object.values(object)])
    .filter((value) => typeof value === 'object' && value !== null && !Object.isFrozen(value));
  t.strictSame(open, []);
  const { options } = fieldOf(people, 'links').meta ?? {};
  t.throws(() => (options as { deep: { list: number[] } }).deep.list.push(3), TypeError);
  t.throws(() => (model.collections as Map<string, Collection>).set('more', people), {
    message: 'the model is frozen',
  });
  t.throws(() => (model.collections as Map<string, Collection>).delete('people'));
  t.throws(() => (people.fields as Map<string, Field>).clear());
  t.equal(model.version, 1);
  t.equal(model.schema, 'public');
});

t.test('metadata and access changes are announced', async (t) => {
  const heard = await listen();
  t.teardown(heard.stop);
  const version = async () => Number((await sql`select version from service_schema`)[0]?.['version']);
  const before = await version();
  await sql`update service_collections set note = 'changed' where collection = 'key_text'`;
  await sql`insert into service_fields (collection, field) values ('key_text', 'code')`;
  await sql`delete from service_relations where many_collection = 'gone'`;
  t.strictSame(await heard.take(), ['service_model public', 'service_model public', 'service_model public']);
  t.equal(await version(), before + 3);
  await sql`insert into service_roles (name) values ('Editor')`;
  await sql`update service_users set status = 'suspended'`;
  await sql`delete from service_permissions`;
  t.strictSame(await heard.take(), ['service_access public', 'service_access public', 'service_access public']);
  await sql`update service_users set last_access = now()`;
  await sql`delete from service_sessions`;
  t.strictSame(await heard.take(), [], 'what changes with every request is not worth a word');
  t.equal(await version(), before + 3);
  t.equal((await loadDocument('public')).version, before + 3);
});

t.test('changes of the schema are announced', async (t) => {
  const heard = await listen();
  t.teardown(heard.stop);
  await sql`create table announced (id integer primary key)`;
  t.strictSame(await heard.take(), ['service_model public']);
  await sql`alter table announced add column label text`;
  t.strictSame(await heard.take(), ['service_model public']);
  await sql`comment on column announced.label is 'said'`;
  t.strictSame(await heard.take(), ['service_model public']);
  await sql`alter type mood add value 'elated'`;
  t.strictSame(await heard.take(), ['service_model public']);
  await sql`alter table announced drop column label`;
  t.strictSame(await heard.take(), ['service_model public']);
  await sql`drop table announced`;
  t.strictSame(await heard.take(), ['service_model public']);
  await sql.unsafe('create table elsewhere.a (id integer); create table b (id integer); create table c (id integer)');
  t.strictSame(await heard.take(), ['service_model elsewhere', 'service_model public'], 'once per schema');
  await sql.unsafe('drop table elsewhere.a, b, c');
  t.strictSame(await heard.take(), ['service_model elsewhere', 'service_model public']);
  await sql.begin(async (transaction) => {
    await transaction`create temporary table passing (id serial primary key) on commit drop`;
    await transaction`alter table passing add column label text`;
  });
  await sql`refresh materialized view totals`;
  t.strictSame(await heard.take(), [], 'neither temporary tables nor new contents');
});

t.test('lives in any schema', async (t) => {
  await createTables('Other "One"');
  await sql`create table "Other ""One""".things (id integer primary key, parent integer references "Other ""One""".things)`;
  const heard = await listen();
  t.teardown(heard.stop);
  await sql`update "Other ""One""".service_fields set note = 'changed'`;
  t.strictSame(await heard.take(), ['service_model Other "One"']);
  await sql`alter table "Other ""One""".things add column label text`;
  t.strictSame(await heard.take(), ['service_model Other "One"']);
  const model = buildModel(await loadDocument('Other "One"'), 7, schemas('Other "One"'));
  t.strictSame(
    [...model.collections.keys()].filter((name) => !name.startsWith('service_')),
    ['things'],
  );
  t.equal(relationOf(model, 'things', 'parent').kind, 'many-to-one');
  t.equal(model.version, 7);
  await sql`drop schema "Other ""One""" cascade`;
  const triggers = await sql`select evtname from pg_event_trigger order by evtname`;
  t.strictSame(
    triggers.map(({ evtname }) => evtname),
    ['service_drops_public', 'service_watch_public'],
    'its event triggers go with it',
  );
});

t.test('needs no superuser', async (t) => {
  await sql`create role plain_owner`;
  await sql`create schema plain authorization plain_owner`;
  await createTables('plain', 'plain_owner');
  const [row] = await sql`select count(*)::integer as triggers from pg_event_trigger where evtname ~ 'plain'`;
  t.equal(row?.['triggers'], 0);
  const model = buildModel(await loadDocument('plain'), 1, schemas('plain'));
  t.ok(model.collections.has('service_users'));
});

async function createTables(schema: string, role?: string): Promise<void> {
  await sql`create schema if not exists ${sql(schema)}`;
  await sql.unsafe(`create table "${schema.replaceAll('"', '""')}".service_migrations (name text)`);
  if (role) await sql.unsafe(`grant select on ${schema}.service_migrations to ${role}`);
  for (const { text } of openTables(features).migrations) {
    await sql.begin(async (transaction) => {
      if (role) await transaction`set local role ${transaction(role)}`;
      await transaction`set local search_path = ${transaction(schema)}`;
      await transaction.unsafe(text).simple();
    });
  }
}

function schemas(schema: string): SchemaNames {
  return { schema, schemas: [schema], system: schema };
}

async function loadDocument(schema: string): Promise<CatalogDocument> {
  return sql.begin(async (transaction) => {
    await transaction`set local search_path = ${transaction(schema)}`;
    const [row] = await transaction.unsafe(introspect, [[schema], schema, [...systemTables()]] as never[]);
    return JSON.parse(row?.['document']);
  });
}

async function load(): Promise<Model> {
  return buildModel(await loadDocument('public'), 1, schemas('public'));
}

function fieldOf(collection: Collection, name: string): Field {
  const field = collection.fields.get(name);
  if (!field) throw new Error(`${collection.name} has no field ${name}`);
  return field;
}

function relationOf(model: Model, collection: string, name: string): Relation {
  const { relation } = fieldOf(collectionOf(model, collection), name);
  if (!relation) throw new Error(`${collection}.${name} leads nowhere`);
  return relation;
}

/** All fields with their type and where they lead. */
function shapeOf(model: Model): string[] {
  return [...model.collections.values()].flatMap(({ name, fields }) =>
    [...fields.values()].map(({ name: field, type, relation }) => `${name}.${field}: ${type} ${relation?.kind}`),
  );
}

/** What both channels say. Notifications arrive in the order of commits: a marker shows that nothing is outstanding. */
async function listen() {
  let heard: string[] = [];
  let marked = (): void => {};
  const model = await sql.listen('service_model', (schema) => heard.push(`service_model ${schema}`));
  const access = await sql.listen('service_access', (schema) => heard.push(`service_access ${schema}`));
  const marker = await sql.listen('marker', () => marked());
  return {
    take: async (): Promise<string[]> => {
      const arrival = new Promise<void>((resolve) => {
        marked = resolve;
      });
      await sql.notify('marker', '');
      await arrival;
      const taken = heard;
      heard = [];
      return taken.sort();
    },
    stop: async (): Promise<void> => {
      await Promise.all([model.unlisten(), access.unlisten(), marker.unlisten()]);
    },
  };
}
