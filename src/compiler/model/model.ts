/** The connected database as frozen data. Everything behind the parser names tables and columns through these objects. */
import type { Composite } from '../sql/composite.js';
import type { Synonyms } from './synonyms.js';
import type { ColumnPrivileges, RewriteRule, TablePrivileges, Trigger } from './write-facts.js';

export const FIELD_TYPES = [
  'string',
  'text',
  'boolean',
  'integer',
  'bigInteger',
  'float',
  'decimal',
  'date',
  'dateTime',
  'time',
  'timestamp',
  'json',
  'csv',
  'uuid',
  'hash',
  'binary',
  'geometry',
  'geometry.Point',
  'geometry.LineString',
  'geometry.Polygon',
  'geometry.MultiPoint',
  'geometry.MultiLineString',
  'geometry.MultiPolygon',
  'alias',
  'unknown',
] as const;

export type FieldType = (typeof FIELD_TYPES)[number];

export const NUMBER_TYPES: ReadonlySet<string> = new Set<FieldType>(['integer', 'bigInteger', 'decimal', 'float']);
export const DATE_TYPES: ReadonlySet<string> = new Set<FieldType>(['date', 'dateTime', 'timestamp']);
/** The types of fields that `min` and `max` take. */
export const ORDERED_TYPES: ReadonlySet<string> = new Set([...NUMBER_TYPES, ...DATE_TYPES, 'time', 'string', 'text']);

export interface Model {
  /** Grows with each load; part of every shape, so a swap of the model drops compiled statements. */
  readonly version: number;
  /** The first of the schemas that are served: new tables are made there. */
  readonly schema: string;
  readonly schemas: readonly string[];
  /** Where the service's own tables and functions are. */
  readonly system: string;
  readonly collections: ReadonlyMap<string, Collection>;
  /** Tables and views that cannot be served, with the reason in words. */
  readonly refused: ReadonlyMap<string, string>;
  /** Rows of service_collections without a table: folders that group other collections. */
  readonly folders: ReadonlyMap<string, CollectionMeta>;
  /** Rows of service_relations, oldest first, also those that do not fit the database. */
  readonly relationRows: readonly RelationMeta[];
  /** Functions that may be called, by the names under which they are. */
  readonly functions: ReadonlyMap<string, ServedFunction>;
  /** Rows of service_functions that expose nothing, with the reason in words. */
  readonly refusedFunctions: ReadonlyMap<string, string>;
  /** The schema of each extension of the database, by its name. */
  readonly extensions: ReadonlyMap<string, string>;
  /** Configurations of full-text search; PostgreSQL's own first. */
  readonly textSearch: readonly TextSearchConfiguration[];
  /** Privileges of the database roles of callers, by role. */
  readonly rolePrivileges?: ReadonlyMap<string, RolePrivileges>;
  /** Absent where collections have no other names. */
  readonly synonyms?: Synonyms | undefined;
}

/** A database role may do everything with a collection or function that is not listed. */
export interface RolePrivileges {
  readonly collections: ReadonlyMap<string, CollectionPrivileges>;
  /** Functions that it may not call, as schema.name. */
  readonly deniedFunctions: ReadonlySet<string>;
}

/** The columns of a collection that a database role may use; null for all. */
export interface CollectionPrivileges {
  readonly read: ReadonlySet<string> | null;
  readonly create: ReadonlySet<string> | null;
  readonly update: ReadonlySet<string> | null;
  readonly delete: boolean;
  /** Columns that only the database can number: the role may not use their sequence. */
  readonly unnumbered: ReadonlySet<string>;
}

export interface TextSearchConfiguration {
  readonly schema: string;
  readonly name: string;
  /** Whether it is the one of the database where none is named. */
  readonly isDefault: boolean;
}

/** `foreign`: a table of another server, behind a foreign data wrapper. */
export type TableKind = 'table' | 'partitioned' | 'foreign' | 'view';

/** The value that identifies a version of a row: the transaction that wrote it, or a digest of its columns. */
export type RowTag = 'xmin' | 'digest';

export interface Collection {
  readonly name: string;
  readonly schema: string;
  /** Its name in the schema (collection-names.ts says when a collection is called otherwise). */
  readonly table: string;
  readonly kind: TableKind;
  /** One of the service's own tables: not served under /items. */
  readonly system: boolean;
  /** The columns that identify an item, in the order of the key; empty if items cannot be identified. */
  readonly key: readonly Field[];
  /** Columns of unique indexes over all rows, by their names. */
  readonly uniqueKeys: readonly (readonly string[])[];
  /** Columns of those indexes that are `nulls not distinct`. */
  readonly keysWithNulls: readonly (readonly string[])[];
  /** Foreign keys over several columns to collections of the model, oldest first. */
  readonly references: readonly CompositeReference[];
  /** In the order of the columns, alias fields behind them in the order of their `sort`. */
  readonly fields: ReadonlyMap<string, Field>;
  readonly singleton: boolean;
  readonly sortField: string | null;
  /** The field of type tsvector that a search looks into. */
  readonly searchField: string | null;
  /** The column whose value says on which server a row is: of partitions that are foreign tables, and of distributed tables of Citus. */
  readonly shardColumn: string | null;
  /** Whether Citus manages the table. */
  readonly distributed: boolean;
  /** The row part of entity tags, or null if rows cannot be changed. */
  readonly rowTag: RowTag | null;
  readonly accountability: 'all' | 'activity' | null;
  /** The enabled triggers, including those of single partitions, without those that enforce foreign keys. */
  readonly triggers: readonly Trigger[];
  /** Rules of writes. */
  readonly rules: readonly RewriteRule[];
  /** Whether writes of several requests may share a statement: the table has neither row security nor constraints that can be deferred. */
  readonly isWrittenInBatches: boolean;
  readonly hasRowSecurity: boolean;
  /** Whether other tables inherit from it: a read of it also returns their rows. */
  readonly isInherited: boolean;
  /** Columns whose values foreign keys follow: `on update cascade`, `set null` or `set default`. */
  readonly followedColumns: readonly string[];
  /** Whether its rows exclude others by more than `uniqueKeys`: a partial unique index, one over expressions, an exclusion constraint. */
  readonly isExclusive: boolean;
  /** Whether `select … for update` works. It fails for views with groups or outer joins, which triggers may still write. */
  readonly hasLockableRows: boolean;
  /** Privileges of the service's role on the whole table. */
  readonly privileges: TablePrivileges;
  readonly comment: string | null;
  readonly meta: CollectionMeta | null;
}

export interface Field {
  readonly collection: string;
  readonly name: string;
  readonly type: FieldType;
  /** Special flags of the metadata row (`m2o`, `conceal`, `cast-json`, ...). */
  readonly special: readonly string[];
  /** The column, or null if the field is an alias. */
  readonly column: Column | null;
  readonly relation: Relation | null;
  readonly meta: FieldMeta | null;
  /** The function of the row that makes the value: there is no such column in the table, `column` says of which type it would be. */
  readonly computed?: Computation;
  /** Whether the service's role lacks the privilege to read a column behind it: `*` leaves it out. */
  readonly isUnreadable?: boolean;
  /** Whether it is a field of the service's own tables that holds names of collections. */
  readonly isSystemName?: boolean;
  /** For a field that holds names of collections, if collections have other names. */
  readonly synonyms?: Synonyms;
  /** Whether a text in a payload that is JSON is stored as that JSON, as Directus does. A text is a JSON string otherwise. */
  readonly readsText?: boolean;
}

export interface Computation {
  readonly schema: string;
  readonly function: string;
}

/** The type that /fields reports. A field that was declared as `csv` without `cast-csv` has its own flag: requests treat it as the text it is. */
export function declaredType({ type, special }: Field): FieldType {
  return (type === 'text' || type === 'string') && special.includes('csv') ? 'csv' : type;
}

/** Secrets are accepted and shown masked: nothing may be learned from comparing, ordering, grouping or taking them apart. */
export function isSecretField(field: Field): boolean {
  return field.type === 'hash' || field.special.includes('conceal');
}

/** SPEC 2.4, plus what the compilers need to know of the type. */
export interface Column {
  readonly name: string;
  /** The collection that it belongs to. */
  readonly table: string;
  /** As `format_type` names it without modifiers, e.g. "character varying". */
  readonly data_type: string;
  /** The type below domains as the catalog names it (`int4`, `varchar`, `_text`, ...), with its schema: what a parameter is cast to. */
  readonly base_type: string;
  readonly base_schema: string;
  readonly is_array: boolean;
  readonly enum_values: readonly string[] | null;
  /** The labels of an enum or the values that a check lists, or null if neither restricts the column to a list. */
  readonly choices: readonly string[] | null;
  /** The composite type of its values or, of an array, of its elements. */
  readonly composite: Composite | null;
  /** The type of the elements of an array, or of the bounds of a range or multirange. */
  readonly inner: InnerType | null;
  readonly default_value: unknown;
  /** The default as SQL, exactly as the catalog prints it. */
  readonly default_expression: string | null;
  readonly max_length: number | null;
  readonly numeric_precision: number | null;
  readonly numeric_scale: number | null;
  /** The system of coordinates of a geometry, or null if each value names its own, and for other types. */
  readonly srid: number | null;
  readonly is_generated: boolean;
  readonly generation_expression: string | null;
  readonly is_nullable: boolean;
  /** A trigger may set the column before a row is inserted: whether a value is missing is for the database to say. */
  readonly is_filled: boolean;
  readonly is_unique: boolean;
  readonly is_indexed: boolean;
  readonly is_primary_key: boolean;
  readonly has_auto_increment: boolean;
  /** Identity columns: 'always' needs "overriding system value" when a key is supplied. */
  readonly identity: 'always' | 'default' | null;
  /** The sequence behind a serial or identity column, as regclass text. */
  readonly sequence: string | null;
  readonly foreign_key_schema: string | null;
  readonly foreign_key_table: string | null;
  readonly foreign_key_column: string | null;
  /** Every constraint over this column alone, oldest first; the three properties above are those of the first. */
  readonly foreign_keys: readonly ForeignKey[];
  /** Indexes over this column alone and all rows. */
  readonly indexes: readonly Index[];
  /** The privileges of the service's role. */
  readonly privileges: ColumnPrivileges;
  readonly comment: string | null;
}

export interface InnerType {
  readonly kind: 'array' | 'range' | 'multirange';
  readonly type: string;
  readonly schema: string;
}

/**
 * Whether a new row has to come with a value for the column: neither the database nor a trigger of it has one. A key that a
 * trigger makes would be known too late: what refers to it is written by the same statement.
 */
export function needsValue(column: Column): boolean {
  if (column.is_filled && !column.is_primary_key) return false;
  const { is_nullable, is_generated, default_expression, identity } = column;
  return !is_nullable && !is_generated && default_expression === null && identity === null;
}

const STAMPS = /^(date|user|role)-(created|updated)$|^uuid$/;

/** Whether the service fills the field by itself. */
export function isStamped(field: Field): boolean {
  return field.special.some((flag) => STAMPS.test(flag));
}

/** Whether OpenAPI and the GraphQL schema list the field as required for a new item. */
export function isRequired(field: Field): boolean {
  return field.column !== null && needsValue(field.column) && !isStamped(field);
}

export const FOREIGN_KEY_ACTIONS = ['NO ACTION', 'RESTRICT', 'CASCADE', 'SET NULL', 'SET DEFAULT'] as const;

export type ForeignKeyAction = (typeof FOREIGN_KEY_ACTIONS)[number];

export const DEFERRABLE = ['INITIALLY IMMEDIATE', 'INITIALLY DEFERRED'] as const;

export type Deferrable = (typeof DEFERRABLE)[number];

/** The behaviour of a foreign key; `match` and `deferrable` only where they are not PostgreSQL's defaults. */
export interface ForeignKeyBehaviour {
  readonly on_delete: ForeignKeyAction;
  readonly on_update: ForeignKeyAction;
  readonly match?: 'FULL';
  readonly deferrable?: Deferrable;
}

export function behaviourIn({ on_delete, on_update, match, deferrable }: ForeignKeyBehaviour): ForeignKeyBehaviour {
  return { on_delete, on_update, ...(match ? { match } : {}), ...(deferrable ? { deferrable } : {}) };
}

export interface ForeignKey extends ForeignKeyBehaviour {
  readonly name: string;
  readonly schema: string;
  readonly table: string;
  readonly column: string;
  /** The collection that is referred to; null for a table that is not mirrored. */
  readonly collection: string | null;
}

export interface Index {
  readonly name: string;
  readonly kind: 'primary' | 'unique' | 'index';
  /** Whether it belongs to a constraint, which must be dropped instead. */
  readonly constraint: boolean;
  /** How it finds rows: `btree`, `gin`, ... */
  readonly method: string;
}

/** A foreign key over several columns: what they refer to, column by column. */
export interface CompositeReference extends ForeignKeyBehaviour {
  readonly name: string;
  readonly collection: string;
  readonly columns: readonly ReferencedColumn[];
}

/** A column that refers, and the one that it refers to. */
interface ReferencedColumn {
  readonly column: string;
  readonly referenced: string;
}

export type Relation = ManyToOne | OneToMany | OneToOne | ManyToAny;

interface RelationBase {
  /** The collection and column that store the reference. */
  readonly manyCollection: string;
  readonly manyField: string;
  readonly junctionField: string | null;
  readonly sortField: string | null;
  readonly deselectAction: 'nullify' | 'delete';
  readonly meta: RelationMeta | null;
}

/**
 * The field holds what one item of `oneCollection` has under `referenced`: its key, or another column that is unique. Where several
 * columns hold the reference, the field is an alias for them, and `referenced` the first of those that they refer to.
 */
export interface ManyToOne extends RelationBase {
  readonly kind: 'many-to-one';
  readonly oneCollection: string;
  readonly referenced: string;
  readonly columns: readonly ReferencedColumn[];
  readonly oneField: string | null;
}

/**
 * An alias field: the items of `manyCollection` that point here. Many-to-many and many-to-any are this kind too: their
 * rows are those of a junction whose `junctionField` leads on.
 */
export interface OneToMany extends RelationBase {
  readonly kind: 'one-to-many';
  readonly oneCollection: string;
  readonly referenced: string;
  readonly columns: readonly ReferencedColumn[];
  readonly oneField: string;
}

/** An alias field as well: the one item that points here, since the column that does is unique. */
export interface OneToOne extends Omit<OneToMany, 'kind'> {
  readonly kind: 'one-to-one';
}

/** The field holds, as text, the key of an item of the collection that `collectionField` names. */
export interface ManyToAny extends RelationBase {
  readonly kind: 'many-to-any';
  readonly collectionField: string;
  readonly allowedCollections: readonly string[];
  readonly oneField: string | null;
}

/** A row of service_functions exposes all functions of one name, distinguished by the names of their arguments. */
export interface ServedFunction {
  readonly name: string;
  readonly note: string | null;
  readonly overloads: readonly Overload[];
}

export interface Overload {
  /** The name under which it is called. */
  readonly name: string;
  readonly schema: string;
  readonly function: string;
  /** One that is not volatile changes nothing, and may be called by a read. */
  readonly volatile: boolean;
  readonly arguments: readonly Argument[];
  /** Arguments that callers may not give, and that a call passes by itself. */
  readonly withheld: readonly Argument[];
  readonly returns: Returns;
  readonly comment: string | null;
}

export interface Argument {
  readonly name: string;
  /** As a column of its type would be. */
  readonly field: Field;
  /** Declared `variadic`: a list of any length, also empty. */
  readonly variadic: boolean;
  /** SQL that a call passes if the argument is not given; null if PostgreSQL fills in the default by itself. */
  readonly otherwise: string | null;
  /** Whether a call has to give it. */
  readonly required: boolean;
}

/** `set`: any number of rows; else one, or null. */
export type Returns =
  | { readonly kind: 'nothing'; readonly collection: Collection }
  | { readonly kind: 'value'; readonly set: boolean; readonly collection: Collection }
  /** Rows of columns of its own: a collection that nothing else knows. */
  | { readonly kind: 'record'; readonly set: boolean; readonly collection: Collection }
  /** Rows of the collection of this name. */
  | { readonly kind: 'items'; readonly set: boolean; readonly collection: string };

/** Rows of the metadata tables, as stored (JSON columns parsed). */
export type CollectionMeta = Readonly<Record<string, unknown>>;
type FieldMeta = Readonly<Record<string, unknown>>;
export type RelationMeta = Readonly<Record<string, unknown>>;

/** Where tables are, by the names of their collections. One that is not there yet will be in the first schema. */
export interface TableLocations {
  readonly schema: string;
  readonly schemas: readonly string[];
  readonly system: string;
  tableOf(collection: string): readonly [schema: string, table: string];
}

export function tableLocationsOf({ schema, schemas, system, collections }: Model): TableLocations {
  return {
    schema,
    schemas,
    system,
    tableOf: (name) => {
      const collection = collections.get(name);
      return collection ? [collection.schema, collection.table] : [schema, name];
    },
  };
}

/** Whether a collection serves the table. */
export function holdsTable(model: Model, schema: string, table: string): boolean {
  const namesake = model.collections.get(table);
  if (namesake?.schema === schema && namesake.table === table) return true;
  for (const collection of model.collections.values()) {
    if (collection.table === table && collection.schema === schema) return true;
  }
  return false;
}

/** A collection the model is known to hold: relations only name such. */
export function collectionOf(model: Model, name: string): Collection {
  const collection = model.collections.get(name);
  if (!collection) throw new Error(`the model has no collection "${name}"`);
  return collection;
}
