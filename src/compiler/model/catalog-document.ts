/**
 * The answer of sql/server/introspect.sql: one list per catalog, as compact arrays. Tables are known by their oid, columns by the
 * oid of their table and their number; an empty list arrives as null.
 */
import type { Deferrable } from './model.js';

export interface CatalogDocument {
  /** `service_schema.version`: grows with each change of the metadata. */
  readonly version: number;
  /** Another one if a column was defined again or a partition came or went: then rows may be others, although none was written. */
  readonly stored?: string;
  readonly tables: readonly TableEntry[] | null;
  /** Ordered by table and number. */
  readonly columns: readonly ColumnEntry[] | null;
  /** Each type that a column has. */
  readonly types: readonly TypeEntry[] | null;
  /** Composite types, and the types whose values or elements may be composite. */
  readonly composites: readonly CompositeEntry[] | null;
  /** The types of arguments and results of functions that are or contain rows of a table. */
  readonly row_types: readonly RowTypeEntry[] | null;
  readonly defaults: readonly DefaultEntry[] | null;
  /** Indexes on plain columns that cover all rows: those on one column, and unique ones on several. */
  readonly indexes: readonly IndexEntry[] | null;
  /** Check constraints on one column, oldest first. */
  readonly checks?: readonly (readonly [table: number, column: number, expression: string])[] | null;
  /** Over one column, oldest first. */
  readonly foreign_keys: readonly ForeignKeyEntry[] | null;
  /** Foreign keys over several columns, oldest first. */
  readonly composite_references?: readonly CompositeReferenceEntry[] | null;
  /** Tables whose rows are on several servers, and the column that says on which. */
  readonly shards?: readonly ShardEntry[] | null;
  /** Distributed tables of Citus, if it is installed. They have no column if each worker has all rows. */
  readonly distributed?: readonly ShardEntry[] | null;
  /** Tables and views whose rows have no xmin, and whether the rows can be changed or deleted. */
  readonly digested?: readonly (readonly [table: number, isWritable: boolean])[] | null;
  readonly sequences: readonly SequenceEntry[] | null;
  /** Enabled triggers, including triggers of partitions. */
  readonly triggers: readonly TriggerEntry[] | null;
  /** The rules for writes. */
  readonly rules: readonly RuleEntry[] | null;
  readonly unbatched: readonly number[] | null;
  /** Tables with row-level security. */
  readonly row_security?: readonly number[] | null;
  /** Tables that others inherit from, without partitioned ones. */
  readonly inherited?: readonly number[] | null;
  /** Tables with a column whose values foreign keys follow: `on update cascade`, `set null` or `set default`. */
  readonly followed?: readonly (readonly [number, string])[] | null;
  /** Tables with exclusion constraints, or with unique indexes over expressions, over some of the rows, or checked late. */
  readonly exclusive?: readonly number[] | null;
  /** Views that triggers or rules write, and whose rows PostgreSQL cannot lock. */
  readonly unlockable?: readonly number[] | null;
  /** The privileges of the service's role, for tables where it lacks some. */
  readonly privileges: readonly PrivilegeEntry[] | null;
  /** The privileges of roles that the service may become: absent unless statements run with the roles of callers. */
  readonly role_privileges?: {
    readonly tables: readonly RolePrivilegeEntry[];
    /** Functions that a role may call in no form. */
    readonly functions: readonly (readonly [role: string, schema: string, name: string])[];
  };
  /** Tables with row-level security from which the service's role is exempt: absent unless the database knows the callers. */
  readonly exempt?: readonly number[];
  readonly comments: readonly CommentEntry[] | null;
  /** Functions that may be called and exist. */
  readonly functions: readonly FunctionEntry[] | null;
  /** Procedures, aggregates and window functions with the names of those rows. */
  readonly routines?: readonly (readonly [exposed: string, kind: 'p' | 'a' | 'w'])[] | null;
  readonly function_rows: readonly MetadataRow[] | null;
  /** Functions of a row of a table that fields may be computed by. */
  readonly computed: readonly ComputedEntry[] | null;
  /** The schema of each extension, by its name. */
  readonly extensions: Readonly<Record<string, string>> | null;
  /** Configurations of full text search, those of PostgreSQL itself first. */
  readonly text_search: readonly (readonly [schema: string, name: string, isDefault: boolean])[] | null;
  readonly collection_rows: readonly MetadataRow[] | null;
  /** Ordered by `sort`, those without one behind. */
  readonly field_rows: readonly MetadataRow[] | null;
  /** Oldest first. */
  readonly relation_rows: readonly MetadataRow[] | null;
}

/** Columns by name; null for all. */
type RolePrivilegeEntry = readonly [
  role: string,
  table: number,
  mayDelete: boolean,
  select: readonly string[] | null,
  insert: readonly string[] | null,
  update: readonly string[] | null,
  /** Columns whose sequence the role may not use. */
  unnumbered: readonly string[],
];

/** `system`: one of the service's own; `extension`: of a view, the one that it is a part of. */
export type TableEntry = readonly [
  table: number,
  name: string,
  kind: 'r' | 'p' | 'v' | 'm' | 'f',
  schema: string,
  system: boolean,
  extension: string | null,
];

export type ColumnEntry = readonly [
  table: number,
  number: number,
  name: string,
  type: number,
  modifier: number,
  refusesNull: boolean,
  identity: '' | 'a' | 'd',
  generated: '' | 's' | 'v',
];

/** The names and the modifier are those of the type below all domains; the default is that of a domain. */
export type TypeEntry = readonly [
  type: number,
  display: string,
  name: string,
  schema: string,
  isArray: boolean,
  modifier: number,
  refusesNull: boolean,
  defaultExpression: string | null,
  labels: readonly string[] | null,
  /** The type of the elements of an array, or of the bounds of a range or multirange. */
  inner: readonly [kind: InnerKind, type: string, schema: string] | null,
];

type InnerKind = 'array' | 'range' | 'multirange';

/** `inside`: the type below a domain or of an array's elements; null for a composite type. */
export type CompositeEntry = readonly [
  type: number,
  display: string,
  inside: number | null,
  attributes: readonly (readonly [name: string, type: number])[] | null,
];

/** `isPart`: the table's rows are read as those of another one, such as a partition's, or it is one of the service's own. */
export type RowTypeEntry = readonly [type: number, table: string, isPart: boolean];

/**
 * A function that may be called, under the name of its row. `types`, `names` and `modes` are of all arguments, columns of the
 * result included; modes are null if all are of input. `table` is the one whose rows it returns, or a composite type; else 0.
 */
export type FunctionEntry = readonly [
  exposed: string,
  schema: string,
  name: string,
  volatility: 'i' | 's' | 'v',
  returnsSet: boolean,
  result: number,
  table: number,
  types: readonly number[],
  names: readonly string[] | null,
  modes: readonly ('i' | 'o' | 'b' | 'v' | 't')[] | null,
  defaults: number,
  comment: string | null,
  /** The default of each argument as SQL, for functions with a variadic argument, or null. */
  variadicDefaults: readonly (string | null)[] | null,
];

type ComputedEntry = readonly [table: number, name: string, schema: string, result: number];

type DefaultEntry = readonly [table: number, column: number, expression: string];
type IndexEntry = readonly [
  table: number,
  kind: 'primary' | 'unique' | 'index',
  columns: readonly number[],
  name: string,
  isConstraint: boolean,
  method: string,
  /** Whether a row is checked at once, not when the transaction ends. */
  isImmediate: boolean,
  /** Whether two rows with nulls in the same columns are duplicates. */
  equatesNulls?: boolean,
];
/** An action is the letter by which the catalog knows it. */
export type ForeignKeyEntry = readonly [
  table: number,
  column: number,
  schema: string,
  target: string,
  key: string,
  name: string,
  onDelete: string,
  onUpdate: string,
  targetTable: number,
  matchFull: boolean,
  deferrable: Deferrable | null,
];
type CompositeReferenceEntry = readonly [
  table: number,
  columns: readonly string[],
  target: number,
  referenced: readonly string[],
  name: string,
  onDelete: string,
  onUpdate: string,
  matchFull: boolean,
  deferrable: Deferrable | null,
];
type ShardEntry = readonly [table: number, column: string | null];
type SequenceEntry = readonly [table: number, column: number, sequence: string];
/** `bits`: `tgtype` of the catalog. */
export type TriggerEntry = readonly [table: number, name: string, bits: number];
/** `event`: 2 for an update, 3 for an insert, 4 for a delete. */
export type RuleEntry = readonly [table: number, name: string, event: '2' | '3' | '4', isInstead: boolean];
/** `columns`: by their numbers what may be selected, inserted and updated. */
export type PrivilegeEntry = readonly [
  table: number,
  select: boolean,
  insert: boolean,
  update: boolean,
  remove: boolean,
  columns: readonly (readonly [column: number, select: boolean, insert: boolean, update: boolean])[] | null,
];
/** Column 0 is the table itself. */
type CommentEntry = readonly [table: number, column: number, comment: string];
export type MetadataRow = Readonly<Record<string, unknown>>;
