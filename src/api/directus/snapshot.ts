/**
 * Snapshots in the format of Directus. Its tables and columns have fewer properties than ours. The others are added under our names, so that
 * nothing is lost on the way through a client.
 */
import { invalidPayload } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { mapSteps, type Steps } from '../../base/time-slices.js';
import type { DifferenceBody, EntryChange } from '../../schema/snapshot/difference.js';
import type { Snapshot } from '../../schema/snapshot/parse-snapshot.js';
import { DIRECTUS_VERSION, directusName, ownName, schemaNames, withLists } from './compatibility.js';

type Entry = Readonly<Record<string, unknown>>;

export function* directusSnapshot({
  version,
  vendor,
  collections,
  fields,
  relations,
  functions,
  policies,
}: Snapshot): Steps<Entry> {
  return {
    version,
    directus: DIRECTUS_VERSION,
    vendor,
    collections: yield* mapSteps(collections, directusEntry),
    fields: yield* mapSteps(fields, directusEntry),
    systemFields: [],
    relations: yield* mapSteps(relations, directusEntry),
    ...(functions && functions.length > 0 ? { functions } : {}),
    ...(policies ? { policies } : {}),
  };
}

function directusEntry(entry: object): unknown {
  return withLists(schemaNames(withTable({ ...entry }), directusName));
}

/** A field has its name in its schema, a collection that of its table, and both in their metadata. */
function withTable(entry: Entry): Entry {
  const { collection, field, meta, schema } = entry;
  const name = field ?? collection;
  const named = isObject(meta)
    ? { ...meta, collection, ...(field === undefined || 'related_collection' in entry ? {} : { field }) }
    : meta;
  if (!isObject(schema) || 'related_collection' in entry) return { ...entry, meta: relationMeta(entry, named) };
  if (field === undefined) {
    const { comment, indexes, ...rest } = schema;
    const isPlain = comment === null && Array.isArray(indexes) && indexes.length === 0;
    return { ...entry, meta: named, schema: { name, ...rest, ...(isPlain ? {} : { comment, indexes }) } };
  }
  const { data_type, ...rest } = schema;
  return { ...entry, meta: named, schema: { name, table: collection, ...typeOf(String(data_type)), ...rest } };
}

function relationMeta({ collection, field, related_collection }: Entry, meta: unknown): unknown {
  if (!isObject(meta) || related_collection === undefined) return meta;
  const allowed = meta['one_allowed_collections'];
  return {
    ...meta,
    many_collection: collection,
    many_field: field,
    one_collection: related_collection,
    one_allowed_collections: typeof allowed === 'string' ? allowed.split(',') : allowed,
  };
}

/** `character varying(255)` is a type and a length there, `numeric(10,2)` a type and two numbers. */
function typeOf(text: string): Entry {
  const [, type = text, first, second, rest = ''] = /^([a-z ]+?)\((\d+)(?:,\s*(\d+))?\)(.*)$/.exec(text) ?? [];
  const isLength = /char/.test(type) && rest === '';
  const isNumber = type === 'numeric' && rest === '';
  return {
    data_type: isLength || isNumber ? type : text,
    max_length: isLength ? Number(first) : null,
    numeric_precision: isNumber ? Number(first) : null,
    numeric_scale: isNumber ? Number(second ?? 0) : null,
  };
}

/** The sections of a difference hold entries, or single properties of one. */
export function* directusDifference({ hash, diff }: DifferenceBody): Steps<Entry> {
  const sections: Record<string, unknown> = {};
  for (const [section, entries] of Object.entries(diff)) sections[section] = yield* mapSteps(entries, directusChange);
  return { hash, diff: { ...sections, systemFields: [] } };
}

function directusChange(entry: EntryChange): Entry {
  return {
    ...(schemaNames(entry, directusName) as Entry),
    diff: entry.diff.map((change) => ({
      ...change,
      ...('rhs' in change && isObject(change.rhs) ? { rhs: directusEntry(change.rhs) } : {}),
      ...('lhs' in change && isObject(change.lhs) ? { lhs: directusEntry(change.lhs) } : {}),
    })),
  };
}

/**
 * A document of either format, in ours; `readSnapshot` reports the rest that is wrong with it. Another version of Directus may mean something
 * else by the same document, so only `force` accepts it.
 */
export function* ownSnapshot(value: unknown, force: boolean): Steps<unknown> {
  if (!isObject(value) || !('directus' in value)) return value;
  // Which system fields are indexed is for each installation to say.
  const { directus: version, systemFields: _, ...rest } = value;
  if (version !== DIRECTUS_VERSION && !force)
    throw invalidPayload(
      `The snapshot was made by version ${JSON.stringify(version)} of Directus, and this is ${DIRECTUS_VERSION}: add "force" to the query to use it`,
    );
  return yield* changedLists(rest, ownEntry);
}

/** The entries of lists changed, anything else as it is. */
function* changedLists(value: Entry, change: (entry: unknown) => unknown): Steps<Entry> {
  const changed: [string, unknown][] = [];
  for (const [name, entries] of Object.entries(value))
    changed.push([name, Array.isArray(entries) ? yield* mapSteps(entries, change) : entries]);
  return Object.fromEntries(changed);
}

export function* ownDifference(value: unknown): Steps<unknown> {
  if (!isObject(value) || !isObject(value['diff'])) return value;
  const { systemFields: _, ...sections } = value['diff'];
  const ownChange = (change: unknown): unknown =>
    isObject(change)
      ? {
          ...change,
          ...(isObject(change['rhs']) ? { rhs: ownEntry(change['rhs']) } : {}),
          ...(isObject(change['lhs']) ? { lhs: ownEntry(change['lhs']) } : {}),
        }
      : change;
  const diff = yield* changedLists(sections, (entry) =>
    isObject(entry) && Array.isArray(entry['diff'])
      ? { ...(schemaNames({ ...entry, diff: [] }, ownName) as Entry), diff: entry['diff'].map(ownChange) }
      : entry,
  );
  return { ...value, diff: { functions: [], ...diff } };
}

function ownEntry(value: unknown): unknown {
  const entry = schemaNames(value, ownName);
  if (!isObject(entry) || !isObject(entry['schema'])) return entry;
  const { schema, collection, field } = entry;
  if ('related_collection' in entry) return { ...entry, schema: ownReference(schema) };
  if (field !== undefined) return { ...entry, schema: ownColumn(schema) };
  const { name, ...table } = schema;
  return { ...entry, schema: name === collection ? table : schema };
}

/** The column is the one of the relation, and the name of a constraint differs from one database to another. */
function ownReference(schema: Entry): Entry {
  if (!('foreign_key_table' in schema)) return schema;
  const { table, column, foreign_key_table, foreign_key_column, foreign_key_schema, constraint_name, ...rest } = schema;
  return rest;
}

/** Defaults that are no constants: Directus has both in one place. */
const EXPRESSION = /^(?:now|gen_random_uuid|uuid_generate_v4)\(\)$|^CURRENT_(?:TIMESTAMP|DATE|TIME)$/i;

function ownColumn(schema: Entry): Entry {
  const { name, table, max_length, numeric_precision, numeric_scale, foreign_key_table, foreign_key_column, ...own } =
    schema;
  const { is_generated: _, data_type, default_value: initial = null, ...column } = own;
  const expression =
    column['default_expression'] ?? (typeof initial === 'string' && EXPRESSION.test(initial) ? initial : null);
  const counts = column['has_auto_increment'] === true;
  const isChar =
    typeof max_length === 'number' && /^(?:character varying|varchar|character|char)$/.test(String(data_type));
  const isNumber = typeof numeric_precision === 'number' && data_type === 'numeric';
  const size = isChar ? `(${max_length})` : isNumber ? `(${numeric_precision},${numeric_scale ?? 0})` : '';
  return {
    ...column,
    data_type: `${data_type}${size}`,
    default_value: counts || expression !== null ? null : initial,
    default_expression: counts ? null : expression,
  };
}
