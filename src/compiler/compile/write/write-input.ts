/**
 * The parts of a write chain before it writes: the names that its parts share, the columns of its input and the values that are looked up
 * by them, the keys of new rows, and the record of a request with an `Idempotency-Key`.
 */
import { writeJson } from '../../../base/exact-json.js';
import { elementAt } from '../../../base/narrow.js';
import { countedKey, isKey, singleKey } from '../../model/item-key.js';
import type { Collection, Field } from '../../model/model.js';
import type { WriteColumn, WriteInput, WriteNode, WritePlan } from '../../plan/write/write.js';
import type { IdempotencyKey } from '../../request/write.js';
import {
  alias,
  expression,
  type Fragment,
  identifier,
  integerLiteral,
  join,
  literal,
  nothing,
  parameter,
  sql,
} from '../../sql/fragment.js';
import { arrayLiteral } from '../../sql/literal.js';
import { areEqual, operatorOf } from '../compare.js';
import { FromClause, type Scope } from '../from-clause.js';
import { geometryOf, isGeometry } from '../geometry.js';
import { columnName, tableName, typeName } from '../identifiers.js';
import { commaList, inputKeyDefinitions, inputKeyNames, keyColumns } from '../key-columns.js';

/** The values of a write, in this order, followed by those of its lists, then those of its unlinks. */
const SLOTS = ['by', 'root', 'id', 'fingerprint', 'lifetime', 'shard', 'tags'] as const;

export function slotOf(name: (typeof SLOTS)[number]): Fragment {
  return parameter({ kind: 'text', slot: SLOTS.indexOf(name) });
}

/** The author of the change. */
export const AUTHOR = sql`${slotOf('by')}::json`;

function documentAt(position: number): Fragment {
  return sql`${parameter({ kind: 'text', slot: SLOTS.length + position })}::json`;
}

export function unlinkDocument({ nodes }: WritePlan, position: number): Fragment {
  return documentAt(nodes.length + position);
}

/** The caller and the digest of a request that is carried out once, and how long that is known. */
export interface Receipt extends IdempotencyKey {
  readonly lifetime: string;
}

/** The row parts of entity tags, or null if the write does not depend on them. */
export type Tags = readonly string[] | null;

export function tagList(tags: Tags): string | null {
  return tags && arrayLiteral(tags);
}

/** The values of the parameters. `shard`: the value that all rows have in their distribution column. */
export function inputValues(
  { nodes, unlinks, root, by }: WriteInput,
  receipt: Receipt | null,
  shard: string | null = null,
  tags: Tags = null,
): (string | null)[] {
  const { id, fingerprint, lifetime } = receipt ?? { id: null, fingerprint: null, lifetime: null };
  const documents = [...nodes, ...unlinks].map(writeJson);
  return [writeJson(by), `{${root.join()}}`, id, fingerprint, lifetime, shard, tagList(tags), ...documents];
}

/** For a table of Citus: the row is on the server of all rows of the payload. Without a value that the planner sees, Citus cannot lock rows. */
export function andOnShard({ distributed, shardColumn, fields }: Collection, row: Fragment): Fragment {
  const field = distributed && shardColumn !== null ? fields.get(shardColumn) : undefined;
  return field
    ? sql` and ${row}.${columnName(field)} ${operatorOf(field, '=')} ${slotOf('shard')}::${typeName(field)}`
    : nothing;
}

/** The rows of a list as they came, with their keys. */
export function input(position: number): Fragment {
  return alias(`i${position}`);
}

/** The statement that writes a list. */
export function written(position: number): Fragment {
  return alias(`w${position}`);
}

/** Ends the statement with the number of the first row of a list that meets the condition, and with that of a column if one is given. */
export function refuseFirst(
  position: number,
  word: string | number,
  { where, joins = nothing, column }: { readonly where: Fragment; readonly joins?: Fragment; readonly column?: number },
): Fragment {
  const row = alias('i');
  const reason = sql`${literal(`${position} ${word} `)} || ${row}.n::text`;
  const ofColumn = column === undefined ? nothing : sql` || ${literal(` ${column}`)}`;
  return sql`(select service_refuse(${reason}${ofColumn})
    from ${input(position)} ${row}${joins}
    where ${where}
    order by ${row}.n
    limit 1)`;
}

/** Whether the row at hand has the column, where that differs between rows. */
export function present(node: WriteNode, column: WriteColumn): Fragment {
  return sql`${alias('i')}.${identifier(`p${node.columns.indexOf(column)}`)}`;
}

/** The column that is written to the field of a new row, or of a changed one. */
export function columnOf(node: WriteNode, field: Field | null, verb: 'insert' | 'update'): WriteColumn | undefined {
  return node.columns.find((column) => column.field === field && (column.only ?? verb) === verb);
}

/** Whether rows that exist get it. */
export function isChanged({ only }: WriteColumn): boolean {
  return only === null || only === 'update';
}

/** Where a chain leaves the keys that it made, for the rest of its transaction. */
export const KEYS_SETTING = sql`'lateral.keys'`;

/** The setting for one part of keys of several columns. */
export function keyPartSetting(position: number): Fragment {
  return literal(`lateral.key${position}`);
}

/** The rows of a list as they came, under the alias `x`, with their numbers from one on. */
export function inputRows(node: WriteNode, position: number): Fragment {
  const columns = inputColumns(node);
  const row = alias('x');
  if (columns.length === 0)
    return sql`json_array_elements(${documentAt(position)}) with ordinality as ${row} (${alias('v')}, n)`;
  const keys = hasKeyColumns(node) ? inputKeyNames(node.collection) : [];
  const names = commaList([...keys, ...inputNames(node).map((name) => identifier(name)), sql`n`]);
  return sql`rows from (json_to_recordset(${documentAt(position)}) as (${commaList(columns)})) with ordinality as ${row} (${names})`;
}

/** Whether rows of the input have columns for their key. Without them, new rows get generated keys. */
export function hasKeyColumns(node: WriteNode): boolean {
  const key = singleKey(node.collection);
  if (key === null) return !makesParts(node);
  return node.bringsKeys || node.conflict !== null || makesParts(node) || madeKey(node) === null;
}

/** With their types. */
function inputColumns(node: WriteNode): Fragment[] {
  const { collection } = node;
  const columns = hasKeyColumns(node) ? inputKeyDefinitions(collection, inputKeyNames(collection)) : [];
  if (node.guard?.perRow) columns.push(sql`a text`);
  node.columns.forEach((column, index) => {
    if (column.holdsValues) columns.push(sql`${identifier(`c${index}`)} ${inputType(column.field)}`);
    if (column.choosesOperator) columns.push(sql`${identifier(`o${index}`)} text`);
    if (column.mixed) columns.push(sql`${identifier(`p${index}`)} bool`);
    if (column.lookup) {
      const names = lookupNames(column.lookup, index).map((name) => identifier(name));
      columns.push(...inputKeyDefinitions(column.lookup.collection, names));
    }
    if (column.endOf) columns.push(sql`${identifier(`e${index}`)} int4`);
    if (column.caller) columns.push(sql`${identifier(`v${index}`)} bool`);
    columns.push(...column.references.map((_, table) => sql`${identifier(`r${index}_${table}`)} int4`));
  });
  return columns;
}

/** Read from the row as it is; nothing can refer to a row that is not there, that has nothing there, or that may not be read. */
export function lookupValue(lookup: NonNullable<WriteColumn['lookup']>, index: number, scope: Scope): Fragment {
  const { collection, field } = lookup;
  const keys = lookupNames(lookup, index).map((name) => sql`${alias('i')}.${identifier(name)}`);
  const [key] = keys;
  const row = new FromClause(alias('h'), scope, collection);
  const referencedColumn = row.column([], field);
  const value = sql`(select ${referencedColumn}
    from ${row.from(areEqual(keyColumns(collection, row.alias), keys, collection.key))})`;
  const missing = sql`case when service_raise('missing') then null::${typeName(field)} end`;
  return sql`case when ${key as Fragment} is not null then coalesce(${value}, ${missing}) end`;
}

function lookupNames({ collection: { key } }: NonNullable<WriteColumn['lookup']>, index: number): string[] {
  return key.length === 1 ? [`h${index}`] : key.map((_, part) => `h${index}_${part}`);
}

/**
 * New rows whose key has several columns, or refers to a row that is new as well: the values of these columns become the key in
 * the input.
 */
export function makesParts({ verb, collection, conflict, columns }: WriteNode): boolean {
  if (verb !== 'insert' || conflict) return false;
  const key = singleKey(collection);
  return (
    key === null ||
    columns.some(({ field, references, only }) => field === key && references.length > 0 && only !== 'key')
  );
}

/** The columns of a list that are parts of its key, and hold its value. */
export function keyParts({ collection, columns }: WriteNode): WriteColumn[] {
  return columns.filter(({ field, only }) => only !== 'key' && isKey(collection, field));
}

export function inputNames(node: WriteNode): string[] {
  const marks = node.guard?.perRow ? ['a'] : [];
  const names = node.columns.flatMap((column, index) => [
    ...(column.holdsValues ? [`c${index}`] : []),
    ...(column.choosesOperator ? [`o${index}`] : []),
    ...(column.mixed ? [`p${index}`] : []),
    ...(column.lookup ? lookupNames(column.lookup, index) : []),
    ...(column.endOf ? [`e${index}`] : []),
    ...(column.caller ? [`v${index}`] : []),
    ...column.references.map((_, table) => `r${index}_${table}`),
  ]);
  return [...marks, ...names];
}

export function inputType(field: Field): Fragment {
  return isGeometry(field) ? sql`text` : typeName(field);
}

export function inputValue(field: Field, value: Fragment): Fragment {
  return isGeometry(field) ? geometryOf(value, field) : value;
}

/** The value that an operator changes in a new row: the default of the column. */
export function storedAtFirst(field: Field): Fragment {
  return sql`(${initialValue(field) ?? sql`null`})::${typeName(field)}`;
}

/** Whether rows come without keys and get them here: new ones, and those that turn out to be. */
export function makesKeys({ verb, conflict }: WriteNode): boolean {
  return verb === 'insert' || conflict !== null;
}

/** Whether the role that the statement runs with may give new rows a value of the column. */
function mayNumber({ privileges }: WriteNode, column: string): boolean {
  return (privileges?.create?.has(column) ?? true) && !privileges?.unnumbered.has(column);
}

/** Whether rows are inserted without the column of their key, since the database alone can fill it. */
export function isLeftOut(node: WriteNode, field: Field): boolean {
  const isBrought = node.bringsKeys || (makesParts(node) && keyParts(node).some((column) => column.field === field));
  if (!makesKeys(node) || isBrought) return false;
  if (!field.column?.privileges.insert || !mayNumber(node, field.column.name)) return true;
  return node.collection.kind === 'view' && initialValue(field) === null;
}

/** The key of one column that the chain generates for a new row, or null if the payload or the database supplies it. */
export function madeKey(node: WriteNode): Fragment | null {
  const key = singleKey(node.collection);
  return key && makesKeys(node) && !isLeftOut(node, key) ? initialKey(key, node) : null;
}

/** Whether keys of new rows come from a sequence that has to be ahead of those which the payload supplies. */
function takesKeys(node: WriteNode): boolean {
  const counted = countedKey(node.collection);
  if (counted?.column && !mayNumber(node, counted.column.name)) return false;
  if (!counted || singleKey(node.collection)) return counted !== null && makesKeys(node) && !makesParts(node);
  return (
    makesParts(node) &&
    keyParts(node).some(({ field, mixed, holdsValues }) => field === counted && mixed && holdsValues)
  );
}

/** The lists that bring keys which a sequence is about to make. */
function keyLists({ nodes }: WritePlan, node: WriteNode): number[] {
  if (!takesKeys(node)) return [];
  if (!singleKey(node.collection)) return [nodes.indexOf(node)];
  return nodes.flatMap((each, list) =>
    each.collection === node.collection && each.verb !== 'update' && each.bringsKeys ? [list] : [],
  );
}

/** Behind the rows of a list: they wait until the sequence of their keys is ahead of the keys that the payload brings. */
export function behindSequence(plan: WritePlan, node: WriteNode, position: number): Fragment {
  return keyLists(plan, node).length > 0
    ? sql` cross join (select count(*) from ${alias(`a${position}`)}) ${alias('a')}`
    : nothing;
}

/** Steps that a sequence is moved one by one. */
const STEPS = 10_000;

/**
 * Takes values from a sequence until it is ahead of a key that is not far: so the keys of one payload do not meet. To set it
 * could move it back behind a value that others took meanwhile, and would not be undone when the write is refused.
 */
export function advance(sequence: string, maxKey: Fragment): Fragment {
  const name = sql`${literal(sequence)}::regclass`;
  const gap = sql`${alias('h')}.k - ${alias('l')}.v`;
  const last = sql`select coalesce(pg_sequence_last_value(${name}), 0) as v`;
  return sql`select (select max(nextval(${name})) from generate_series(1, ${gap}))
    from (${maxKey}) ${alias('h')}, (${last}) ${alias('l')}
    where ${gap} >= 1 and ${gap} <= ${integerLiteral(STEPS)}`;
}

/** Before keys are taken from a sequence it is put ahead of those that the payload supplies. */
export function advanceSequence(plan: WritePlan, node: WriteNode, position: number): Fragment[] {
  const key = countedKey(node.collection);
  const sequence = key?.column?.sequence;
  const lists = keyLists(plan, node);
  if (!key || !sequence || lists.length === 0) return [];
  const valuesOf = (list: number, name: Fragment, shown: Fragment): Fragment =>
    sql`select ${shown} from json_to_recordset(${documentAt(list)}) as ${alias('x')} (${name} ${typeName(key)})`;
  const supplied = lists.map((list) => {
    const each = elementAt(plan.nodes, list);
    // A part of a key says nothing of the items that exist: those that are new may have it as well.
    if (!singleKey(each.collection)) {
      const name = identifier(`c${each.columns.findIndex(({ field }) => field === key)}`);
      return valuesOf(list, name, sql`${name} as k`);
    }
    const rows = valuesOf(list, sql`k`, sql`k`);
    // Items that exist had their keys before, wherever these came from.
    const table = tableName(node.collection);
    const isNew = sql` where not exists (select from ${table} ${alias('e')}
        where ${alias('e')}.${columnName(key)} ${operatorOf(key, '=')} k)`;
    return each.verb === 'upsert' ? sql`${rows}${isNew}` : rows;
  });
  const maxKey = sql`select max(k)::int8 as k from (${join(supplied, sql` union all `)}) ${alias('g')}`;
  return [sql`${alias(`a${position}`)} as materialized (${advance(sequence, maxKey)})`];
}

/** The value that the database itself would give a new row. */
export function initialValue(field: Field): Fragment | null {
  const { column } = field;
  if (column?.identity && column.sequence) return sql`nextval(${literal(column.sequence)}::regclass)`;
  return column?.default_expression ? expression(column.default_expression) : null;
}

/** The key of a row that turns out to be new. Other values that the service fills in came with the payload. */
function initialKey(field: Field, { conflict }: WriteNode): Fragment | null {
  const defaultValue = initialValue(field);
  return defaultValue === null && conflict && field.special.includes('uuid')
    ? sql`gen_random_uuid()::text::${typeName(field)}`
    : defaultValue;
}

/** The keys that a receipt stores, and the rows that they come from. */
interface ReceiptKeys {
  readonly keys: Fragment;
  readonly source: Fragment;
}

/**
 * Stores the receipt of a request with an `Idempotency-Key`. Returns no row if the request was carried out before and its receipt has not
 * expired. A concurrent request with the same key waits for the first.
 */
export function takeReceipt(
  receipts: Collection,
  slot: (name: keyof Receipt) => Fragment,
  { keys, source }: ReceiptKeys = { keys: sql`null`, source: nothing },
): Fragment {
  return sql`insert into ${tableName(receipts)} as ${alias('t')} (id, fingerprint, expires, keys)
    select ${slot('id')}::text, ${slot('fingerprint')}::text, now() + ${slot('lifetime')}::text::interval, ${keys}${source}
    on conflict (id) do update
    set fingerprint = excluded.fingerprint, expires = excluded.expires, keys = excluded.keys, answer = null
    where ${alias('t')}.expires < now()
    returning 1`;
}

/** Every list of rows waits for the second part, so that a repeated request fails for no other reason. */
export function idempotencyRecord(receipts: Collection): Fragment[] {
  const checked = sql`select case when (select count(*) from ${alias('q')}) = 0 then service_raise('repeated') end`;
  return [sql`${alias('q')} as (${takeReceipt(receipts, slotOf)})`, sql`${alias('v')} as materialized (${checked})`];
}
