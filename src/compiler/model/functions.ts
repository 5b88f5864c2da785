/**
 * From what the catalog says of functions, and the rows that expose them, to what may be called. A function that cannot be called
 * with named arguments and a result of known columns is kept with the reason, for error messages. Fields without a column may be
 * computed by a function of the row.
 */

import { isObject } from '../../base/exact-json.js';
import type { CatalogDocument, FunctionEntry, MetadataRow, RowTypeEntry } from './catalog-document.js';
import { fieldTypeOf } from './column-types.js';
import type { CatalogFacts, ColumnFacts, TableFacts } from './columns.js';
import { freezeMap } from './freeze.js';
import type { Argument, Collection, Computation, Field, Overload, Returns, ServedFunction } from './model.js';
import { isReserved } from './relations.js';
import { ALL_PRIVILEGES } from './write-facts.js';

interface BuiltFunctions {
  readonly functions: ReadonlyMap<string, ServedFunction>;
  readonly refusedFunctions: ReadonlyMap<string, string>;
}

/** `served` are the collections, by name. */
export function buildFunctions(
  document: CatalogDocument,
  facts: CatalogFacts,
  served: ReadonlyMap<string, Collection>,
): BuiltFunctions {
  const functions = new Map<string, ServedFunction>();
  const refusedFunctions = new Map<string, string>();
  const attributes = new Map((document.composites ?? []).map(([type, , , list]) => [type, list ?? []]));
  const rowTypes = new Map((document.row_types ?? []).map((entry) => [entry[0], entry]));
  for (const row of document.function_rows ?? []) {
    const name = String(row['name']);
    const entries = (document.functions ?? []).filter(([exposed]) => exposed === name);
    const reasons: string[] = [];
    const overloads = entries.flatMap((entry) => {
      const built = buildOverload(entry, { row, facts, served, attributes, rowTypes });
      if (typeof built !== 'string') return [built];
      reasons.push(built);
      return [];
    });
    if (overloads.length > 0)
      functions.set(
        name,
        Object.freeze({
          name,
          note: typeof row['note'] === 'string' ? row['note'] : null,
          overloads: Object.freeze(overloads),
        }),
      );
    else refusedFunctions.set(name, reasons[0] ?? otherRoutine(name, document));
  }
  return { functions: freezeMap(functions), refusedFunctions: freezeMap(refusedFunctions) };
}

const ROUTINES = { p: 'a procedure', a: 'an aggregate', w: 'a window function' } as const;

/** Why there is no function of the name. */
function otherRoutine(name: string, { routines }: CatalogDocument): string {
  const [, kind] = routines?.find(([exposed]) => exposed === name) ?? [];
  return kind
    ? `is ${ROUTINES[kind]}: only functions can be called`
    : 'does not exist, or belongs to PostgreSQL or an extension';
}

interface Context {
  readonly row: MetadataRow;
  readonly facts: CatalogFacts;
  readonly served: ReadonlyMap<string, Collection>;
  /** The attributes of composite types. */
  readonly attributes: ReadonlyMap<number, readonly (readonly [name: string, type: number])[]>;
  readonly rowTypes: ReadonlyMap<number, RowTypeEntry>;
}

/** Types that stand for others, or for what no client can send or read. */
const PSEUDO_TYPES =
  /^(any|anyelement|anyarray|anynonarray|anyenum|anyrange|anymultirange|anycompatible\w*|cstring|internal|_?record|trigger|event_trigger|\w+_handler|unknown|void)$/;

const EMPTY_LIST = "'{}'";

/** Or the reason why it cannot be called. */
function buildOverload(entry: FunctionEntry, context: Context): Overload | string {
  const [name, schema, called, volatility, , , , types, names, modes, , comment, variadicDefaults] = entry;
  const inputs = types.flatMap((type, position) => {
    const mode = modes?.[position] ?? 'i';
    return mode === 'o' || mode === 't'
      ? []
      : [{ name: names?.[position] ?? '', type, variadic: mode === 'v', place: position }];
  });
  const callable = allowedNames(context.row);
  const list: Argument[] = [];
  const withheld: Argument[] = [];
  for (const [position, input] of inputs.entries()) {
    const hasDefault = position >= inputs.length - entry[10];
    if (input.name === '' || isReserved(input.name)) return 'has an argument without a name';
    const facts = context.facts.typed(input.name, input.type);
    if (isPseudo(facts)) return `has the argument "${input.name}" of the type ${facts.column.data_type}`;
    const required = !hasDefault && !input.variadic;
    const declaredArgument = callable?.find((each) => namesArgument(each, input.name));
    const isAllowed = callable === null || declaredArgument !== undefined;
    if (
      declaredArgument !== undefined &&
      declaredArgument !== input.name &&
      !isType(declaredArgument.slice(input.name.length + 1), facts)
    )
      return `has the argument "${input.name}" of the type ${facts.column.data_type}, but its row of service_functions says "${declaredArgument}"`;
    if (!isAllowed && required)
      return `requires the argument "${input.name}", which its row of service_functions does not list`;
    const { variadic, place } = input;
    // Called with names, PostgreSQL fills in no default of a function that has a variadic argument.
    const otherwise = variadicDefaults?.[place] ?? (variadic ? EMPTY_LIST : null);
    const argument = Object.freeze({ name: input.name, field: fieldOf(name, facts), variadic, required, otherwise });
    if (isAllowed) list.push(argument);
    else if (otherwise !== null) withheld.push(argument);
  }
  const returns = returnsOf(entry, context);
  if (typeof returns === 'string') return returns;
  return Object.freeze({
    name,
    schema,
    function: called,
    volatile: volatility === 'v',
    arguments: Object.freeze(list),
    withheld: Object.freeze(withheld),
    returns: Object.freeze(returns),
    comment,
  });
}

/** As the row names them: `id`, or `id integer` of several forms that differ in types alone. */
function allowedNames(row: MetadataRow): readonly string[] | null {
  return Array.isArray(row['arguments']) ? row['arguments'].map(String) : null;
}

/** Whether an entry of a row's `arguments` is this one, with or without its type. */
export function namesArgument(entry: string, argument: string): boolean {
  return entry === argument || entry.startsWith(`${argument} `);
}

/** As PostgreSQL prints it, or as the catalog calls it (`int4`). */
function isType(text: string, { column }: ColumnFacts): boolean {
  const name = text.trim().toLowerCase();
  return name === column.data_type.toLowerCase() || name === column.base_type.toLowerCase();
}

function isPseudo({ column }: ColumnFacts): boolean {
  return column.base_schema === 'pg_catalog' && PSEUDO_TYPES.test(column.base_type);
}

function returnsOf(entry: FunctionEntry, context: Context): Returns | string {
  const { facts, served, attributes, rowTypes } = context;
  const [name, , , , set, result, table, types, names, modes] = entry;
  const outputs = types.flatMap((type, position) => {
    const mode = modes?.[position] ?? 'i';
    return mode === 'o' || mode === 'b' || mode === 't' ? [[names?.[position] ?? '', type, mode] as const] : [];
  });
  const isTable = outputs.some(([, , mode]) => mode === 't');
  const items = served.get(facts.names.get(table) ?? '');
  if (outputs.length > 1 || isTable) return recordOf(name, set, outputs, context);
  if (items) return { kind: 'items', set, collection: items.name };
  const [, rows, isPart] = rowTypes.get(result) ?? [];
  if (table !== 0 && isPart) return `returns rows of ${rows}, a partition or child table that is not served itself`;
  if (table !== 0) return recordOf(name, set, attributes.get(result) ?? [], context);
  if (rows !== undefined) return holdsRows(rows);
  const value = facts.typed(VALUE, result);
  const collection = resultOf(name, [fieldOf(name, value)]);
  if (value.column.base_type === 'void' && !set) return { kind: 'nothing', collection };
  return isPseudo(value) ? returnsType(value) : { kind: 'value', set, collection };
}

/** Permissions apply to the rows that a function returns, not to rows inside other values. */
function holdsRows(table: string): string {
  return `returns rows of ${table} inside another type, where the permissions to read them would not apply`;
}

function returnsType({ column }: ColumnFacts): string {
  return `returns the type ${column.data_type}`;
}

/** The column of a result that has none. */
const VALUE = 'value';

function recordOf(
  name: string,
  set: boolean,
  columns: readonly (readonly [name: string, type: number, ...unknown[]])[],
  { facts, rowTypes }: Context,
): Returns | string {
  const [, rows] = columns.map(([, type]) => rowTypes.get(type)).find((each) => each !== undefined) ?? [];
  if (rows !== undefined) return holdsRows(rows);
  const typed = columns.map(([column, type], position) =>
    facts.typed(column === '' ? `column${position + 1}` : column, type),
  );
  const pseudo = typed.find(isPseudo);
  if (pseudo) return returnsType(pseudo);
  const fields = typed.map((each) => fieldOf(name, each));
  if (fields.length === 0) return 'returns rows without columns';
  if (fields.some((field) => isReserved(field.name))) return 'returns a column whose name starts with %';
  return { kind: 'record', set, collection: resultOf(name, fields) };
}

function fieldOf(name: string, { column, type }: ColumnFacts): Field {
  return Object.freeze({
    collection: name,
    name: column.name,
    type: fieldTypeOf(type, []),
    special: Object.freeze([]),
    column,
    relation: null,
    meta: null,
  });
}

/** Such rows have no key. */
function resultOf(name: string, fields: readonly Field[]): Collection {
  return Object.freeze({
    name,
    schema: '',
    table: name,
    kind: 'view',
    system: false,
    references: [],
    key: Object.freeze([]),
    uniqueKeys: Object.freeze([]),
    keysWithNulls: Object.freeze([]),
    shardColumn: null,
    distributed: false,
    rowTag: null,
    fields: freezeMap(new Map(fields.map((field) => [field.name, field]))),
    singleton: false,
    sortField: null,
    searchField: null,
    accountability: null,
    triggers: [],
    rules: [],
    isWrittenInBatches: false,
    hasRowSecurity: false,
    isInherited: false,
    followedColumns: [],
    isExclusive: false,
    hasLockableRows: true,
    privileges: ALL_PRIVILEGES,
    comment: null,
    meta: null,
  });
}

interface ComputedFacts extends ColumnFacts {
  readonly computed: Computation;
}

/** The type of a computed field, or null if no such function exists, or if it returns rows of a table or a `record`. */
export type FindComputed = (table: TableFacts, field: string, meta: MetadataRow | null) => ComputedFacts | null;

/** `options` of the field may name the function and its schema; else it has the name of the field and is in the schema of the table. */
export function computedBy({ computed, row_types }: CatalogDocument, facts: CatalogFacts): FindComputed {
  const rowTypes = new Set((row_types ?? []).map(([type]) => type));
  return (table, field, meta) => {
    const options = isObject(meta?.['options']) ? meta['options'] : {};
    const functionName = typeof options['function'] === 'string' ? options['function'] : field;
    const schema = typeof options['schema'] === 'string' ? options['schema'] : table.schema;
    const entry = (computed ?? []).find(
      ([oid, name, place]) => name === functionName && place === schema && facts.names.get(oid) === table.name,
    );
    if (!entry || rowTypes.has(entry[3])) return null;
    const typed = facts.typed(field, entry[3]);
    if (isPseudo(typed)) return null;
    const { column, type } = typed;
    const readOnly = Object.freeze({ ...column, table: table.name, is_generated: true });
    return { column: readOnly, type, computed: Object.freeze({ schema, function: functionName }) };
  };
}
