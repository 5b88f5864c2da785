/**
 * From what the catalogs and the metadata tables say to the model: which tables are served, with which fields. Pure; the
 * statement that asks is sql/server/introspect.sql. Tables that cannot be served are kept with the reason, for error messages.
 */
import { runSteps, type Steps } from '../../base/time-slices.js';
import type { CatalogDocument, MetadataRow } from './catalog-document.js';
import { nameCollections, type SchemaNames } from './collection-names.js';
import { fieldTypeOf } from './column-types.js';
import { assembleTables, type ColumnFacts, listOf, type TableFacts } from './columns.js';
import { freezeMap, freezeTree } from './freeze.js';
import { buildFunctions, computedBy, type FindComputed } from './functions.js';
import type { Collection, CollectionPrivileges, Field, Model, Relation, RolePrivileges } from './model.js';
import { isReserved, relate } from './relations.js';
import { namesCollections, numberType, ownName, type Synonyms } from './synonyms.js';
import { isReadable } from './write-facts.js';

/** Without computed fields for changes of tables: there, such a field has no column. */
export function buildModel(
  document: CatalogDocument,
  version: number,
  schemas: SchemaNames,
  withComputed = true,
): Model {
  return runSteps(modelSteps(document, version, schemas, withComputed));
}

/** The same with pauses: with thousands of tables it takes half a second. */
export function* modelSteps(
  document: CatalogDocument,
  version: number,
  schemas: SchemaNames,
  withComputed = true,
): Steps<Model> {
  const metadata = readMetadata(document);
  yield;
  const naming = nameCollections(document.tables ?? [], schemas, metadata.collections);
  const facts = yield* assembleTables(document, naming.names, metadata.declaredKeys);
  const tables = facts.tables.filter((table) => !isLeftOut(table));
  const refused = new Map(naming.refused);
  const served = new Map<string, TableFacts>();
  for (const table of tables) {
    const reason = refusalOf(table, metadata.declaredKeys.get(table.name));
    if (reason) refused.set(table.name, reason);
    else served.set(table.name, table);
  }
  const flagsOf = (collection: string, field: string) => specialOf(metadata.fields.get(collection)?.get(field));
  const relations = relate({
    tables: served,
    rows: metadata.relations,
    columnsOf: (collection, field) => holdingColumns(metadata.fields.get(collection)?.get(field)),
    isPresentation: (collection, field) => isPresentation(flagsOf(collection, field)),
    isSingle: (collection, field) => flagsOf(collection, field).includes('o2o'),
  });
  const collections = new Map<string, Collection>();
  const findComputed = withComputed ? computedBy(document, facts) : () => null;
  for (const table of served.values()) {
    yield;
    const fields = buildFields(table, metadata.fields.get(table.name), relations.get(table.name), {
      findComputed,
      synonyms: schemas.synonyms ?? null,
      served,
    });
    collections.set(table.name, buildCollection(table, fields, metadata.collections.get(table.name) ?? null, served));
  }
  // Another name of a collection of the service is none: a row that has it describes a table that is called otherwise now.
  const isTaken = (name: string): boolean => served.has(ownName(schemas.synonyms ?? undefined, name));
  const folders = new Map([...metadata.collections].filter(([name]) => !isTaken(name) && !refused.has(name)));
  return Object.freeze({
    version,
    schema: schemas.schema,
    schemas: Object.freeze([...schemas.schemas]),
    system: schemas.system,
    collections: freezeMap(collections),
    refused: freezeMap(refused),
    folders: freezeMap(folders),
    relationRows: Object.freeze(metadata.relations),
    ...buildFunctions(document, facts, collections),
    extensions: freezeMap(new Map(Object.entries(document.extensions ?? {}))),
    textSearch: Object.freeze(
      (document.text_search ?? []).map(([schema, name, isDefault]) => Object.freeze({ schema, name, isDefault })),
    ),
    ...(document.role_privileges && { rolePrivileges: indexRolePrivileges(document.role_privileges, facts.names) }),
    ...(schemas.synonyms && { synonyms: schemas.synonyms }),
  });
}

interface IndexedPrivileges extends RolePrivileges {
  readonly collections: Map<string, CollectionPrivileges>;
  readonly deniedFunctions: Set<string>;
}

function indexRolePrivileges(
  { tables, functions }: NonNullable<CatalogDocument['role_privileges']>,
  names: ReadonlyMap<number, string>,
): ReadonlyMap<string, RolePrivileges> {
  const byRole = new Map<string, IndexedPrivileges>();
  const ofRole = (role: string): IndexedPrivileges => {
    const known = byRole.get(role) ?? { collections: new Map(), deniedFunctions: new Set() };
    byRole.set(role, known);
    return known;
  };
  const columns = (list: readonly string[] | null): ReadonlySet<string> | null => list && new Set(list);
  for (const [role, table, mayDelete, read, create, update, unnumbered] of tables) {
    const name = names.get(table);
    if (name !== undefined)
      ofRole(role).collections.set(name, {
        read: columns(read),
        create: columns(create),
        update: columns(update),
        delete: mayDelete,
        unnumbered: new Set(unnumbered),
      });
  }
  for (const [role, schema, name] of functions) ofRole(role).deniedFunctions.add(`${schema}.${name}`);
  return byRole;
}

/** Tables of our own that no request needs to see, and those that extensions and tools leave behind. */
function isLeftOut({ table, system }: TableFacts): boolean {
  return (system ? HIDDEN : FOREIGN).has(table);
}

const HIDDEN: ReadonlySet<string> = new Set(['service_schema', 'service_migrations']);
const FOREIGN: ReadonlySet<string> = new Set(['spatial_ref_sys', 'sysdiagrams']);

interface Metadata {
  readonly collections: ReadonlyMap<string, MetadataRow>;
  readonly fields: ReadonlyMap<string, ReadonlyMap<string, MetadataRow>>;
  readonly relations: readonly MetadataRow[];
  readonly declaredKeys: ReadonlyMap<string, string>;
}

function readMetadata(document: CatalogDocument): Metadata {
  const collections = new Map<string, MetadataRow>();
  const declaredKeys = new Map<string, string>();
  for (const row of document.collection_rows ?? []) {
    const name = String(row['collection']);
    collections.set(name, freezeTree(row));
    if (typeof row['primary_key'] === 'string') declaredKeys.set(name, row['primary_key']);
  }
  const fields = new Map<string, Map<string, MetadataRow>>();
  for (const row of document.field_rows ?? []) {
    const name = String(row['collection']);
    const group = fields.get(name) ?? new Map<string, MetadataRow>();
    group.set(String(row['field']), freezeTree(row));
    fields.set(name, group);
  }
  return { collections, fields, relations: (document.relation_rows ?? []).map(freezeTree), declaredKeys };
}

function refusalOf(table: TableFacts, declaredKey: string | undefined): string | null {
  for (const name of table.columns.keys()) {
    if (isReserved(name)) return 'has a column whose name starts with %';
  }
  if (table.columns.size === 0) return 'has no columns';
  if (table.isExempt)
    return 'has row-level security that does not bind the role of the service: alter table ... force row level security';
  if (table.kind !== 'view' || table.key.length > 0) return null;
  if (declaredKey !== undefined) return `is a view whose declared key "${declaredKey}" is not one of its columns`;
  if (table.extension === null) return null;
  return `is a view of the extension ${table.extension}: service_collections.primary_key, set to its key, has it served`;
}

function buildCollection(
  table: TableFacts,
  fields: ReadonlyMap<string, Field>,
  meta: MetadataRow | null,
  served: ReadonlyMap<string, TableFacts>,
): Collection {
  return Object.freeze({
    name: table.name,
    schema: table.schema,
    table: table.table,
    kind: table.kind,
    system: table.system,
    key: keyOf(table, fields),
    uniqueKeys: table.uniqueKeys,
    keysWithNulls: table.keysWithNulls,
    references: Object.freeze(table.references.filter(({ collection }) => served.has(collection))),
    fields,
    singleton: meta?.['singleton'] === true,
    sortField: sortFieldOf(meta, fields),
    searchField: searchFieldOf(meta, fields),
    shardColumn: table.shardColumn,
    distributed: table.distributed,
    rowTag: table.rowTag,
    accountability: recordOf(meta ? accountabilityOf(meta) : 'all', table),
    triggers: table.triggers,
    rules: table.rules,
    isWrittenInBatches: table.isWrittenInBatches,
    hasRowSecurity: table.hasRowSecurity,
    isInherited: table.isInherited,
    followedColumns: table.followedColumns,
    isExclusive: table.isExclusive,
    hasLockableRows: table.hasLockableRows,
    privileges: table.privileges,
    comment: table.comment,
    meta,
  });
}

/** Items whose key cannot be read cannot be identified. */
function keyOf(table: TableFacts, fields: ReadonlyMap<string, Field>): readonly Field[] {
  const key = table.key.flatMap((name) => fields.get(name) ?? []);
  return Object.freeze(key.every(isReadable) ? key : []);
}

function sortFieldOf(meta: MetadataRow | null, fields: ReadonlyMap<string, Field>): string | null {
  const field = typeof meta?.['sort_field'] === 'string' ? fields.get(meta['sort_field']) : undefined;
  return field?.column && !field.computed ? field.column.name : null;
}

function searchFieldOf(meta: MetadataRow | null, fields: ReadonlyMap<string, Field>): string | null {
  const field = typeof meta?.['search_field'] === 'string' ? fields.get(meta['search_field']) : undefined;
  return field?.column?.base_type === 'tsvector' ? field.name : null;
}

/** Citus returns only the columns of a changed row. A revision needs the row as it is shown. */
function recordOf(wanted: Collection['accountability'], { distributed }: TableFacts): Collection['accountability'] {
  return distributed && wanted === 'all' ? 'activity' : wanted;
}

function accountabilityOf({ accountability }: MetadataRow): Collection['accountability'] {
  return accountability === 'all' || accountability === 'activity' ? accountability : null;
}

interface FieldContext {
  readonly findComputed: FindComputed;
  readonly synonyms: Synonyms | null;
  readonly served: ReadonlyMap<string, TableFacts>;
}

function buildFields(
  table: TableFacts,
  rows: ReadonlyMap<string, MetadataRow> | undefined,
  relations: ReadonlyMap<string, Relation> | undefined,
  { findComputed, synonyms, served }: FieldContext,
): ReadonlyMap<string, Field> {
  const fields = new Map<string, Field>();
  const add = (name: string, stored: ColumnFacts | null): void => {
    const meta = rows?.get(name) ?? null;
    const special = specialOf(meta);
    const isComputed = !stored && special.includes('computed') && !relations?.has(name);
    const computation = isComputed ? findComputed(table, name, meta) : null;
    const facts = stored ?? computation;
    const type = facts ? ((synonyms && numberType(table, name)) ?? fieldTypeOf(facts.type, special)) : 'alias';
    fields.set(
      name,
      Object.freeze({
        collection: table.name,
        name,
        type,
        special,
        column: facts?.column ?? null,
        relation: relations?.get(name) ?? null,
        meta,
        ...(computation && { computed: computation.computed }),
        ...(!mayRead(table, name, relations?.get(name), served) && { isUnreadable: true }),
        ...(table.system && namesCollections(table, name, relations) && { isSystemName: true }),
        ...(synonyms && namesCollections(table, name, relations) && { synonyms }),
        // The service checks documents of its own tables before they are written.
        ...(synonyms && !table.system && type === 'json' && { readsText: true }),
      }),
    );
  };
  for (const [name, facts] of table.columns) add(name, facts);
  for (const name of rows?.keys() ?? []) if (!fields.has(name) && !isReserved(name)) add(name, null);
  for (const name of relations?.keys() ?? []) if (!fields.has(name)) add(name, null);
  return freezeMap(fields);
}

/** Whether the service's role may read the columns behind a field. A table of which it may read nothing is left to PostgreSQL to refuse. */
function mayRead(
  table: TableFacts,
  name: string,
  relation: Relation | undefined,
  served: ReadonlyMap<string, TableFacts>,
): boolean {
  const isGranted = (columns: TableFacts['columns'], column: string): boolean =>
    columns.get(column)?.column.privileges.select !== false ||
    [...columns.values()].every((each) => !each.column.privileges.select);
  if (!isGranted(table.columns, name)) return false;
  if (!relation || relation.kind === 'many-to-any') return true;
  const holder = served.get(relation.manyCollection) ?? table;
  return relation.columns.every(({ column }) => isGranted(holder.columns, column));
}

const NO_SPECIAL: readonly string[] = Object.freeze([]);

function specialOf(meta: MetadataRow | null | undefined): readonly string[] {
  return meta?.['special'] ? Object.freeze(listOf(meta['special'])) : NO_SPECIAL;
}

/** The columns that an alias field says hold its reference. */
function holdingColumns(meta: MetadataRow | undefined): readonly string[] {
  const options = meta?.['options'];
  const columns = typeof options === 'object' && options !== null && 'columns' in options ? options.columns : null;
  return Array.isArray(columns) && columns.every((each) => typeof each === 'string') ? columns : [];
}

export function isPresentation(special: readonly string[]): boolean {
  return special.includes('no-data') || special.includes('group') || special.includes('presentation');
}
