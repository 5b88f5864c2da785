/**
 * Puts the lists of the catalogs together: tables with their columns, triggers, rules and privileges, without the metadata. A column needs facts
 * from eight lists; each list is walked once and found again by one number made of table and column.
 */
import { elementAt } from '../../base/narrow.js';
import type { Steps } from '../../base/time-slices.js';
import type { Composite } from '../sql/composite.js';
import type {
  CatalogDocument,
  ColumnEntry,
  CompositeEntry,
  ForeignKeyEntry,
  PrivilegeEntry,
  RuleEntry,
  TableEntry,
  TriggerEntry,
  TypeEntry,
} from './catalog-document.js';
import { choicesOf, columnTypeOf, defaultValueOf, lengthOf, precisionOf, scaleOf, sridOf } from './column-types.js';
import { freezeMap } from './freeze.js';
import type {
  Column,
  CompositeReference,
  Deferrable,
  FieldType,
  ForeignKey,
  ForeignKeyAction,
  ForeignKeyBehaviour,
  Index,
  RowTag,
  TableKind,
} from './model.js';
import {
  ALL_PRIVILEGES,
  type ColumnPrivileges,
  type RewriteRule,
  type TablePrivileges,
  type Trigger,
} from './write-facts.js';

export interface TableFacts {
  /** As a collection. */
  readonly name: string;
  readonly schema: string;
  readonly table: string;
  readonly system: boolean;
  readonly kind: TableKind;
  /** The extension that a view is part of, or null. */
  readonly extension: string | null;
  readonly comment: string | null;
  /** The columns of the primary key, else of a unique index that refuses nulls, else as declared, in the order of the key. */
  readonly key: readonly string[];
  /** Columns of unique indexes over all rows that are checked at once. */
  readonly uniqueKeys: readonly (readonly string[])[];
  readonly keysWithNulls: readonly (readonly string[])[];
  readonly references: readonly CompositeReference[];
  readonly shardColumn: string | null;
  readonly distributed: boolean;
  readonly rowTag: RowTag | null;
  readonly triggers: readonly Trigger[];
  readonly rules: readonly RewriteRule[];
  readonly isWrittenInBatches: boolean;
  readonly hasRowSecurity: boolean;
  readonly isInherited: boolean;
  readonly followedColumns: readonly string[];
  readonly isExclusive: boolean;
  readonly hasLockableRows: boolean;
  /** Whether its row-level security does not bind the service, although callers rely on it. */
  readonly isExempt: boolean;
  readonly privileges: TablePrivileges;
  readonly columns: ReadonlyMap<string, ColumnFacts>;
}

export interface ColumnFacts {
  readonly column: Column;
  /** Before special flags. */
  readonly type: FieldType;
}

const KINDS: Readonly<Record<TableEntry[2], TableKind>> = {
  r: 'table',
  p: 'partitioned',
  f: 'foreign',
  v: 'view',
  m: 'view',
};

export interface CatalogFacts {
  readonly tables: readonly TableFacts[];
  /** The names of the collections by the numbers of their tables. */
  readonly names: ReadonlyMap<number, string>;
  /** As a column of the type would be: for an argument of a function, or a column of its result. */
  typed(name: string, type: number): ColumnFacts;
}

/** `names` of the collections, by table; `declaredKeys`: a column or several, by name of the collection. */
export function* assembleTables(
  document: CatalogDocument,
  names: ReadonlyMap<number, string>,
  declaredKeys: ReadonlyMap<string, string>,
): Steps<CatalogFacts> {
  const lookups = indexLists(document, names);
  yield;
  const columns = groupColumns(document.columns ?? []);
  const distributed = new Map(document.distributed ?? []);
  const shards = new Map([...(document.shards ?? []), ...distributed]);
  const exempt = new Set(document.exempt);
  const rowTagOf = rowTags(document);
  const tables: TableFacts[] = [];
  for (const [table, relation, kind, schema, system, extension] of document.tables ?? []) {
    const name = names.get(table);
    if (name === undefined) continue;
    yield;
    const entries = columns.get(table) ?? [];
    const isArray = ([, , , type]: ColumnEntry): boolean => lookups.types.get(type)?.[4] === true;
    const candidateKey = keyOf(entries, lookups.keys.get(table) ?? NONE, declaredKeys.get(name));
    // There is no list of such keys: PostgreSQL has no arrays of arrays.
    const key = entries.some((entry) => candidateKey.includes(entry[2]) && isArray(entry)) ? NONE : candidateKey;
    tables.push({
      name,
      schema,
      table: relation,
      system,
      kind: KINDS[kind],
      extension,
      comment: lookups.comments.get(columnIdOf(table, 0)) ?? null,
      key,
      uniqueKeys: uniqueKeysOf(entries, lookups.keys.get(table) ?? NONE),
      keysWithNulls: uniqueKeysOf(
        entries,
        (lookups.keys.get(table) ?? NONE).filter(({ equatesNulls }) => equatesNulls),
      ),
      references: lookups.references.get(table) ?? NONE,
      shardColumn: shards.get(table) ?? null,
      distributed: distributed.has(table),
      rowTag: rowTagOf(table),
      triggers: lookups.writes.triggers.get(table) ?? NONE,
      rules: lookups.writes.rules.get(table) ?? NONE,
      isWrittenInBatches: !lookups.writes.unbatched.has(table),
      hasRowSecurity: lookups.writes.rowSecurity.has(table),
      isInherited: lookups.writes.inherited.has(table),
      followedColumns: lookups.writes.followed.get(table) ?? NONE,
      isExclusive: lookups.writes.exclusive.has(table),
      hasLockableRows: !lookups.writes.unlockable.has(table),
      isExempt: exempt.has(table),
      privileges: lookups.writes.privileges.get(table) ?? ALL_PRIVILEGES,
      columns: new Map(
        entries.map((entry) => [entry[2], assembleColumn(entry, name, key.includes(entry[2]), lookups)]),
      ),
    });
  }
  const typed = (name: string, type: number): ColumnFacts =>
    assembleColumn([0, 0, name, type, -1, false, '', ''], '', false, lookups);
  return { tables, names, typed };
}

/** How to distinguish the versions of a row, by table. */
function rowTags(document: CatalogDocument): (table: number) => RowTag | null {
  const distributed = new Map(document.distributed ?? []);
  const digested = new Map(document.digested ?? []);
  // A role that may read only some columns of a table may not read xmin.
  const partial = new Set([
    ...ownPrivileges(document).flatMap(([table, mayRead]) => (mayRead ? [] : [table])),
    ...(document.role_privileges?.tables ?? []).flatMap(([, table, , read]) => (read?.length ? [table] : [])),
  ]);
  return (table) => {
    if (digested.get(table) === false) return null;
    return distributed.has(table) || digested.has(table) || partial.has(table) ? 'digest' : 'xmin';
  };
}

/** Columns that can be the key of a table, by their numbers. */
interface KeyCandidate {
  readonly isPrimary: boolean;
  readonly columns: readonly number[];
  readonly equatesNulls: boolean;
}

/** Candidates come in the order of their names. If there are several unique indexes, the one on the fewest columns is the key. */
function keyOf(
  entries: readonly ColumnEntry[],
  candidates: readonly KeyCandidate[],
  declared: string | undefined,
): readonly string[] {
  const byNumber = new Map(entries.map((entry) => [entry[1], entry]));
  const refusesNulls = ({ columns }: KeyCandidate): boolean => columns.every((number) => byNumber.get(number)?.[5]);
  const [best] = candidates
    .filter((each) => each.isPrimary || refusesNulls(each))
    .sort((one, other) => rank(one) - rank(other));
  if (best) return best.columns.flatMap((number) => byNumber.get(number)?.[2] ?? []);
  const names = new Set(entries.map((entry) => entry[2]));
  if (declared === undefined) return NONE;
  const declaredKey = names.has(declared) ? [declared] : [...new Set(listOf(declared))];
  return declaredKey.every((name) => names.has(name)) ? declaredKey : NONE;
}

function uniqueKeysOf(entries: readonly ColumnEntry[], candidates: readonly KeyCandidate[]) {
  const names = new Map(entries.map(([, number, name]) => [number, name]));
  return Object.freeze(
    candidates.map(({ columns }) => Object.freeze(columns.flatMap((number) => names.get(number) ?? []))),
  );
}

function rank({ isPrimary, columns }: KeyCandidate): number {
  return isPrimary ? 0 : columns.length;
}

interface Lookups {
  readonly types: ReadonlyMap<number, TypeEntry>;
  readonly composites: ReadonlyMap<number, Composite>;
  readonly defaults: ReadonlyMap<number, string>;
  /** By table. */
  readonly keys: ReadonlyMap<number, readonly KeyCandidate[]>;
  readonly unique: ReadonlySet<number>;
  readonly indexed: ReadonlySet<number>;
  readonly foreignKeys: ReadonlyMap<number, readonly ForeignKey[]>;
  readonly indexes: ReadonlyMap<number, readonly Index[]>;
  readonly references: ReadonlyMap<number, readonly CompositeReference[]>;
  readonly sequences: ReadonlyMap<number, string>;
  /** By checks. */
  readonly choices: ReadonlyMap<number, readonly string[]>;
  readonly writes: WriteFacts;
  readonly comments: ReadonlyMap<number, string>;
}

function assembleColumn(entry: ColumnEntry, table: string, isPrimaryKey: boolean, lookups: Lookups): ColumnFacts {
  const [oid, number, name, typeOid, columnModifier, refusesNull, identity, generated] = entry;
  const columnId = columnIdOf(oid, number);
  const type = lookups.types.get(typeOid) ?? UNKNOWN_TYPE;
  const [
    ,
    data_type,
    base_type,
    base_schema,
    is_array,
    domainModifier,
    domainRefusesNull,
    domainDefault,
    labels,
    inner,
  ] = type;
  const modifier = columnModifier === -1 ? domainModifier : columnModifier;
  const facts = { base_type, base_schema, is_array, enum_values: labels && Object.freeze(labels) };
  const expression = lookups.defaults.get(columnId) ?? null;
  const default_expression = generated ? null : (expression ?? domainDefault);
  const has_auto_increment = identity !== '' || default_expression?.startsWith('nextval(') === true;
  const foreign_keys: readonly ForeignKey[] = lookups.foreignKeys.get(columnId) ?? NONE;
  const fieldType = columnTypeOf(facts, modifier);
  const column: Column = {
    name,
    table,
    data_type,
    base_type,
    base_schema,
    is_array,
    enum_values: facts.enum_values,
    choices: facts.enum_values ?? lookups.choices.get(columnId) ?? null,
    composite: lookups.composites.get(typeOid) ?? null,
    inner: inner && Object.freeze({ kind: inner[0], type: inner[1], schema: inner[2] }),
    default_value: defaultValueOf(default_expression, fieldType),
    default_expression,
    max_length: lengthOf(facts, modifier),
    numeric_precision: precisionOf(facts, modifier),
    numeric_scale: scaleOf(facts, modifier),
    srid: sridOf(facts, modifier),
    is_generated: generated !== '',
    generation_expression: generated ? expression : null,
    is_nullable: !(refusesNull || domainRefusesNull),
    is_filled: lookups.writes.filled.has(oid),
    is_unique: lookups.unique.has(columnId),
    is_indexed: lookups.indexed.has(columnId),
    is_primary_key: isPrimaryKey,
    has_auto_increment,
    identity: identity === '' ? null : identity === 'a' ? 'always' : 'default',
    sequence: has_auto_increment ? (lookups.sequences.get(columnId) ?? null) : null,
    foreign_key_schema: foreign_keys[0]?.schema ?? null,
    foreign_key_table: foreign_keys[0]?.table ?? null,
    foreign_key_column: foreign_keys[0]?.column ?? null,
    foreign_keys,
    indexes: lookups.indexes.get(columnId) ?? NONE,
    privileges: lookups.writes.privilegesOf(oid, number),
    comment: lookups.comments.get(columnId) ?? null,
  };
  return { column: Object.freeze(column), type: fieldType };
}

/** A type that was dropped between the catalog's snapshot and the printing of its name. */
const UNKNOWN_TYPE: TypeEntry = [0, 'unknown', 'unknown', 'pg_catalog', false, -1, false, null, null, null];

const NONE: readonly never[] = Object.freeze([]);

/** `names` of the collections, by table. */
function indexLists(document: CatalogDocument, names: ReadonlyMap<number, string>): Lookups {
  const keys = new Map<number, KeyCandidate[]>();
  const unique = new Set<number>();
  const indexed = new Set<number>();
  const indexes = new Map<number, Index[]>();
  for (const [table, kind, columns, name, constraint, method, isImmediate, equatesNulls = false] of document.indexes ??
    []) {
    if (kind === 'primary' || (kind === 'unique' && isImmediate))
      append(keys, table, { isPrimary: kind === 'primary', columns, equatesNulls });
    for (const column of columns) {
      const columnId = columnIdOf(table, column);
      if (kind !== 'index' && columns.length === 1) unique.add(columnId);
      if (kind === 'index') indexed.add(columnId);
      if (columns.length === 1) append(indexes, columnId, Object.freeze({ name, kind, constraint, method }));
    }
  }
  const foreignKeys = new Map<number, ForeignKey[]>();
  for (const entry of document.foreign_keys ?? [])
    append(foreignKeys, columnIdOf(entry[0], entry[1]), foreignKeyOf(entry, names));
  const references = new Map<number, CompositeReference[]>();
  for (const [table, columns, target, referenced, name, ...behaviour] of document.composite_references ?? []) {
    const collection = names.get(target);
    const pairs = columns.map((column, position) => ({ column, referenced: elementAt(referenced, position) }));
    if (collection !== undefined)
      append(
        references,
        table,
        Object.freeze({ name, collection, columns: Object.freeze(pairs), ...behaviourOf(...behaviour) }),
      );
  }
  return {
    references,
    types: new Map((document.types ?? []).map((entry) => [entry[0], entry])),
    composites: compositesOf(document.composites ?? []),
    defaults: byPlace(document.defaults),
    keys,
    unique,
    indexed,
    foreignKeys,
    indexes,
    sequences: byPlace(document.sequences),
    choices: choicesByPlace(document.checks ?? []),
    writes: indexWriteFacts(document),
    comments: byPlace(document.comments),
  };
}

function choicesByPlace(checks: NonNullable<CatalogDocument['checks']>): ReadonlyMap<number, readonly string[]> {
  return new Map(
    checks.flatMap(([table, column, expression]) => {
      const choices = choicesOf(expression);
      return choices ? [[columnIdOf(table, column), choices] as const] : [];
    }),
  );
}

/** By the type of a column: below its domains and arrays. A composite type cannot hold itself, so the walk ends. */
function compositesOf(entries: readonly CompositeEntry[]): ReadonlyMap<number, Composite> {
  const entryOf = new Map(entries.map((entry) => [entry[0], entry]));
  const composites = new Map<number, Composite>();
  const find = (type: number): Composite | null => {
    const cached = composites.get(type);
    const entry = entryOf.get(type);
    if (cached || !entry) return cached ?? null;
    const [, display, inside, attributes] = entry;
    const composite =
      inside === null
        ? Object.freeze({
            type: display,
            attributes: freezeMap(new Map((attributes ?? []).map(([name, each]) => [name, find(each)]))),
          })
        : find(inside);
    if (composite) composites.set(type, composite);
    return composite;
  };
  for (const [type] of entries) find(type);
  return composites;
}

/** The entries of comma separated text. */
export function listOf(value: unknown): string[] {
  return typeof value === 'string' ? value.split(',').flatMap((entry) => entry.trim() || []) : [];
}

function append<Entry>(groups: Map<number, Entry[]>, columnId: number, entry: Entry): void {
  const group = groups.get(columnId);
  if (group) group.push(entry);
  else groups.set(columnId, [entry]);
}

const ACTIONS: Readonly<Record<string, ForeignKeyAction>> = {
  r: 'RESTRICT',
  c: 'CASCADE',
  n: 'SET NULL',
  d: 'SET DEFAULT',
};

function actionOf(letter: string): ForeignKeyAction {
  return ACTIONS[letter] ?? 'NO ACTION';
}

function foreignKeyOf(entry: ForeignKeyEntry, names: ReadonlyMap<number, string>): ForeignKey {
  const [, , schema, table, column, name, onDelete, onUpdate, target, matchFull, deferrable] = entry;
  return Object.freeze({
    name,
    schema,
    table,
    column,
    collection: names.get(target) ?? null,
    ...behaviourOf(onDelete, onUpdate, matchFull, deferrable),
  });
}

/** The behaviour of a foreign key; pg_constraint has its actions as letters. */
export function behaviourOf(
  onDelete: string,
  onUpdate: string,
  matchFull: boolean,
  deferrable: Deferrable | null,
): ForeignKeyBehaviour {
  return {
    on_delete: actionOf(onDelete),
    on_update: actionOf(onUpdate),
    ...(matchFull ? { match: 'FULL' as const } : {}),
    ...(deferrable ? { deferrable } : {}),
  };
}

function byPlace(entries: readonly (readonly [number, number, string])[] | null): ReadonlyMap<number, string> {
  return new Map((entries ?? []).map(([table, column, text]) => [columnIdOf(table, column), text]));
}

function groupColumns(entries: readonly ColumnEntry[]): ReadonlyMap<number, readonly ColumnEntry[]> {
  const groups = new Map<number, ColumnEntry[]>();
  for (const entry of entries) append(groups, entry[0], entry);
  return groups;
}

/** Tables have at most 1600 columns and oids 32 bits: the product stays far below 2^53. */
function columnIdOf(table: number, column: number): number {
  return table * 2048 + column;
}

interface WriteFacts {
  /** All of these by table. */
  readonly triggers: ReadonlyMap<number, readonly Trigger[]>;
  readonly rules: ReadonlyMap<number, readonly RewriteRule[]>;
  readonly privileges: ReadonlyMap<number, TablePrivileges>;
  /** Tables with a trigger that may change a row before it is inserted. */
  readonly filled: ReadonlySet<number>;
  /** Tables with row security or constraints that can be deferred. */
  readonly unbatched: ReadonlySet<number>;
  readonly rowSecurity: ReadonlySet<number>;
  readonly inherited: ReadonlySet<number>;
  readonly followed: ReadonlyMap<number, readonly string[]>;
  readonly exclusive: ReadonlySet<number>;
  readonly unlockable: ReadonlySet<number>;
  privilegesOf(table: number, column: number): ColumnPrivileges;
}

/** Statements that run with the roles of callers need no privilege of the service's own role. */
function ownPrivileges({ privileges, role_privileges: ofCallers }: CatalogDocument): readonly PrivilegeEntry[] {
  return ofCallers ? NONE : (privileges ?? NONE);
}

function indexWriteFacts(document: CatalogDocument): WriteFacts {
  const privileges = new Map<number, TablePrivileges>();
  const ofColumns = new Map<number, ReadonlyMap<number, ColumnPrivileges>>();
  for (const [table, select, insert, update, remove, columns] of ownPrivileges(document)) {
    privileges.set(table, Object.freeze({ select, insert, update, delete: remove }));
    ofColumns.set(
      table,
      new Map(
        (columns ?? []).map(([number, ...rights]) => {
          const [mayRead, mayInsert, mayUpdate] = rights;
          return [number, Object.freeze({ select: mayRead, insert: mayInsert, update: mayUpdate })];
        }),
      ),
    );
  }
  return {
    triggers: byTable(document.triggers ?? [], triggerOf),
    rules: byTable(document.rules ?? [], ruleOf),
    privileges,
    unbatched: new Set(document.unbatched ?? []),
    rowSecurity: new Set(document.row_security ?? []),
    inherited: new Set(document.inherited ?? []),
    followed: byTable(document.followed ?? [], ([, column]) => column),
    exclusive: new Set(document.exclusive ?? []),
    unlockable: new Set(document.unlockable ?? []),
    filled: new Set((document.triggers ?? []).flatMap(([table, , bits]) => (fills(bits) ? [table] : []))),
    privilegesOf: (table, column) => ofColumns.get(table)?.get(column) ?? ALL_PRIVILEGES,
  };
}

function byTable<Entry extends readonly [table: number, ...unknown[]], Fact>(
  entries: readonly Entry[],
  factOf: (entry: Entry) => Fact,
): ReadonlyMap<number, readonly Fact[]> {
  const facts = new Map<number, Fact[]>();
  for (const entry of entries) append(facts, entry[0], Object.freeze(factOf(entry)));
  return facts;
}

/** `tgtype` of the catalog. */
const ROW = 1;
const BEFORE = 2;
const INSTEAD_OF = 64;
const EVENTS = [
  [4, 'insert'],
  [16, 'update'],
  [8, 'delete'],
  [32, 'truncate'],
] as const;

function triggerOf([, name, bits]: TriggerEntry): Trigger {
  const timing = bits & INSTEAD_OF ? 'instead of' : bits & BEFORE ? 'before' : 'after';
  return {
    name,
    timing,
    level: bits & ROW ? 'row' : 'statement',
    events: EVENTS.flatMap(([bit, event]) => (bits & bit ? [event] : [])),
  };
}

/** Before an insert, for each row. */
function fills(bits: number): boolean {
  return (bits & (ROW | BEFORE | 4)) === (ROW | BEFORE | 4);
}

const RULE_EVENTS: Readonly<Record<RuleEntry[2], RewriteRule['event']>> = { 2: 'update', 3: 'insert', 4: 'delete' };

function ruleOf([, name, event, instead]: RuleEntry): RewriteRule {
  return { name, event: RULE_EVENTS[event], instead };
}
