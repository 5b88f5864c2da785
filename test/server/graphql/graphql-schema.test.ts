/** The schema itself: what it costs with a thousand collections, and what each caller finds in it. */
import { parse, validate } from 'graphql';
import t from 'tap';
import { schemaAccessOf } from '../../../src/compiler/access/graphql-access.js';
import { LazySchema } from '../../../src/compiler/graphql/schema.js';
import { SystemFields } from '../../../src/compiler/graphql/system-fields.js';
import type { Collection, Field, FieldType, Model, Relation } from '../../../src/compiler/model/model.js';

const COLLECTIONS = 1_000;
const TYPES: readonly FieldType[] = [
  'string',
  'text',
  'integer',
  'decimal',
  'float',
  'timestamp',
  'date',
  'json',
  'boolean',
  'uuid',
];

t.test('a thousand collections of twenty fields', async (t) => {
  const model = makeModel();
  const before = process.memoryUsage().heapUsed;
  const begun = process.cpuUsage();
  const schema = new LazySchema(schemaAccessOf(null, model), 'items', new SystemFields([]));
  const document = parse(
    'query ($filter: collection_7_filter) { collection_7(filter: $filter) { id kids { id f0 } } }',
  );
  t.strictSame(validate(schema, document), []);
  t.ok(seconds(begun) < 3, `the first document took ${seconds(begun)} s of processor time`);

  const start = process.cpuUsage();
  const whole = await schema.complete();
  t.ok(seconds(start) < 5, `all of it took ${seconds(start)} s`);
  t.ok(Object.keys(whole.getTypeMap()).length > 9 * COLLECTIONS);
  const grown = (process.memoryUsage().heapUsed - before) / 1e6;
  t.ok(grown < 200, `${Math.round(grown)} MB`);
  t.equal(await schema.complete(), whole, 'it is made once');
  t.equal(whole.getType('collection_7'), schema.getType('collection_7'), 'with the same types');
});

t.test('types that nobody has led to are found by their names', async (t) => {
  const schema = new LazySchema(schemaAccessOf(null, makeModel()), 'items', new SystemFields([]));
  for (const name of [
    'collection_3_quantifier_filter',
    'create_collection_3_input',
    'collection_3_relation_input',
    'JSON',
    'Mutation',
  ]) {
    t.ok(schema.getType(name), name);
  }
  for (const name of ['collection_3_aggregated_count', 'collection_3_aggregated', 'collection_3_filter'])
    t.ok(schema.getType(name), name);
  for (const name of ['nope', '__proto__', 'constructor', 'toString', 'auth_tokens'])
    t.notOk(schema.getType(name), name);
  t.ok(Object.keys(schema.getTypeMap()).includes('collection_3_filter'));
});

function seconds(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return Math.round((user + system) / 1e4) / 100;
}

function makeModel(): Model {
  const collections = new Map<string, Collection>();
  for (let number = 0; number < COLLECTIONS; number++) {
    const name = `collection_${number}`;
    const relation = {
      manyField: 'parent',
      junctionField: null,
      sortField: null,
      deselectAction: 'nullify',
      meta: null,
    } as const;
    const fields = new Map<string, Field>();
    const add = (field: string, type: FieldType, link: Relation | null = null): void => {
      fields.set(field, makeField(name, field, type, link));
    };
    add('id', 'integer');
    for (let position = 0; position < 17; position++) add(`f${position}`, TYPES[position % TYPES.length] as FieldType);
    const oneCollection = `collection_${(number * 7 + 1) % COLLECTIONS}`;
    add('parent', 'integer', {
      ...relation,
      kind: 'many-to-one',
      manyCollection: name,
      oneCollection,
      referenced: 'id',
      columns: [{ column: 'parent', referenced: 'id' }],
      oneField: 'kids',
    });
    const manyCollection = `collection_${(number + 3) % COLLECTIONS}`;
    add('kids', 'alias', {
      ...relation,
      kind: 'one-to-many',
      manyCollection,
      oneCollection: name,
      referenced: 'id',
      columns: [{ column: 'parent', referenced: 'id' }],
      oneField: 'kids',
    });
    collections.set(name, {
      name,
      system: false,
      singleton: false,
      kind: 'table',
      fields,
      key: [fields.get('id')],
    } as unknown as Collection);
  }
  return { version: 1, collections, functions: new Map() } as unknown as Model;
}

function makeField(collection: string, name: string, type: FieldType, relation: Relation | null): Field {
  const key = name === 'id';
  const column = {
    base_type: 'int4',
    is_nullable: !key,
    is_primary_key: key,
    default_expression: key ? 'nextval()' : null,
  };
  return {
    collection,
    name,
    type,
    special: [],
    relation,
    meta: null,
    column: type === 'alias' ? null : column,
  } as unknown as Field;
}
