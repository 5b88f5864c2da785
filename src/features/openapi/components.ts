/** Schemas that do not depend on the database: errors, queries in bodies, the schema and its snapshots. */

import { COLLECTION_META, FIELD_META, type Properties, RELATION_META } from '../../compiler/model/metadata.js';
import { DEFERRABLE, FIELD_TYPES, FOREIGN_KEY_ACTIONS } from '../../compiler/model/model.js';
import {
  BOOLEAN,
  either,
  INTEGER,
  KEY,
  list,
  object,
  oneOf,
  orNull,
  RECORD,
  ref,
  type Schema,
  STRING,
} from '../../server/api/openapi/json-schema.js';

const ERROR = object(
  {
    errors: list(
      object({
        message: STRING,
        extensions: { ...object({ code: STRING }), additionalProperties: true },
      }),
    ),
  },
  ['errors'],
);

/** As bodies name it: values are JSON, lists are lists. */
const QUERY = object({
  fields: list(STRING),
  alias: { type: 'object', additionalProperties: STRING },
  filter: RECORD,
  search: STRING,
  sort: list(STRING),
  limit: { ...INTEGER, minimum: -1 },
  offset: { ...INTEGER, minimum: 0 },
  page: { ...INTEGER, minimum: 0 },
  cursor: STRING,
  deep: RECORD,
  aggregate: { type: 'object', additionalProperties: either(STRING, list(STRING)) },
  groupBy: list(STRING),
  having: RECORD,
  meta: list(STRING),
  backlink: BOOLEAN,
});

const META = object({
  total_count: INTEGER,
  estimated_count: INTEGER,
  filter_count: INTEGER,
  next_cursor: orNull(STRING),
});

const KINDS: Readonly<Record<string, Schema>> = {
  name: STRING,
  text: STRING,
  boolean: BOOLEAN,
  integer: INTEGER,
  json: {},
  array: { type: 'array' },
};

/** The properties of a row of metadata, from the list by which bodies are read. */
function metadata(properties: Properties, more: Readonly<Record<string, Schema>>): Schema {
  const entries = [...properties].map(([name, { kind, nullable }]): [string, Schema] => {
    // Lists are shown as texts with commas, and taken as either.
    const schema = typeof kind !== 'string' ? oneOf(...kind) : (KINDS[kind] ?? either(STRING, list(STRING)));
    return [name, nullable && Object.keys(schema).length > 0 ? orNull(schema) : schema];
  });
  return object({ ...more, ...Object.fromEntries(entries) });
}

const ROW = { id: orNull(INTEGER) };

const COLUMN = object({
  name: STRING,
  table: STRING,
  data_type: STRING,
  default_value: {},
  max_length: orNull(INTEGER),
  numeric_precision: orNull(INTEGER),
  numeric_scale: orNull(INTEGER),
  is_generated: BOOLEAN,
  generation_expression: orNull(STRING),
  is_nullable: BOOLEAN,
  is_unique: BOOLEAN,
  is_indexed: BOOLEAN,
  is_primary_key: BOOLEAN,
  primary_key: orNull(list(STRING)),
  has_auto_increment: BOOLEAN,
  foreign_key_column: orNull(STRING),
  foreign_key_table: orNull(STRING),
  choices: orNull(list(STRING)),
  comment: orNull(STRING),
});

const ACTION = oneOf(...FOREIGN_KEY_ACTIONS);

const FOREIGN_KEY = object({
  table: STRING,
  column: STRING,
  foreign_key_schema: STRING,
  foreign_key_table: STRING,
  foreign_key_column: STRING,
  constraint_name: STRING,
  on_update: ACTION,
  on_delete: ACTION,
  match: oneOf('FULL'),
  deferrable: oneOf(...DEFERRABLE),
  columns: list(STRING),
  foreign_key_columns: list(STRING),
});

const CHANGE = object({ kind: oneOf('N', 'D', 'E'), path: list(STRING), lhs: {}, rhs: {} }, ['kind']);

const CHANGES = list(
  object({
    collection: STRING,
    field: STRING,
    related_collection: orNull(STRING),
    diff: list(CHANGE),
  }),
);

const SNAPSHOT = object(
  {
    version: INTEGER,
    lateral: STRING,
    vendor: STRING,
    collections: list(RECORD),
    fields: list(RECORD),
    relations: list(RECORD),
    functions: list(RECORD),
    policies: list(RECORD),
  },
  ['version', 'vendor', 'collections', 'fields', 'relations'],
);

/** An object of an operator has one key. */
function operator(name: string, operand: Schema, description: string): Schema {
  return { ...object({ [`_${name}`]: operand }, [`_${name}`]), additionalProperties: false, description };
}

const OPERAND: Schema = { type: ['number', 'string'] };

/** The operators of `PATCH`, by the name of their component. */
const OPERATOR_COMPONENTS: Readonly<Record<string, Schema>> = {
  IncrementOperator: operator('increment', OPERAND, 'Adds to the stored value.'),
  DecrementOperator: operator('decrement', OPERAND, 'Subtracts from the stored value.'),
  AppendOperator: operator(
    'append',
    {},
    'Appends to the stored text or list: a text, an element or a list of elements.',
  ),
  MergeOperator: operator('merge', RECORD, 'Merges an object into the stored one, key by key.'),
  SetOperator: operator('set', {}, 'Writes the value as it is, also an object that looks like an operator.'),
};

export const COMPONENTS: Readonly<Record<string, Schema>> = {
  Error: ERROR,
  Query: QUERY,
  Meta: META,
  Keys: list(KEY),
  ...OPERATOR_COMPONENTS,
  CollectionMeta: metadata(COLLECTION_META, { collection: STRING }),
  FieldMeta: metadata(FIELD_META, { ...ROW, collection: STRING, field: STRING }),
  RelationMeta: metadata(RELATION_META, {
    ...ROW,
    many_collection: STRING,
    many_field: STRING,
    one_collection: orNull(STRING),
  }),
  Collection: object({
    collection: STRING,
    meta: orNull(ref('CollectionMeta')),
    schema: orNull(
      object({
        schema: STRING,
        name: STRING,
        kind: oneOf('table', 'partitioned', 'foreign', 'view'),
        comment: orNull(STRING),
        primary_key: orNull(list(STRING)),
      }),
    ),
    fields: list(ref('Field')),
  }),
  Column: COLUMN,
  Field: object({
    collection: STRING,
    field: STRING,
    type: oneOf(...FIELD_TYPES),
    meta: orNull(ref('FieldMeta')),
    schema: orNull(ref('Column')),
  }),
  ForeignKey: FOREIGN_KEY,
  Relation: object({
    collection: STRING,
    field: STRING,
    related_collection: orNull(STRING),
    meta: ref('RelationMeta'),
    schema: orNull(ref('ForeignKey')),
  }),
  Snapshot: SNAPSHOT,
  Difference: object(
    {
      hash: STRING,
      diff: object({
        collections: CHANGES,
        fields: CHANGES,
        relations: CHANGES,
        functions: CHANGES,
        policies: CHANGES,
      }),
    },
    ['hash', 'diff'],
  ),
  DryRun: object({ statements: list(object({ sql: STRING, parameters: list({}) }, ['sql', 'parameters'])) }, [
    'statements',
  ]),
  SchemaChanges: object({
    collections: list(ref('Collection')),
    fields: list(ref('Field')),
    relations: list(ref('Relation')),
  }),
  Index: object({
    collection: STRING,
    name: STRING,
    fields: list(orNull(STRING)),
    method: STRING,
    definition: STRING,
    is_unique: BOOLEAN,
    is_primary_key: BOOLEAN,
    is_constraint: BOOLEAN,
    is_valid: BOOLEAN,
    size: orNull(INTEGER),
    scans: INTEGER,
  }),
  Check: object({
    collection: STRING,
    name: STRING,
    fields: list(STRING),
    expression: STRING,
    is_valid: BOOLEAN,
  }),
  Suggestion: object({
    kind: oneOf('one-to-many', 'one-to-one', 'many-to-many'),
    collection: STRING,
    field: STRING,
    related_collection: STRING,
    many_collection: STRING,
    many_field: STRING,
    columns: orNull(list(STRING)),
    junction_field: orNull(STRING),
    sort_field: orNull(STRING),
    hidden: BOOLEAN,
  }),
  Tokens: object({ access_token: STRING, refresh_token: STRING, expires: INTEGER }, ['expires']),
};
