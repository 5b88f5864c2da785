/**
 * A schema as a document: collections, fields and relations with their metadata, to be kept in a repository and carried
 * from one installation to another. Read strictly, since what is not understood would be lost: every property is known,
 * every name belongs to something, nothing is said twice. Properties that are left out take their usual values.
 */
import { invalidPayload, invalidQuery } from '../../base/errors.js';
import { groupBy, isOneOf, propertiesOf } from '../../base/narrow.js';
import { mapSteps, type Steps } from '../../base/time-slices.js';
import {
  COLLECTION_META,
  defaultMeta,
  FIELD_META,
  type Meta,
  type Properties,
  RELATION_META,
} from '../../compiler/model/metadata.js';
import {
  DEFERRABLE,
  FIELD_TYPES,
  type FieldType,
  FOREIGN_KEY_ACTIONS,
  type ForeignKeyAction,
  type ForeignKeyBehaviour,
} from '../../compiler/model/model.js';
import type { Input } from '../../compiler/request/parse-context.js';
import { requireObject } from '../../compiler/request/write.js';
import { readTypeName } from '../../compiler/sql/type-name.js';
import { readMeta } from '../../server/schema/change/parse.js';
import { type ObjectEntry, readObject } from './objects.js';
import { type PolicyEntry, readPolicyEntry } from './policies.js';

export const SNAPSHOT_VERSION = 1;
/** A snapshot of some collections. Other collections never differ from it. */
export const PARTIAL_VERSION = 2;

export interface Snapshot {
  readonly version: number;
  /** The version of the service that wrote it. */
  readonly lateral: string;
  readonly vendor: string;
  readonly collections: readonly CollectionEntry[];
  /** Columns in the order they have in their table, then alias fields. */
  readonly fields: readonly FieldEntry[];
  readonly relations: readonly RelationEntry[];
  /** Rows of service_functions. Absent where nothing is said of them: in a part of a snapshot, and in one of before there were any. */
  readonly functions?: readonly DeclaredFunction[];
  /** Objects that fields and relations cannot describe. Absent unless the snapshot was taken with them. */
  readonly objects?: readonly ObjectEntry[];
  /** Absent unless the snapshot was taken with them: policies are permissions, not schema. */
  readonly policies?: readonly PolicyEntry[];
}

export interface CollectionEntry {
  readonly collection: string;
  /** The row of metadata, or null if there is none. */
  readonly meta: Meta | null;
  /** The table, or null if the collection is a folder. */
  readonly schema: SnapshotTable | null;
}

export interface SnapshotTable {
  /** Only where it is not the first one that is served. */
  readonly schema?: string;
  /** Its name in the schema, only where that need not be the collection's. */
  readonly name?: string;
  readonly comment: string | null;
  /** Only where it is not one field: several in the order of the key, or none. */
  readonly primary_key?: readonly string[];
  /** Plain indexes of several columns. An index of one column is a property of its field. */
  readonly indexes: readonly SnapshotIndex[];
  /** Foreign keys of several columns; absent if there are none. A foreign key of one column belongs to its relation. */
  readonly foreign_keys?: readonly SnapshotForeignKey[];
}

export interface SnapshotIndex {
  readonly fields: readonly string[];
  readonly unique: boolean;
}

export interface SnapshotForeignKey extends ForeignKeyBehaviour {
  readonly fields: readonly string[];
  readonly related_collection: string;
  /** In the same order. */
  readonly related_fields: readonly string[];
}

export interface FieldEntry {
  readonly collection: string;
  readonly field: string;
  readonly type: FieldType;
  readonly meta: Meta | null;
  /** The column, or null if the field is an alias. */
  readonly schema: SnapshotColumn | null;
}

export interface SnapshotColumn {
  /** With its length or precision, as PostgreSQL prints it. */
  readonly data_type: string;
  /** The values of an enum in a served schema, or null for other types. */
  readonly enum_values: readonly string[] | null;
  /** The default, if it is a constant. */
  readonly default_value: unknown;
  /** Any other default, as SQL. */
  readonly default_expression: string | null;
  readonly generation_expression: string | null;
  readonly is_nullable: boolean;
  readonly is_unique: boolean;
  readonly is_indexed: boolean;
  readonly is_primary_key: boolean;
  readonly has_auto_increment: boolean;
  readonly comment: string | null;
}

export interface RelationEntry {
  readonly collection: string;
  readonly field: string;
  /** The other collection, or null if the relation is many-to-any. */
  readonly related_collection: string | null;
  readonly meta: Meta | null;
  /** Null without a foreign key. */
  readonly schema: ReferenceEntry | null;
}

/** `column` only where it is not the key that is referred to. */
interface ReferenceEntry extends ForeignKeyBehaviour {
  readonly column?: string;
}

/** That a function may be called; its definition is not part of a snapshot. */
export interface DeclaredFunction {
  readonly name: string;
  readonly schema: string | null;
  readonly function: string | null;
  readonly arguments: readonly string[] | null;
  readonly note: string | null;
}

/** With `force` a snapshot of another format or database is read as if it were ours. */
export function* readSnapshot(value: unknown, force: boolean): Steps<Snapshot> {
  const {
    version,
    lateral = '',
    vendor,
    collections,
    fields,
    relations,
    functions,
    objects,
    policies,
    ...rest
  } = requireObject(value, 'The snapshot');
  refuseUnknown(
    rest,
    'The snapshot',
    'version, lateral, vendor, collections, fields, relations, objects, functions, policies',
  );
  if (version !== SNAPSHOT_VERSION && version !== PARTIAL_VERSION && !force)
    throw invalidPayload(
      `The snapshot has version ${JSON.stringify(version)}, neither ${SNAPSHOT_VERSION} nor ${PARTIAL_VERSION} (of some collections)`,
    );
  if (vendor !== VENDOR && !force)
    throw invalidPayload(`"vendor" of the snapshot must be "${VENDOR}", not ${JSON.stringify(vendor)}`);
  if (typeof lateral !== 'string') throw invalidPayload('"lateral" must be a string');
  const snapshot = {
    version: version === PARTIAL_VERSION ? PARTIAL_VERSION : SNAPSHOT_VERSION,
    lateral,
    vendor: VENDOR,
    collections: yield* mapSteps(readEntries(collections, 'collections'), readCollection),
    fields: yield* readFields(readEntries(fields, 'fields')),
    relations: yield* mapSteps(readEntries(relations, 'relations'), readRelation),
    ...(functions == null ? {} : { functions: readEntries(functions, 'functions').map(readFunction) }),
    ...(objects == null ? {} : { objects: yield* mapSteps(readEntries(objects, 'objects'), readObject) }),
    ...(policies == null ? {} : { policies: readEntries(policies, 'policies').map(readPolicyEntry) }),
  };
  yield* refuseTwice(snapshot);
  const marked = groupBy(
    snapshot.fields.filter(({ schema }) => schema?.is_primary_key),
    ({ collection }) => collection,
  );
  const keyOf = (collection: string): string[] => (marked.get(collection) ?? []).map(({ field }) => field);
  yield;
  return { ...snapshot, collections: snapshot.collections.map((entry) => withKey(entry, keyOf(entry.collection))) };
}

/** One of several fields of a key need not be unique by itself. */
function* readFields(entries: readonly unknown[]): Steps<FieldEntry[]> {
  const counts = new Map<unknown, number>();
  for (const entry of entries) {
    const { collection, schema } = propertiesOf(entry);
    if (propertiesOf(schema)['is_primary_key'] === true) counts.set(collection, (counts.get(collection) ?? 0) + 1);
  }
  return yield* mapSteps(entries, (entry, position) =>
    readField(entry, position, (counts.get(propertiesOf(entry)['collection']) ?? 0) > 1),
  );
}

/** Several marked fields are the key in their order; a key of one field is stored with that field alone. */
function withKey(entry: CollectionEntry, marked: readonly string[]): CollectionEntry {
  if (!entry.schema) return entry;
  const { primary_key: declared = marked.length > 1 ? marked : undefined, ...table } = entry.schema;
  const isOne = declared?.length === 1 && marked.length === 1 && declared[0] === marked[0];
  return { ...entry, schema: declared === undefined || isOne ? table : { ...table, primary_key: declared } };
}

export const VENDOR = 'postgres';

/** The policies alone: of such a document no collection differs. */
export function policiesOnly(snapshot: Snapshot): Snapshot {
  const { version: _, functions: __, objects: ___, ...parts } = snapshot;
  return { version: PARTIAL_VERSION, ...parts, collections: [], fields: [], relations: [] };
}

/** A part of a snapshot: some collections with their fields and the relations that begin there. Null includes all, or excludes none. */
export function selectCollections(
  snapshot: Snapshot,
  included: readonly string[] | null,
  excluded: readonly string[] | null,
): Snapshot {
  if (!included && !excluded) return snapshot;
  const known = new Set([...snapshot.collections, ...snapshot.fields].map(({ collection }) => collection));
  const unknown = [...(included ?? []), ...(excluded ?? [])].find((name) => !known.has(name));
  if (unknown !== undefined) throw invalidQuery(`The snapshot has no collection "${unknown}"`);
  const [wanted, unwanted] = [included && new Set(included), new Set(excluded)];
  const isSelected = ({ collection }: { readonly collection: string }): boolean =>
    (wanted?.has(collection) ?? true) && !unwanted.has(collection);
  const { functions: _, objects: __, ...parts } = snapshot;
  return {
    ...parts,
    version: PARTIAL_VERSION,
    collections: snapshot.collections.filter(isSelected),
    fields: snapshot.fields.filter(isSelected),
    relations: snapshot.relations.filter(isSelected),
  };
}

export function readCollection(value: unknown, position = 0): CollectionEntry {
  const path = `collections[${position}]`;
  const { collection, meta, schema, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'collection, meta, schema');
  const name = readSnapshotName(collection, `${path}.collection`);
  return {
    collection: name,
    meta: completeMeta(meta, COLLECTION_META, `${path}.meta`),
    schema: readTable(schema, `${path}.schema`),
  };
}

function readTable(value: unknown, path: string): SnapshotTable | null {
  if (value === undefined || value === null) return null;
  const { schema, name, comment, primary_key, indexes, foreign_keys, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'schema, name, comment, primary_key, indexes, foreign_keys');
  const list = readEntries(indexes ?? [], `${path}.indexes`).map((each) => readIndex(each, `${path}.indexes`));
  const keys = readEntries(foreign_keys ?? [], `${path}.foreign_keys`).map((each, position) =>
    readForeignKey(each, `${path}.foreign_keys[${position}]`),
  );
  return {
    ...(schema == null ? {} : { schema: readSnapshotName(schema, `${path}.schema`) }),
    ...(name == null ? {} : { name: readSnapshotName(name, `${path}.name`) }),
    comment: readSnapshotText(comment, `${path}.comment`) || null,
    ...(primary_key == null ? {} : { primary_key: readNames(primary_key, `${path}.primary_key`) }),
    indexes: list,
    ...(keys.length === 0 ? {} : { foreign_keys: keys }),
  };
}

function readIndex(value: unknown, path: string): SnapshotIndex {
  const { fields, unique, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'fields, unique');
  return { fields: readSeveral(fields, `${path}.fields`), unique: readSnapshotFlag(unique, false, `${path}.unique`) };
}

function readForeignKey(value: unknown, path: string): SnapshotForeignKey {
  const { fields, related_collection, related_fields, ...rest } = requireObject(value, `"${path}"`);
  const behaviour = readBehaviour(rest, path, 'fields, related_collection, related_fields');
  const names = readSeveral(fields, `${path}.fields`);
  const related = readSeveral(related_fields, `${path}.related_fields`);
  if (names.length !== related.length) throw invalidPayload(`"${path}" must name as many "related_fields" as "fields"`);
  return {
    fields: names,
    related_collection: readSnapshotName(related_collection, `${path}.related_collection`),
    related_fields: related,
    ...behaviour,
  };
}

/** `others`: the other properties of the entry. */
function readBehaviour(entry: Readonly<Record<string, unknown>>, path: string, others: string): ForeignKeyBehaviour {
  const { on_delete, on_update, match, deferrable, ...rest } = entry;
  refuseUnknown(rest, `"${path}"`, `${others}, on_delete, on_update, match, deferrable`);
  const actionOf = (action: unknown): ForeignKeyAction => {
    if (!isOneOf(FOREIGN_KEY_ACTIONS, action))
      throw invalidPayload(`"${path}" takes the actions ${FOREIGN_KEY_ACTIONS.join(', ')}`);
    return action;
  };
  if (match != null && match !== 'FULL') throw invalidPayload(`"${path}.match" must be "FULL", or left out`);
  if (deferrable != null && !isOneOf(DEFERRABLE, deferrable))
    throw invalidPayload(`"${path}.deferrable" must be one of ${DEFERRABLE.join(', ')}, or left out`);
  return {
    on_delete: actionOf(on_delete ?? 'NO ACTION'),
    on_update: actionOf(on_update ?? 'NO ACTION'),
    ...(match == null ? {} : { match }),
    ...(deferrable == null ? {} : { deferrable }),
  };
}

function readSeveral(value: unknown, path: string): readonly string[] {
  const names = readNames(value, path);
  if (names.length < 2) throw invalidPayload(`"${path}" must name several fields`);
  return names;
}

function readNames(value: unknown, path: string): readonly string[] {
  const names = readEntries(value, path).map((name) => readSnapshotName(name, path));
  if (new Set(names).size < names.length) throw invalidPayload(`"${path}" must name each field once`);
  return names;
}

export function readField(value: unknown, position = 0, isPart = false): FieldEntry {
  const path = `fields[${position}]`;
  const { collection, field, type, meta, schema, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'collection, field, type, meta, schema');
  if (!isOneOf(FIELD_TYPES, type)) throw invalidPayload(`"${path}.type" must be one of ${FIELD_TYPES.join(', ')}`);
  const entry = {
    collection: readSnapshotName(collection, `${path}.collection`),
    field: readSnapshotName(field, `${path}.field`),
    type,
    meta: completeMeta(meta, FIELD_META, `${path}.meta`),
  };
  if ((entry.type === 'alias') !== (schema === null || schema === undefined))
    throw invalidPayload(`"${path}.schema" is required for every field except an alias`);
  if (entry.type === 'alias' && entry.meta === null) throw invalidPayload(`"${path}.meta" is required for an alias`);
  return { ...entry, schema: entry.type === 'alias' ? null : readColumn(schema, `${path}.schema`, isPart) };
}

export function readRelation(value: unknown, position = 0): RelationEntry {
  const path = `relations[${position}]`;
  const { collection, field, related_collection = null, meta, schema, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'collection, field, related_collection, meta, schema');
  const related =
    related_collection === null ? null : readSnapshotName(related_collection, `${path}.related_collection`);
  const entry = {
    collection: readSnapshotName(collection, `${path}.collection`),
    field: readSnapshotName(field, `${path}.field`),
    related_collection: related,
    meta: completeMeta(meta, RELATION_META, `${path}.meta`),
    schema: schema === undefined || schema === null ? null : readReference(schema, `${path}.schema`),
  };
  if (entry.meta === null && entry.schema === null)
    throw invalidPayload(`"${path}" needs "meta", a foreign key in "schema", or both`);
  if (related === null && entry.schema !== null)
    throw invalidPayload(
      `"${path}.schema" is a foreign key: "related_collection" must name the collection it references`,
    );
  return entry;
}

const MAX_NAME_LENGTH = 255;

export function readFunction(value: unknown, position = 0): DeclaredFunction {
  const path = `functions[${position}]`;
  const { name, schema, function: called, arguments: names, note, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'name, schema, function, arguments, note');
  const exposed = readSnapshotText(name, `${path}.name`);
  if (!exposed || [...exposed].length > MAX_NAME_LENGTH)
    throw invalidPayload(`"${path}.name" must be a name of at most ${MAX_NAME_LENGTH} characters`);
  return {
    name: exposed,
    schema: schema == null ? null : readSnapshotName(schema, `${path}.schema`),
    function: called == null ? null : readSnapshotName(called, `${path}.function`),
    arguments:
      names == null
        ? null
        : readEntries(names, `${path}.arguments`).map((each) => readArgument(each, `${path}.arguments`)),
    note: readSnapshotText(note, `${path}.note`),
  };
}

/** A name, or a name with a type. */
function readArgument(value: unknown, path: string): string {
  const text = readSnapshotText(value, path);
  if (!text) throw invalidPayload(`"${path}" must list names of arguments`);
  return text;
}

/** Everything a row of metadata holds, with the defaults of absent properties. */
function completeMeta(value: unknown, properties: Properties, path: string): Meta | null {
  const input = readMeta(value, properties, path);
  return input === undefined ? null : { ...defaultMeta(properties), ...input };
}

/** `schema`: null for the first one that is served. */
export interface EnumName {
  readonly schema: string | null;
  readonly name: string;
}

/** The type that a column has or lists, where it may be an enum. */
export function enumNameOf(dataType: string): EnumName | null {
  const { names = [], modifiers = [] } = readTypeName(dataType) ?? {};
  const name = names.at(-1);
  if (modifiers.length > 0 || name === undefined) return null;
  return { schema: names.length === 1 ? null : (names[0] ?? null), name };
}

export function enumKey({ schema, name }: EnumName): string {
  return JSON.stringify([schema, name]);
}

const FLAGS = ['is_unique', 'is_indexed', 'is_primary_key', 'has_auto_increment'] as const;
const COLUMN_PROPERTIES = [
  'data_type',
  'enum_values',
  'default_value',
  'default_expression',
  'generation_expression',
  'is_nullable',
  ...FLAGS,
  'comment',
];

function readColumn(value: unknown, path: string, isPart: boolean): SnapshotColumn {
  const input = requireObject(value, `"${path}"`);
  for (const name of Object.keys(input)) {
    if (!COLUMN_PROPERTIES.includes(name))
      throw invalidPayload(`"${path}.${name}" is not allowed: use one of ${COLUMN_PROPERTIES.join(', ')}`);
  }
  const dataType = readSnapshotText(input['data_type'], `${path}.data_type`);
  if (dataType === null) throw invalidPayload(`"${path}.data_type" is required`);
  const counts = readSnapshotFlag(input['has_auto_increment'], false, `${path}.has_auto_increment`);
  const isKey = readSnapshotFlag(input['is_primary_key'], false, `${path}.is_primary_key`);
  const column = {
    data_type: dataType,
    enum_values: readEnum(input['enum_values'], dataType, path),
    default_value: input['default_value'] ?? null,
    default_expression: readSnapshotText(input['default_expression'], `${path}.default_expression`),
    generation_expression: readSnapshotText(input['generation_expression'], `${path}.generation_expression`),
    is_nullable: readSnapshotFlag(input['is_nullable'], !isKey && !counts, `${path}.is_nullable`),
    is_unique: readSnapshotFlag(input['is_unique'], isKey && !isPart, `${path}.is_unique`),
    is_indexed: readSnapshotFlag(input['is_indexed'], false, `${path}.is_indexed`),
    is_primary_key: isKey,
    has_auto_increment: counts,
    comment: readSnapshotText(input['comment'], `${path}.comment`) || null,
  };
  const sources = [
    column.default_value !== null,
    column.default_expression !== null,
    column.generation_expression !== null,
    column.has_auto_increment,
  ];
  if (sources.filter(Boolean).length > 1)
    throw invalidPayload(`"${path}" can have one source of values: a default, an expression or a sequence`);
  if (counts && column.is_nullable) throw invalidPayload(`"${path}": an auto-increment field cannot be nullable`);
  if (isKey && column.is_nullable) throw invalidPayload(`"${path}": a primary key cannot be nullable`);
  return column;
}

function readEnum(value: unknown, dataType: string, path: string): readonly string[] | null {
  if (value === undefined || value === null) return null;
  const values = readEntries(value, `${path}.enum_values`).map((each) =>
    each === '' ? '' : readSnapshotName(each, `${path}.enum_values`),
  );
  if (values.length === 0 || new Set(values).size < values.length || enumNameOf(dataType) === null)
    throw invalidPayload(`"${path}.enum_values" must list the values of an enum, each once`);
  return values;
}

function readReference(value: unknown, path: string): ReferenceEntry {
  const { column, ...behaviour } = requireObject(value, `"${path}"`);
  return {
    ...readBehaviour(behaviour, path, 'column'),
    ...(column == null ? {} : { column: readSnapshotName(column, `${path}.column`) }),
  };
}

function* refuseTwice({
  collections,
  fields,
  relations,
  objects = [],
  functions = [],
  policies = [],
}: Snapshot): Steps<void> {
  const called = functions.map(({ name }) => ({ collection: name }));
  const held = policies.map(({ name }) => ({ collection: name }));
  const sections: readonly (readonly { collection: string; field?: string }[])[] = [
    collections,
    fields,
    relations,
    called,
    held,
    objects.map(({ name }) => ({ collection: name })),
  ];
  for (const entries of sections) {
    const seen = new Set<string>();
    for (const { collection, field } of entries) {
      const name = JSON.stringify([collection, field]);
      if (seen.has(name))
        throw invalidPayload(`The snapshot names ${field === undefined ? collection : `${collection}.${field}`} twice`);
      seen.add(name);
      yield;
    }
  }
}

/** Every name a name of something: what is wrong shows before anything is changed. For whole snapshots, not for parts. */
export function* checkNames({ collections, fields, relations }: Snapshot, system: ReadonlySet<string>): Steps<void> {
  const known = new Map(collections.map((entry) => [entry.collection, entry]));
  const columns = new Set<string>();
  const aliases = new Set<string>();
  const keys = new Map<string, string[]>();
  for (const { collection, field, schema } of fields) {
    yield;
    if (!system.has(collection) && !known.get(collection)?.schema)
      throw invalidPayload(`The field "${collection}.${field}" belongs to no table of the snapshot`);
    (schema ? columns : aliases).add(JSON.stringify([collection, field]));
    if (schema?.is_primary_key) keys.set(collection, [...(keys.get(collection) ?? []), field]);
  }
  for (const { collection, schema, meta } of collections) {
    yield;
    if (system.has(collection)) throw invalidPayload(`The collection "${collection}" is one of the service itself`);
    if (schema) checkKey(collection, schema.primary_key ?? null, keys.get(collection) ?? []);
    const lists = [...(schema?.indexes ?? []), ...(schema?.foreign_keys ?? [])].map(({ fields }) => fields);
    const unknown = lists.flat().find((name) => !columns.has(JSON.stringify([collection, name])));
    if (unknown !== undefined)
      throw invalidPayload(
        `An index or foreign key of "${collection}" covers "${unknown}", which is not one of its columns`,
      );
    for (const { related_collection: related, related_fields } of schema?.foreign_keys ?? []) {
      const missing = related_fields.find((name) => !columns.has(JSON.stringify([related, name])));
      if (missing !== undefined)
        throw invalidPayload(
          `A foreign key of "${collection}" refers to "${related}.${missing}", which is not a column`,
        );
    }
    if (!schema && meta === null)
      throw invalidPayload(`The collection "${collection}" has neither a table nor metadata`);
    const group = meta?.['group'] ?? null;
    if (typeof group === 'string' && !known.get(group)?.meta)
      throw invalidPayload(`The collection "${collection}" is in the group "${group}", which is not in the snapshot`);
  }
  for (const { collection, field, related_collection, schema } of relations) {
    yield;
    // A composite reference is represented by an alias field.
    const isAlias = schema === null && aliases.has(JSON.stringify([collection, field]));
    if (!system.has(collection) && !columns.has(JSON.stringify([collection, field])) && !isAlias)
      throw invalidPayload(`The relation "${collection}.${field}" belongs to no column of the snapshot`);
    if (related_collection !== null && !system.has(related_collection) && !known.get(related_collection)?.schema)
      throw invalidPayload(`The relation "${collection}.${field}" refers to no table of the snapshot`);
  }
}

/** One of several fields, and the absence of any, is said at the table: a key that was forgotten is noticed. */
function checkKey(collection: string, declared: readonly string[] | null, marked: readonly string[]): void {
  if (declared === null) {
    if (marked.length === 1) return;
    throw invalidPayload(
      `The collection "${collection}" needs a field that is its primary key, or "schema.primary_key": [] for none`,
    );
  }
  const isSame = declared.length === marked.length && declared.every((name) => marked.includes(name));
  if (!isSame)
    throw invalidPayload(`"schema.primary_key" of "${collection}" must name the fields with "is_primary_key"`);
}

function readEntries(value: unknown, name: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw invalidPayload(`"${name}" must be a list`);
}

function readSnapshotName(value: unknown, path: string): string {
  if (typeof value !== 'string' || !/^[^\0]+$/.test(value)) throw invalidPayload(`"${path}" must be a name`);
  if (Buffer.byteLength(value) <= 63) return value;
  throw invalidPayload(`"${path}" is longer than 63 bytes`);
}

function readSnapshotFlag(value: unknown, initial: boolean, path: string): boolean {
  if (value === undefined || value === null) return initial;
  if (typeof value === 'boolean') return value;
  throw invalidPayload(`"${path}" must be true or false`);
}

function readSnapshotText(value: unknown, path: string): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value !== 'string' || value.includes('\0')) throw invalidPayload(`"${path}" must be a string`);
  return value;
}

export function refuseUnknown(rest: Input, name: string, known: string): void {
  const [unknown] = Object.keys(rest);
  if (unknown !== undefined) throw invalidPayload(`${name} has an unknown property "${unknown}": it takes ${known}`);
}
