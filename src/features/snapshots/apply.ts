/**
 * From the snapshot of a database and the wanted one: every step between them, in an order in which each finds what it
 * needs. Deletions go first, since they also clear metadata that names what is deleted. References are dropped before all
 * else and created last, so that tables may refer to each other in circles. Pure.
 */
import { invalidPayload } from '../../base/errors.js';
import { groupBy } from '../../base/narrow.js';
import { flatMapSteps, mapSteps, oneStep, type Steps } from '../../base/time-slices.js';
import { singleKey } from '../../compiler/model/item-key.js';
import { behaviourIn, type ForeignKey, type Model } from '../../compiler/model/model.js';
import { constraintName } from '../../compiler/sql/constraint-name.js';
import { isSystemField, systemTables } from '../../server/postgres/catalog/system-tables.js';
import type { DdlStatement } from '../../server/schema/change/ddl-statement.js';
import { addIndex, indexesAndComment } from '../../server/schema/change/plan-columns.js';
import { namingMetaOf, qualifiedNameOf } from '../../server/schema/change/plan-names.js';
import {
  type ColumnField,
  changeSnapshotColumn,
  isColumn,
  isRegenerated,
  keyCannotChange,
  snapshotColumnDefinition,
} from './apply-columns.js';
import { canonical, isEqual, keyOf } from './difference.js';
import {
  type CollectionEntry,
  checkNames,
  type DeclaredFunction,
  type EnumName,
  enumKey,
  enumNameOf,
  type FieldEntry,
  type RelationEntry,
  type Snapshot,
  type SnapshotForeignKey,
  type SnapshotIndex,
} from './parse-snapshot.js';
import { planPolicies } from './policies.js';
import { checkSpelling, type Details, type ForeignKeyDetail } from './snapshot-scope.js';

/** The database as it is: its snapshot, and what that was taken from. */
interface Present {
  readonly snapshot: Snapshot;
  readonly model: Model;
  readonly details: Details;
}

export function* planSnapshot(wanted: Snapshot, { snapshot, model, details }: Present): Steps<readonly DdlStatement[]> {
  yield* checkNames(wanted, systemTables());
  checkSystem(wanted);
  yield;
  const work = yield* compareEntries(snapshot, wanted);
  checkNew(work, model);
  const parts: readonly Steps<readonly DdlStatement[]>[] = [
    oneStep(() => planEnums(wanted.fields, details, model.schemas)),
    oneStep(() => dropForeignKeys(work, details)),
    flatMapSteps(work.relations, (pair) => dropReference(pair, model, work)),
    dropIndexes(work, details),
    oneStep(() => deleteFields(work)),
    oneStep(() => deleteCollections(work)),
    createTables(work, model),
    changeFields(work, model),
    createIndexes(work),
    saveCollections(work),
    saveFields(work),
    flatMapSteps(work.relations, (pair) => addReference(pair, model, work)),
    oneStep(() => addForeignKeys(work)),
    oneStep(() => planFunctions(snapshot.functions ?? [], wanted.functions)),
    oneStep(() => planPolicies(snapshot.policies ?? [], wanted.policies)),
  ];
  const steps: DdlStatement[] = [];
  for (const part of parts) {
    yield;
    for (const step of yield* part) steps.push(step);
  }
  return steps;
}

interface Pair<Entry> {
  readonly before: Entry | null;
  readonly after: Entry | null;
}

/** Two snapshots side by side: pairs of the same collection, field or relation, and what is created, dropped or recreated. */
interface SnapshotPairs {
  readonly wanted: Snapshot;
  /** The fields of primary keys, by collection. */
  readonly wantedKeys: ReadonlyMap<string, readonly FieldEntry[]>;
  readonly collections: readonly Pair<CollectionEntry>[];
  readonly fields: readonly Pair<FieldEntry>[];
  readonly relations: readonly Pair<RelationEntry>[];
  /** Collections whose table is dropped, or created. */
  readonly dropped: ReadonlySet<string>;
  readonly created: ReadonlySet<string>;
  /** Columns that change their type: foreign keys from or to them are dropped meanwhile. */
  readonly retyped: ReadonlySet<string>;
  /** Columns that are dropped by themselves, not with their table, by `keyOf`. */
  readonly gone: ReadonlySet<string>;
  /** Deleting a collection or field also clears rows of metadata that name it: those that stay are then written again. */
  readonly rewrites: boolean;
}

function* compareEntries(current: Snapshot, wanted: Snapshot): Steps<SnapshotPairs> {
  const collections = yield* pairs(current.collections, wanted.collections);
  const fields = yield* pairs(current.fields, wanted.fields);
  const dropped = collections.filter(({ before, after }) => before?.schema && !after?.schema);
  const created = collections.filter(({ before, after }) => after?.schema && !before?.schema);
  const leaves = ({ before, after }: Pair<unknown>): boolean => before !== null && after === null;
  const droppedNames = new Set(dropped.map(({ before }) => before?.collection ?? ''));
  const isGone = (pair: Pair<FieldEntry>): boolean =>
    !droppedNames.has(pair.before?.collection ?? '') && (pair.after === null || isReplaced(pair));
  return {
    wanted,
    wantedKeys: groupBy(
      wanted.fields.filter(({ schema }) => schema?.is_primary_key),
      ({ collection }) => collection,
    ),
    collections,
    fields,
    relations: yield* pairs(current.relations, wanted.relations),
    dropped: droppedNames,
    gone: new Set(yield* flatMapSteps(fields, (pair) => (pair.before && isGone(pair) ? [keyOf(pair.before)] : []))),
    created: new Set(created.map(({ after }) => after?.collection ?? '')),
    retyped: new Set(yield* flatMapSteps(fields, (pair) => (isRetyped(pair) && pair.after ? [keyOf(pair.after)] : []))),
    rewrites: collections.some(leaves) || fields.some(leaves),
  };
}

function* pairs<Entry extends { readonly collection: string; readonly field?: string }>(
  before: readonly Entry[],
  after: readonly Entry[],
): Steps<Pair<Entry>[]> {
  const former = new Map(yield* mapSteps(before, (entry) => [keyOf(entry), entry] as const));
  const kept = new Set<Entry>();
  const list = yield* mapSteps(after, (entry): Pair<Entry> => {
    const other = former.get(keyOf(entry)) ?? null;
    if (other) kept.add(other);
    return { before: other, after: entry };
  });
  const left = [...former.values()].filter((entry) => !kept.has(entry));
  return [...list, ...left.map((entry) => ({ before: entry, after: null }))];
}

function isRetyped({ before, after }: Pair<FieldEntry>): boolean {
  return Boolean(before?.schema && after?.schema && before.schema.data_type !== after.schema.data_type);
}

/** An alias becomes a column or the other way round, or the expression of a generated column changes. */
function isReplaced({ before, after }: Pair<FieldEntry>): boolean {
  if (!before || !after) return false;
  if (isColumn(before) && isColumn(after)) return isRegenerated(before.schema, after.schema);
  return isColumn(before) !== isColumn(after);
}

/** The pairs of collections that exist in the database, by name. */
function presentPairs({ collections }: SnapshotPairs): ReadonlyMap<string, Pair<CollectionEntry>> {
  return new Map(collections.flatMap((pair) => (pair.before ? [[pair.before.collection, pair] as const] : [])));
}

function checkNew({ collections, fields }: SnapshotPairs, model: Model): void {
  for (const { before, after } of collections) {
    if (before || !after) continue;
    checkSpelling(after.collection, 'collection');
    if (after.collection.startsWith('pg_')) throw invalidPayload(`A collection cannot be called "${after.collection}"`);
    if (model.refused.has(after.collection) || model.collections.has(after.collection))
      throw invalidPayload(
        `The database already has "${after.collection}", which is not a table that snapshots support`,
      );
  }
  for (const { before, after } of fields) if (!before && after) checkSpelling(after.field, 'field');
}

function checkSystem({ fields, relations }: Snapshot): void {
  for (const { collection, field } of [...fields, ...relations]) {
    if (isSystemField(collection, field))
      throw invalidPayload(`The field "${collection}.${field}" belongs to the service`);
  }
}

/** Generated columns before those that they are made of. Recreated columns keep their metadata. */
function deleteFields(work: SnapshotPairs): DdlStatement[] {
  const droppedFields = work.fields.flatMap(({ before }) => (before && work.gone.has(keyOf(before)) ? [before] : []));
  const isGenerated = ({ schema }: FieldEntry): boolean => schema?.generation_expression != null;
  const columns = [
    ...droppedFields.filter(isGenerated),
    ...droppedFields.filter((field) => !isGenerated(field)),
  ].filter(isColumn);
  const metadataToDelete = work.fields.flatMap(({ before, after }) => (after === null && before ? [before] : []));
  return [
    ...columns.map(({ collection, field }) => ({ kind: 'drop-column', table: collection, column: field }) as const),
    ...metadataToDelete.map(({ collection, field }) => ({ kind: 'forget-field', collection, field }) as const),
  ];
}

function deleteCollections({ collections, dropped }: SnapshotPairs): DdlStatement[] {
  return collections.flatMap(({ before, after }): DdlStatement[] => {
    if (!before) return [];
    const table = before.collection;
    return [
      ...(dropped.has(table) ? [{ kind: 'drop-table', table, view: false } as const] : []),
      ...(after ? [] : [{ kind: 'forget-collection', collection: table } as const]),
    ];
  });
}

function* createTables({ collections, wanted, created }: SnapshotPairs, model: Model): Steps<DdlStatement[]> {
  const columns = columnsByTable(wanted.fields);
  return yield* flatMapSteps(collections, ({ before, after }): DdlStatement[] => {
    if (!after?.schema) return [];
    const table = after.collection;
    const { comment } = after.schema;
    const commented: DdlStatement[] =
      comment === (before?.schema?.comment ?? null) ? [] : [{ kind: 'comment-table', table, comment }];
    if (!created.has(table)) {
      const isMoved = before?.schema?.schema !== after.schema.schema || before?.schema?.name !== after.schema.name;
      if (isMoved) throw invalidPayload(`The table of "${table}" cannot be moved to another schema or name`);
      if (!isEqual(before?.schema?.primary_key, after.schema.primary_key)) throw keyCannotChange(table);
      return commented;
    }
    const qualifiedName = qualifiedNameOf(table, after.schema, model);
    const namingMeta = namingMetaOf(table, qualifiedName, model);
    const declared = { schema: after.meta?.['schema'] ?? null, table: after.meta?.['table'] ?? null };
    if (namingMeta && !isEqual(declared, namingMeta))
      throw invalidPayload(`"meta" of "${table}" must name its "schema" and "table"`);
    const own = columns.get(table) ?? [];
    const plain = namesOfPlain(own);
    const key = after.schema.primary_key ?? [];
    return [
      {
        kind: 'create-table',
        table,
        qualifiedName: qualifiedName,
        columns: own.map((field) => snapshotColumnDefinition(field, plain, key)),
        key,
      },
      ...commented,
      ...own.flatMap(({ field, schema }) => indexesAndComment(table, field, schema, key.length > 0)),
    ];
  });
}

function columnsByTable(fields: readonly FieldEntry[]): ReadonlyMap<string, readonly ColumnField[]> {
  return groupBy(fields.filter(isColumn), ({ collection }) => collection);
}

function namesOfPlain(columns: readonly ColumnField[]): string[] {
  return columns.filter(({ schema }) => schema.generation_expression === null).map(({ field }) => field);
}

/** Indexes over several columns that leave, or that one of their columns would take along. */
function* dropIndexes(work: SnapshotPairs, { indexes }: Details): Steps<DdlStatement[]> {
  const present = presentPairs(work);
  return yield* flatMapSteps(indexes, ({ collection: table, name, constraint, fields, unique }): DdlStatement[] => {
    const pair = present.get(table);
    if (!pair || work.dropped.has(table) || keepsIndex(pair.after, { fields, unique }, work)) return [];
    return [constraint ? { kind: 'drop-constraint', table, name } : { kind: 'drop-index', table, name }];
  });
}

function* createIndexes(work: SnapshotPairs): Steps<DdlStatement[]> {
  return yield* flatMapSteps(work.collections, ({ before, after }) =>
    (after?.schema?.indexes ?? []).flatMap((index): DdlStatement[] => {
      const table = after?.collection ?? '';
      if (!work.created.has(table) && keepsIndex(before, index, work)) return [];
      return [addIndex(table, index.fields, index.unique ? 'unique' : 'index')];
    }),
  );
}

/** Whether the index is one of the collection, and none of its columns is recreated. */
function keepsIndex(entry: CollectionEntry | null, { fields, unique }: SnapshotIndex, work: SnapshotPairs): boolean {
  const text = canonical({ fields, unique });
  if (!entry?.schema?.indexes.some((each) => canonical(each) === text)) return false;
  return !fields.some((field) => work.gone.has(keyOf({ collection: entry.collection, field })));
}

/** Columns of tables that stay. Generated ones come last: they may name columns that are new. */
function* changeFields(work: SnapshotPairs, model: Model): Steps<DdlStatement[]> {
  const columns = columnsByTable(work.wanted.fields);
  const added: ColumnField[] = [];
  const steps: DdlStatement[] = [];
  for (const pair of work.fields) {
    yield;
    const { before, after } = pair;
    if (!after || !isColumn(after) || work.created.has(after.collection)) continue;
    const column = model.collections.get(after.collection)?.fields.get(after.field)?.column;
    if (!before || !isColumn(before) || !column || isReplaced(pair)) added.push(after);
    else if (!isEqual(before.schema, after.schema)) steps.push(...changeSnapshotColumn(before.schema, after, column));
  }
  const isGenerated = ({ schema }: ColumnField): boolean => schema.generation_expression !== null;
  for (const field of [...added.filter((each) => !isGenerated(each)), ...added.filter(isGenerated)]) {
    yield;
    if (field.schema.is_primary_key) throw keyCannotChange(field.collection);
    const column = snapshotColumnDefinition(field, namesOfPlain(columns.get(field.collection) ?? []));
    steps.push(
      { kind: 'add-column', table: field.collection, column },
      ...indexesAndComment(field.collection, field.field, field.schema, false),
    );
  }
  return steps;
}

/** Groups are collections themselves: every row is there before one refers to another. */
function* saveCollections({ collections, rewrites }: SnapshotPairs): Steps<DdlStatement[]> {
  const rows: DdlStatement[] = [];
  const groups: DdlStatement[] = [];
  for (const { before, after } of collections) {
    yield;
    if (!after) continue;
    const { collection, meta } = after;
    if (meta === null) {
      if (before?.meta) rows.push({ kind: 'drop-collection-row', collection });
    } else if (rewrites || !isEqual(before?.meta, meta)) {
      rows.push({ kind: 'save-collection', collection, values: { ...meta, group: null } });
      if (meta['group'] !== null)
        groups.push({ kind: 'save-collection', collection, values: { group: meta['group'] } });
    }
  }
  return [...rows, ...groups];
}

function* saveFields(work: SnapshotPairs): Steps<DdlStatement[]> {
  return yield* flatMapSteps(work.fields, ({ before, after }): DdlStatement[] => {
    if (!after) return [];
    const { collection, field, meta } = after;
    const former = before?.meta ?? null;
    if (meta === null) return former === null ? [] : [{ kind: 'drop-field-row', collection, field }];
    if (!work.rewrites && isEqual(former, meta)) return [];
    return [{ kind: 'save-field', collection, field, values: meta }];
  });
}

/** Drops the parts of a relation that is deleted, or that gets another target or other actions. */
function dropReference({ before, after }: Pair<RelationEntry>, model: Model, work: SnapshotPairs): DdlStatement[] {
  if (!before) return [];
  const { collection, field } = before;
  const moves = after !== null && after.related_collection !== before.related_collection;
  const isUnchanged = after !== null && !moves && isEqual(before.schema, after.schema);
  const keys = isUnchanged && !mustBeRecreated(before, work, model) ? [] : referencesOf(before, model);
  const forgets = before.meta !== null && (after === null || moves || after.meta === null);
  return [
    ...keys.map(({ name }) => ({ kind: 'drop-constraint', table: collection, name }) as const),
    ...(forgets ? [{ kind: 'forget-relation', collection, field } as const] : []),
  ];
}

function addReference({ before, after }: Pair<RelationEntry>, model: Model, work: SnapshotPairs): DdlStatement[] {
  if (!after) return [];
  const { collection, field, related_collection: target, schema, meta } = after;
  const moves = before !== null && before.related_collection !== target;
  const isUnchanged =
    before !== null && !moves && isEqual(before.schema, schema) && !mustBeRecreated(after, work, model);
  const steps: DdlStatement[] = [];
  if (schema && target !== null && !isUnchanged) {
    steps.push({
      kind: 'add-foreign-key',
      table: collection,
      columns: [field],
      name: constraintName(collection, field, 'foreign'),
      target,
      key: [schema.column ?? keyFieldOf(target, model, work)],
      behaviour: behaviourIn(schema),
    });
  }
  if (meta === null || (before?.meta && !moves && !work.rewrites && isEqual(before.meta, meta))) return steps;
  const values = { ...meta, many_collection: collection, many_field: field, one_collection: target };
  // A row that was forgotten on the way, with a field or a collection, is not there to be changed.
  if (before?.meta && !moves && work.rewrites) steps.push({ kind: 'forget-relation', collection, field });
  if (before?.meta && !moves && !work.rewrites)
    steps.push({ kind: 'change-relation', collection, field, values: meta });
  else steps.push({ kind: 'add-relation', values });
  return steps;
}

/** One of the two tables or columns is recreated, or changes its type: the constraint cannot stay meanwhile. */
function mustBeRecreated(
  { collection, field, related_collection, schema }: RelationEntry,
  work: SnapshotPairs,
  model: Model,
): boolean {
  if (work.retyped.has(keyOf({ collection, field }))) return true;
  const key = schema?.column ?? keyNameOf(model, related_collection ?? '');
  if (related_collection !== null && work.retyped.has(keyOf({ collection: related_collection, field: key })))
    return true;
  if (work.created.has(collection) || work.dropped.has(collection)) return true;
  if (related_collection !== null && work.dropped.has(related_collection)) return true;
  return work.gone.has(keyOf({ collection, field }));
}

function referencesOf({ collection, field, related_collection }: RelationEntry, model: Model): readonly ForeignKey[] {
  const column = model.collections.get(collection)?.fields.get(field)?.column;
  return (column?.foreign_keys ?? []).filter((key) => key.collection === related_collection);
}

function keyNameOf(model: Model, name: string): string | undefined {
  const collection = model.collections.get(name);
  return collection && singleKey(collection)?.name;
}

function keyFieldOf(collection: string, model: Model, { wantedKeys }: SnapshotPairs): string {
  const keys = wantedKeys.get(collection) ?? [];
  const key = keys.length > 1 ? undefined : (keys[0]?.field ?? keyNameOf(model, collection));
  if (key === undefined)
    throw invalidPayload(
      `The collection "${collection}" has no key of one field: "schema.column" must say what is meant`,
    );
  return key;
}

/** Enum types are created where they are missing, and extended by new values. No value is ever removed. */
function planEnums(fields: readonly FieldEntry[], { enums }: Details, schemas: readonly string[]): DdlStatement[] {
  return valuesByType(fields).flatMap(([type, values]): DdlStatement[] => {
    const present = enums.get(enumKey(type));
    if (present) return addValues(type, present, values);
    checkSpelling(type.name, 'type');
    if (type.schema !== null && !schemas.includes(type.schema))
      throw invalidPayload(`The type "${type.name}" is in schema "${type.schema}", which is not in DATABASE_SCHEMAS`);
    return [{ kind: 'create-enum', schema: type.schema, type: type.name, values }];
  });
}

type EnumValues = readonly [type: EnumName, values: readonly string[]];

function valuesByType(fields: readonly FieldEntry[]): EnumValues[] {
  const types = new Map<string, EnumValues>();
  for (const { schema } of fields) {
    const type = schema?.enum_values ? enumNameOf(schema.data_type) : null;
    if (!schema?.enum_values || type === null) continue;
    const former = types.get(enumKey(type));
    if (former && JSON.stringify(former[1]) !== JSON.stringify(schema.enum_values))
      throw invalidPayload(`The fields of type "${type.name}" list different values for it`);
    types.set(enumKey(type), [type, schema.enum_values]);
  }
  return [...types.values()];
}

function addValues(
  { schema, name: type }: EnumName,
  present: readonly string[],
  wanted: readonly string[],
): DdlStatement[] {
  const remaining = wanted.filter((value) => present.includes(value));
  if (JSON.stringify(remaining) !== JSON.stringify(present))
    throw invalidPayload(`The values of the type "${type}" can only be added to: none can be removed or moved`);
  return wanted.flatMap((value, position): DdlStatement[] => {
    if (present.includes(value)) return [];
    const before = position === 0 ? (present[0] ?? null) : null;
    const after = position === 0 ? null : (wanted[position - 1] ?? null);
    return [{ kind: 'add-enum-value', schema, type, value, before, after }];
  });
}

/** Foreign keys over several columns. One that no snapshot describes stays, unless it would keep a table from leaving. */
function dropForeignKeys(work: SnapshotPairs, { foreignKeys }: Details): DdlStatement[] {
  const present = presentPairs(work);
  return foreignKeys.flatMap((key): DdlStatement[] => {
    const { collection: table, name, related_collection } = key;
    const pair = present.get(table);
    if (!pair) return [];
    const leaves = work.dropped.has(table) || work.dropped.has(related_collection);
    const isCarried = hasForeignKey(pair.before, key);
    const stays = isCarried ? keepsForeignKey(pair, key, work) : !leaves;
    return stays ? [] : [{ kind: 'drop-constraint', table, name }];
  });
}

function addForeignKeys(work: SnapshotPairs): DdlStatement[] {
  return work.collections.flatMap((pair) =>
    (pair.after?.schema?.foreign_keys ?? []).flatMap((key): DdlStatement[] => {
      const table = pair.after?.collection ?? '';
      if (keepsForeignKey(pair, key, work)) return [];
      const { fields, related_collection: target, related_fields } = key;
      // Several over the same columns have different names.
      const name = constraintName(table, `${fields.join()},${target}(${related_fields.join()})`, 'foreign');
      return [
        {
          kind: 'add-foreign-key',
          table,
          columns: fields,
          name,
          target,
          key: related_fields,
          behaviour: behaviourIn(key),
        },
      ];
    }),
  );
}

function keepsForeignKey(
  { before, after }: Pair<CollectionEntry>,
  key: SnapshotForeignKey,
  work: SnapshotPairs,
): boolean {
  return (
    hasForeignKey(before, key) &&
    hasForeignKey(after, key) &&
    !isForeignKeyRecreated(after?.collection ?? '', key, work)
  );
}

function hasForeignKey(entry: CollectionEntry | null, key: SnapshotForeignKey | ForeignKeyDetail): boolean {
  const text = textOf(key);
  return entry?.schema?.foreign_keys?.some((each) => textOf(each) === text) ?? false;
}

function textOf(key: SnapshotForeignKey): string {
  return canonical([key.fields, key.related_collection, key.related_fields, behaviourIn(key)]);
}

/** One of the tables or columns is dropped, recreated or changes its type: the constraint cannot stay meanwhile. */
function isForeignKeyRecreated(collection: string, key: SnapshotForeignKey, work: SnapshotPairs): boolean {
  const { fields, related_collection: related, related_fields } = key;
  if ([collection, related].some((name) => work.created.has(name) || work.dropped.has(name))) return true;
  const isAltered = (key: string): boolean => work.gone.has(key) || work.retyped.has(key);
  return (
    fields.some((field) => isAltered(keyOf({ collection, field }))) ||
    related_fields.some((field) => isAltered(keyOf({ collection: related, field })))
  );
}

/** Rows that declare functions. Without `wanted`, all stay as they are. */
function planFunctions(
  current: readonly DeclaredFunction[],
  wanted: readonly DeclaredFunction[] = current,
): DdlStatement[] {
  const former = new Map(current.map((entry) => [entry.name, canonical(entry)]));
  const wantedNames = new Set(wanted.map(({ name }) => name));
  return [
    ...current.flatMap(({ name }) => (wantedNames.has(name) ? [] : [{ kind: 'drop-function-row', name } as const])),
    ...wanted.flatMap((entry) => {
      const { name, ...values } = entry;
      return former.get(name) === canonical(entry) ? [] : [{ kind: 'save-function', name, values } as const];
    }),
  ];
}
