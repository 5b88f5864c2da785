/**
 * A flat write → one plain statement: a row is inserted, changed or deleted, recorded in the activity log, and the answer is read
 * from the row that the statement returned. `plan/write/flat.ts` says which writes are flat.
 */
import { writeJson } from '../../../base/exact-json.js';
import { elementAt } from '../../../base/narrow.js';
import { singleKey } from '../../model/item-key.js';
import type { Collection, Field } from '../../model/model.js';
import { isReadable } from '../../model/write-facts.js';
import { ALWAYS, type Condition, type ReadPlan } from '../../plan/plan.js';
import { type FlatRow, type FlatRows, mayWait, writtenColumns } from '../../plan/write/flat.js';
import type { Author, WriteColumn, WriteNode } from '../../plan/write/write.js';
import type { Key } from '../../request/write.js';
import {
  alias,
  type Fragment,
  join,
  literal,
  nothing,
  parameter,
  quoteIdentifier,
  type Statement,
  sql,
  statement,
  substitute,
} from '../../sql/fragment.js';
import { arrayLiteral } from '../../sql/literal.js';
import type { Parameter, Value, Values } from '../../sql/parameter.js';
import { areEqual } from '../compare.js';
import { compileCondition } from '../condition.js';
import { FromClause, Scope } from '../from-clause.js';
import { withSridOf } from '../geometry.js';
import { columnName, tableName, typeName } from '../identifiers.js';
import { jsonList } from '../json.js';
import { commaList, keyColumns, keyParameters, unnest } from '../key-columns.js';
import { itemBody, ROW_TAG, readsTag, transactionOf } from '../row-tag.js';
import { compileRowsFrom } from '../rows.js';
import { type ActivityLog, itemText, snapshot } from './activity.js';
import { compileGuard } from './guard.js';
import { operatedValue } from './operators.js';
import {
  advance,
  initialValue,
  inputType,
  inputValue,
  type Receipt,
  storedAtFirst,
  type Tags,
  tagList,
  takeReceipt,
} from './write-input.js';
import { columnList } from './write-result.js';

/** The values of a flat write: the author and the receipt, the parts of the key, the columns, the entity tags, then those of the answer. */
const AUTHOR = ['user', 'ip', 'user_agent', 'origin'] as const;
const RECEIPT = ['id', 'fingerprint', 'lifetime'] as const;
const KEY_SLOT = AUTHOR.length + RECEIPT.length;

export const [TABLE_ROW, WRITTEN, ACTIVITY] = [alias('t'), alias('w'), alias('a')] as const;
/** Whether an upsert created or updated the row. */
export const ACTION = alias('o');
/** The answer to a write whose item has none of the required entity tags. Bodies are empty or JSON. */
export const UNMATCHED = '!';
/** The values of a row of a batch, and its number. */
const [SETS, NUMBER] = [alias('q'), alias('n')] as const;
/** The receipt of a request with an Idempotency-Key, and the key that is made before the row. */
const [TAKEN, MADE] = [alias('p'), alias('m')] as const;

/** Fails if the database wrote fewer rows than were sent: the answers are matched by position. */
const ALL_WRITTEN = sql` where case when (select count(*) from ${WRITTEN}) = (select count(*) from ${SETS}) then true
  else service_raise('missing') end`;

/**
 * Limits each wait for a lock while the statement runs to 50 ms. PostgreSQL takes the locks of the tables before that, with the limit of
 * the session. A statement of its own would take PostgreSQL as long as a row. The lists are read before any row is locked or written.
 */
const WAIT_LIMITED = sql`(select set_config('lock_timeout', '50ms', true)) is not null`;

/** A flat write as a statement, and the same for many rows. */
export interface FlatStatement {
  readonly statement: Statement;
  /**
   * The statement for many rows, or null if there is only one for a single row. Each parameter is a list with a text for each row. It
   * returns the number and the body of each written row, and leaves out rows that another transaction has locked.
   */
  readonly batch: Statement | null;
}

export interface FlatTables {
  readonly activityLog: ActivityLog;
  /** For a request with an `Idempotency-Key`, which has a receipt if and only if it was carried out; null for others. */
  readonly receipts: Collection | null;
  /** Whether the item must have one of the entity tags. */
  readonly isMatched: boolean;
  readonly tablesIn: TablesIn;
}

/** The tables that a query reads; undefined for one that is no collection. */
type TablesIn = (text: string) => readonly (Collection | undefined)[];

/** Returns null if another statement has to read the response, or if the key of the row is not known before. */
export function compileFlat(
  node: WriteNode,
  answer: ReadPlan | null,
  { activityLog, receipts, isMatched, tablesIn }: FlatTables,
): FlatStatement | null {
  if (isMatched && (receipts || node.collection.rowTag !== 'xmin')) return null;
  const scope = new Scope(compileCondition);
  const body = answer ? compileAnswer(answer, node, scope) : sql`''`;
  if (body === null || (answer && !isAnswerable(sql`select ${body} from ${WRITTEN}`, node, tablesIn))) return null;
  const returning = returned(node, answer);
  const parts = node.verb === 'insert' ? insertParts(node, returning) : updateParts(node, scope, returning);
  if (parts === null) return null;
  const logged = record(node, activityLog, { joined: nothing, isOne: true });
  if (receipts) return compileOnce(node, { ...parts, body, logged }, receipts);
  if (isMatched) return { statement: matchedUpdate(node, { ...parts, body }, logged), batch: null };
  const written = node.verb === 'insert' ? insert(node, parts) : update(node, parts);
  const single = statement(
    sql`with ${join([sql`${WRITTEN} as (${written})`, ...logged], sql`, `)}
      select ${body} from ${WRITTEN}${andAdvanced(node, sql` where `)}`,
  );
  const isBatchable = node.collection.isWrittenInBatches && parts.fields.length > 0;
  return { statement: single, batch: isBatchable ? compileBatch(node, { ...parts, body }, activityLog, single) : null };
}

/**
 * Inserts the rows of one list. Each column is one parameter, a list with a text for each row. The rows are returned in the order of the
 * lists, in which they are inserted. Returns null if the response needs more than the columns of these rows.
 */
export function compileFlatList(
  node: WriteNode,
  answer: ReadPlan | null,
  { activityLog, tablesIn }: FlatTables,
): FlatStatement | null {
  const body = answer ? compileListAnswer(answer, node, new Scope(compileCondition)) : sql`select ''`;
  const { fields, values, returning } = insertParts(node, returned(node, answer));
  if (body === null || fields.length === 0 || (answer && !isAnswerable(body, node, tablesIn))) return null;
  // A join may change the order of the rows.
  if (answer && tablesIn(statement(body).text).length > 0) return null;
  const names = node.columns.map((_, index) => alias(`v${index}`));
  const lists = node.columns.map((_, index) => sql`(select ${columnParameter(node, index)}::text[])`);
  const rowValue = (each: Parameter): Fragment => {
    const index = 'slot' in each && typeof each.slot === 'number' ? each.slot - firstColumnSlot(node) : -1;
    const name = names[index];
    return name ? sql`${SETS}.${name}` : parameter(each);
  };
  const inserted = sql`insert into ${tableName(node.collection)} as ${TABLE_ROW}${columnList(fields.map(columnName))}${overriding({ fields })}
    select ${substitute(commaList(values), rowValue)}
    from ${unnest(lists)} with ordinality as ${SETS} (${commaList([...names, NUMBER])})
    order by ${SETS}.${NUMBER}
    returning ${returning}`;
  const steps = [sql`${WRITTEN} as (${inserted})`, ...record(node, activityLog, { joined: nothing, isOne: false })];
  return { statement: statement(sql`with ${join(steps, sql`, `)} ${body}`), batch: null };
}

/** The values of its parameters. */
export function flatListValues({ node, rows }: FlatRows, author: Author, answered: Values): Value[] {
  return [
    ...firstValues(author, null),
    ...node.collection.key.map(() => null),
    ...node.columns.map(({ field }, index) =>
      arrayLiteral(rows.map((row) => valueText(field, row[`c${index}`] ?? null))),
    ),
    null,
    ...answered,
  ];
}

/**
 * The receipt is written before the row, so a repeated request fails for no other reason. It contains the key of the row, which is
 * therefore made before. A row that is not found raises an error, which undoes the receipt.
 */
function compileOnce(
  node: WriteNode,
  { body, logged, ...parts }: FlatParts & { readonly body: Fragment; readonly logged: readonly Fragment[] },
  receipts: Collection,
): FlatStatement | null {
  const { collection } = node;
  const key = singleKey(collection);
  const made = node.verb === 'insert' && !node.bringsKeys && key ? initialValue(key) : null;
  const [given] = node.verb === 'insert' && !node.bringsKeys ? [] : keyValues(collection);
  const value = made ? sql`${MADE}.${alias('k')}` : given;
  if (!key || !value) return null;
  const source = made ? sql` from ${MADE}` : nothing;
  const fields = made ? [key, ...parts.fields] : parts.fields;
  const values = made ? [value, ...parts.values] : parts.values;
  const written =
    node.verb === 'insert'
      ? sql`insert into ${tableName(collection)} as ${TABLE_ROW}${columnList(fields.map(columnName))}${overriding({ ...parts, fields })}
          select ${commaList(values)} from ${TAKEN}${made ? sql`, ${MADE}` : nothing} returning ${parts.returning}`
      : sql`update ${tableName(collection)} ${TABLE_ROW} set ${assignments(parts)} from ${TAKEN}
          where ${parts.where} returning ${parts.returning}`;
  const steps = [
    ...(made ? [sql`${MADE} as materialized (select ${made} as ${alias('k')})`] : []),
    sql`${TAKEN} as (${receiptOf(receipts, value, source)})`,
    sql`${WRITTEN} as (${written})`,
    ...logged,
  ];
  return {
    statement: statement(
      sql`with ${join(steps, sql`, `)} select (select ${body} from ${WRITTEN}) where ${DONE_ONCE}${andAdvanced(node, sql` and `, sql`(select ${WRITTEN}.${columnName(key)} from ${WRITTEN})`)}`,
    ),
    batch: null,
  };
}

const DONE_ONCE = sql`case when (select count(*) from ${TAKEN}) = 0 then service_raise('repeated')
  when (select count(*) from ${WRITTEN}) = 0 then service_raise('missing') else true end`;

/** The receipt contains the key of the row. */
function receiptOf(receipts: Collection, key: Fragment, source: Fragment): Fragment {
  const slot = (name: (typeof RECEIPT)[number]): Fragment =>
    parameter({ kind: 'text', slot: AUTHOR.length + RECEIPT.indexOf(name) });
  return takeReceipt(receipts, slot, { keys: sql`json_build_array((${key})::text)`, source });
}

/**
 * A sequence that could return the key later is put ahead of it: in steps if it is not far, which needs no privilege to set the sequence.
 * Otherwise one transaction at a time sets it: another could put it back behind a larger key.
 */
export function andAdvanced(node: WriteNode, before: Fragment, written?: Fragment): Fragment {
  const field = node.verb === 'insert' && node.bringsKeys ? singleKey(node.collection) : null;
  if (!field?.column?.sequence) return nothing;
  const sequence = sql`${literal(field.column.sequence)}::regclass`;
  const key = sql`${written ?? sql`${WRITTEN}.${columnName(field)}`}::int8`;
  const isBehind = sql`${key} > coalesce(pg_sequence_last_value(${sequence}), 0)`;
  const stepped = advance(field.column.sequence, sql`select ${key} as k`);
  return sql`${before}case when not (${isBehind}) then true
    when (${stepped}) is not null then true
    when pg_advisory_xact_lock(${sequence}::oid::int8) is null then false
    else coalesce((select setval(${sequence}, ${key}) from pg_sequence_parameters(${sequence}) ${alias('s')}
      where ${alias('s')}.increment > 0 and ${key} < ${alias('s')}.maximum_value and ${isBehind}), 0) is not null end`;
}

/** The columns that are written, with their values, and the condition under which a row that exists is changed. */
interface FlatParts {
  readonly fields: readonly Field[];
  readonly values: readonly Fragment[];
  /** Not used for a new row. */
  readonly where: Fragment;
  /** The columns of the row that was written. */
  readonly returning: Fragment;
}

/** The locked row of a write with entity tags, and whether it has one of them. */
const [LOCKED, MATCHES] = [alias('l'), alias('m')] as const;

/** Locks the row, then compares it: two writes with the same tag cannot both succeed. `slot`: where the tags are. */
function lockMatching(collection: Collection, slot: number, rows: Fragment): Fragment {
  const tags = parameter({ kind: 'text', slot });
  return sql`${LOCKED} as materialized (select ${transactionOf(TABLE_ROW)} = any(${tags}::text[]) as ${MATCHES}
    from ${tableName(collection)} ${TABLE_ROW} ${rows})`;
}

function matchedUpdate(
  node: WriteNode,
  { body, ...parts }: FlatParts & { readonly body: Fragment },
  logged: readonly Fragment[],
): Statement {
  const { collection, columns } = node;
  const table = sql`${tableName(collection)} ${TABLE_ROW}`;
  const slot = KEY_SLOT + collection.key.length + columns.length;
  const steps = [
    lockMatching(collection, slot, sql`where ${parts.where} for no key update of ${TABLE_ROW}`),
    sql`${WRITTEN} as (update ${table}
      set ${assignments(parts)}
      from ${LOCKED}
      where ${hasKey(collection)} and ${LOCKED}.${MATCHES}
      returning ${parts.returning})`,
  ];
  return statement(sql`with ${join([...steps, ...logged], sql`, `)} ${answerMatched(body)}`);
}

function answerMatched(body: Fragment): Fragment {
  return sql`select ${body} from ${WRITTEN} union all select ${literal(UNMATCHED)} from ${LOCKED} where not ${LOCKED}.${MATCHES}`;
}

/**
 * The rows come from the lists of parameters. Changed rows are locked first, and those that are locked already left out: one of them must
 * not hold up the others. New rows are returned in the order in which they are inserted, which is that of the lists.
 */
function compileBatch(
  node: WriteNode,
  { body, ...parts }: FlatParts & { readonly body: Fragment },
  log: ActivityLog,
  single: Statement,
): Statement {
  const known = single.parameters.map((each) => JSON.stringify(each));
  const column = (slot: number): Fragment => alias(`v${slot}`);
  const listed = (each: Parameter): Fragment => sql`${SETS}.${column(known.indexOf(JSON.stringify(each)))}`;
  const bound = (fragment: Fragment): Fragment => substitute(fragment, listed);
  const lists = known.map((_, slot) => sql`(select ${parameter({ kind: 'text', slot })}::text[])`);
  const sets = sql`${SETS} as materialized (select *
    from ${unnest(lists)} with ordinality as ${alias('x')} (${commaList([...known.map((_, slot) => column(slot)), NUMBER])})
    where ${WAIT_LIMITED})`;
  const { collection, verb } = node;
  const table = sql`${tableName(collection)} ${verb === 'insert' ? sql`as ` : nothing}${TABLE_ROW}`;
  const joined = sql` join ${SETS} on ${SETS}.${NUMBER} = ${WRITTEN}.${NUMBER}`;
  const steps =
    verb === 'insert'
      ? [
          sql`${alias('i')} as (insert into ${table}${columnList(parts.fields.map(columnName))}${overriding(parts)}
            select ${bound(commaList(parts.values))} from ${SETS} order by ${SETS}.${NUMBER}
            returning ${parts.returning})`,
          sql`${WRITTEN} as (select ${alias('i')}.*, row_number() over () as ${NUMBER} from ${alias('i')})`,
        ]
      : [
          sql`${alias('l')} as materialized (select ${SETS}.* from ${SETS}
            join ${table} on ${bound(parts.where)} for no key update of ${TABLE_ROW} skip locked)`,
          sql`${WRITTEN} as (update ${table} set ${bound(assignments(parts))} from ${alias('l')} ${SETS}
            where ${bound(hasKey(collection))} returning ${parts.returning}, ${SETS}.${NUMBER})`,
        ];
  const logged = record(node, log, { joined, isOne: false }).map(bound);
  const shownFrom = statement(body).parameters.length > 0 ? joined : nothing;
  return statement(
    sql`with ${join([sets, ...steps, ...logged], sql`, `)}
      select ${WRITTEN}.${NUMBER}, ${bound(body)} from ${WRITTEN}${shownFrom}${verb === 'insert' ? sql`${ALL_WRITTEN}${andAdvanced(node, sql` and `)}` : nothing}`,
  );
}

/** Deletes the item with a key. The statement returns no row if the item is missing or the rule refuses it. Returns null if the rule needs joins. */
export function compileFlatDelete(
  collection: Collection,
  rule: Condition | null,
  { activityLog, receipts, isMatched }: FlatTables,
): FlatStatement | null {
  if (isMatched && (receipts || collection.rowTag !== 'xmin' || collection.hasRowSecurity)) return null;
  const row = new FromClause(TABLE_ROW, new Scope(compileCondition), collection);
  const allowed = rule && compileCondition(rule, row);
  if (isJoined(row)) return null;
  const key = keyColumns(collection, TABLE_ROW);
  const named = areEqual(key, keyParameters(collection.key, KEY_SLOT, 'value'), collection.key);
  const where = sql`where ${named}${allowed ? sql` and ${allowed}` : nothing}`;
  const matching = isMatched ? [lockMatching(collection, KEY_SLOT + 1, sql`${where} for update of ${TABLE_ROW}`)] : [];
  const found = isMatched
    ? sql` using ${LOCKED} where ${named} and ${LOCKED}.${MATCHES}`
    : sql`${receipts ? sql` using ${TAKEN}` : nothing} ${where}`;
  const deleted = sql`delete from ${tableName(collection)} ${TABLE_ROW}${found}
    returning ${commaList(key)}`;
  const logged =
    collection.accountability === null ? [] : [recordActivity(literal('delete'), collection, activityLog, nothing)];
  const [name] = keyParameters(collection.key, KEY_SLOT, 'value');
  if (receipts && (!singleKey(collection) || !name)) return null;
  const taken = receipts && name ? [sql`${TAKEN} as (${receiptOf(receipts, name, nothing)})`] : [];
  const parts = join([...taken, ...matching, sql`${WRITTEN} as (${deleted})`, ...logged], sql`, `);
  const shown = receipts ? sql`select '' where ${DONE_ONCE}` : sql`select '' from ${WRITTEN}`;
  const answer = isMatched ? answerMatched(sql`''`) : shown;
  return { statement: statement(sql`with ${parts} ${answer}`), batch: null };
}

/** The values of its parameters. */
export function flatDeleteValues(key: Key, author: Author, receipt: Receipt | null, tags: Tags): Value[] {
  return [...firstValues(author, receipt), key, tagList(tags)];
}

function firstValues(author: Author, receipt: Receipt | null): (string | null)[] {
  return [...AUTHOR.map((name) => author[name]), ...RECEIPT.map((name) => receipt?.[name] ?? null)];
}

export function insertParts(node: WriteNode, returning: Fragment): FlatParts {
  const { collection } = node;
  const written = writtenColumns(node);
  return {
    fields: [...(node.bringsKeys ? collection.key : []), ...written.map(([{ field }]) => field)],
    values: [
      ...(node.bringsKeys ? keyValues(collection) : []),
      ...written.map(([column, index]) => writtenValue(node, column, index, storedAtFirst)),
    ],
    where: nothing,
    returning,
  };
}

function insert(node: WriteNode, parts: FlatParts): Fragment {
  const { fields, values } = parts;
  const rows = fields.length === 0 ? sql` default values` : sql`${overriding(parts)} values (${commaList(values)})`;
  return sql`insert into ${tableName(node.collection)} as ${TABLE_ROW}${columnList(fields.map(columnName))}${rows}
    returning ${parts.returning}`;
}

export function overriding({ fields }: Pick<FlatParts, 'fields'>): Fragment {
  return fields.some(({ column }) => column?.identity === 'always') ? sql` overriding system value` : nothing;
}

/** `named` finds the row. Returns null if the rule needs joins. */
export function updateParts(
  node: WriteNode,
  scope: Scope,
  returning: Fragment,
  named: Fragment = hasKey(node.collection),
): FlatParts | null {
  const { collection, guard } = node;
  const row = new FromClause(TABLE_ROW, scope, collection);
  const allowed = guard ? sql` and ${compileGuard(guard, TABLE_ROW, row)}` : nothing;
  if (isJoined(row)) return null;
  const written = writtenColumns(node);
  return {
    fields: written.map(([{ field }]) => field),
    values: written.map(([column, index]) =>
      withSridOf(storedValue(column.field), writtenValue(node, column, index, storedValue), column.field),
    ),
    where: sql`${named}${allowed}`,
    returning,
  };
}

function update(node: WriteNode, parts: FlatParts): Fragment {
  return sql`update ${tableName(node.collection)} ${TABLE_ROW}
    set ${assignments(parts)}
    where ${parts.where}
    returning ${parts.returning}`;
}

export function assignments({ fields, values }: FlatParts): Fragment {
  return commaList(fields.map((field, position) => sql`${columnName(field)} := ${elementAt(values, position)}`));
}

function isJoined(row: FromClause): boolean {
  return row.joins() !== nothing && row.joins().parts.length > 0;
}

/** The stored columns, from which the answer is made, and the values for the revision. */
export function returned(node: WriteNode, answer: ReadPlan | null): Fragment {
  const { collection } = node;
  const isTagged = answer?.level.kind === 'rows' && readsTag(answer.level) && collection.rowTag === 'xmin';
  const tag = isTagged ? sql`, ${transactionOf(TABLE_ROW)} as ${ROW_TAG}` : nothing;
  const stored = [...collection.fields.values()].filter(
    (field) => field.column && !field.computed && isReadable(field),
  );
  return sql`${commaList(stored.map((field) => sql`${TABLE_ROW}.${columnName(field)}`))}${tag}${snapshot(node, () => null)}`;
}

function hasKey(collection: Collection): Fragment {
  return areEqual(keyColumns(collection, TABLE_ROW), keyValues(collection), collection.key);
}

export function keyValues({ key }: Collection): Fragment[] {
  return key.map((field, part) => sql`${parameter({ kind: 'text', slot: KEY_SLOT + part })}::${typeName(field)}`);
}

function storedValue(field: Field): Fragment {
  return sql`${TABLE_ROW}.${columnName(field)}`;
}

/** The value of the payload, or the stored value changed by it. */
function writtenValue(
  node: WriteNode,
  column: WriteColumn,
  index: number,
  storedOf: (field: Field) => Fragment,
): Fragment {
  const operand = columnValue(node, column.field, index);
  if (column.operators.length === 0) return operand;
  const refusal = sql`service_refuse(${literal(`0 operator 0 ${index}`)})`;
  return operatedValue(column, { stored: storedOf(column.field), operand, operator: nothing, refusal });
}

function firstColumnSlot({ collection }: WriteNode): number {
  return KEY_SLOT + collection.key.length;
}

function columnParameter(node: WriteNode, index: number): Fragment {
  return parameter({ kind: 'text', slot: firstColumnSlot(node) + index });
}

/** Lists and composite values travel as JSON, all other values as the texts that their types read. */
export function columnValue(node: WriteNode, field: Field, index: number): Fragment {
  const slot = columnParameter(node, index);
  if (!isDocument(field)) return inputValue(field, sql`${slot}::${inputType(field)}`);
  return sql`(select v from json_to_record(${slot}::json) as ${alias('x')} (v ${inputType(field)}))`;
}

function isDocument({ column }: Field): boolean {
  return column !== null && (column.is_array || column.composite !== null);
}

/** In the order of the parameters. `answered` are the values of the answer. */
export function flatValues(
  { node, row }: FlatRow,
  author: Author,
  { receipt, tags }: { readonly receipt: Receipt | null; readonly tags: Tags },
  answered: Values,
): Value[] {
  const { collection, columns } = node;
  const keyName = (part: number): string => (collection.key.length === 1 ? 'k' : `k_${part}`);
  return [
    ...firstValues(author, receipt),
    ...collection.key.map((field, part) => valueText(field, row[keyName(part)] ?? null)),
    ...columns.map(({ field }, index) => valueText(field, row[`c${index}`] ?? null)),
    tags && tagList(tags),
    ...answered,
  ];
}

function valueText(field: Field, value: unknown): string | null {
  if (value === null) return null;
  if (isDocument(field)) return writeJson({ v: value });
  return isJson(field) ? writeJson(value) : textOf(value);
}

function isJson({ column }: Field): boolean {
  return column?.base_type === 'json' || column?.base_type === 'jsonb';
}

function textOf(value: unknown): string | null {
  if (value === null || typeof value === 'string') return value;
  return writeJson(value);
}

/** The body of the answer, empty if the caller may not see the row; null if it cannot be made from the row. */
export function compileAnswer(answer: ReadPlan, node: WriteNode, scope: Scope): Fragment | null {
  const { level, result, meta } = answer;
  if (result !== 'item' || level.kind !== 'rows' || level.version || meta.length > 0) return null;
  const rows = compileRowsFrom({ ...level, where: ALWAYS }, scope, (row) => sql`(select ${WRITTEN}.*) ${row}`);
  return behindColumns(sql`coalesce((select ${itemBody(level, rows.row)} from (${rows.query}) ${rows.row}), '')`, node);
}

/** The query of the answer with all rows that the caller may see, in the order in which they were written. */
function compileListAnswer(answer: ReadPlan, node: WriteNode, scope: Scope): Fragment | null {
  const { level, result, meta, stream, cursor } = answer;
  if (result !== 'list' || level.kind !== 'rows' || level.version || meta.length > 0 || stream || cursor) return null;
  if (level.limit.kind !== 'all' || level.order.some(({ operand }) => operand.kind !== 'position')) return null;
  const rows = compileRowsFrom({ ...level, where: ALWAYS, order: [] }, scope, (row) => sql`${WRITTEN} ${row}`);
  return behindColumns(sql`select ${jsonList(rows.row, '{"data":', '}')} from (${rows.query}) ${rows.row}`, node);
}

/** The values of the answer are behind those of the columns and the entity tags. */
function behindColumns(answer: Fragment, node: WriteNode): Fragment {
  const offset = firstColumnSlot(node) + node.columns.length + 1;
  return substitute(answer, (each) => parameter(shifted(each, offset)));
}

function shifted(each: Parameter, offset: number): Parameter {
  if (!('slot' in each)) return each;
  const slot = typeof each.slot === 'number' ? each.slot + offset : each.slot;
  if (each.kind !== 'page' || typeof each.limit === 'number') return { ...each, slot } as Parameter;
  const limit = typeof each.limit.slot === 'number' ? { slot: each.limit.slot + offset } : each.limit;
  return { ...each, slot, limit };
}

/**
 * Whether the statement can read the answer. It sees other tables as they were before: a new row may be answered with them, unless it is
 * written to them, or may wait. A change may reach them by the action of a foreign key, and after a wait for a lock they may be older than the row.
 * A function may read anything.
 */
export function isAnswerable(query: Fragment, node: WriteNode, tablesIn: TablesIn): boolean {
  const { verb, collection } = node;
  const { text } = statement(query);
  const others = tablesIn(text);
  if (others.length > 0 && (verb !== 'insert' || mayWait(node))) return false;
  const isCalled = ({ computed }: Field): boolean =>
    computed !== undefined &&
    text.includes(`${quoteIdentifier(computed.schema)}.${quoteIdentifier(computed.function)}(`);
  const isSafe = (read: Collection): boolean => ![...read.fields.values()].some(isCalled);
  return isSafe(collection) && others.every((other) => other && isUnwritten(other, collection) && isSafe(other));
}

/** Whether it is a table of rows that the write does not reach. The service's own tables have the activity log. */
function isUnwritten({ schema, table, ...other }: Collection, written: Collection): boolean {
  if (other.kind !== 'table' || other.isInherited || other.system || other.distributed || other.hasRowSecurity)
    return false;
  return schema !== written.schema || table !== written.table;
}

/** `joined` finds the values of the author for each row of a batch. */
export function record(
  node: WriteNode,
  log: ActivityLog,
  { joined, isOne }: { readonly joined: Fragment; readonly isOne: boolean },
): Fragment[] {
  const { collection, verb } = node;
  if (collection.accountability === null) return [];
  const action = verb === 'upsert' ? sql`${WRITTEN}.${ACTION}` : literal(verb === 'insert' ? 'create' : 'update');
  const activity = recordActivity(action, collection, log, joined);
  if (collection.accountability !== 'all') return [activity];
  const revision = sql`insert into ${tableName(log.revisions)} (activity, collection, item, data, delta)
    select ${ACTIVITY}.id, ${literal(collection.name)}, ${ACTIVITY}.item, ${WRITTEN}.${alias('j')},
      coalesce(${WRITTEN}.${alias('d')}, ${WRITTEN}.${alias('j')})
    from ${ACTIVITY}${isOne ? sql`, ${WRITTEN}` : sql` join ${WRITTEN} on ${itemText(collection, WRITTEN)} = ${ACTIVITY}.item`}`;
  return [activity, sql`${alias('r')} as (${revision})`];
}

function recordActivity(
  action: Fragment,
  collection: Collection,
  { activity }: ActivityLog,
  joined: Fragment,
): Fragment {
  const types = [sql`uuid`, sql`text`, sql`text`, sql`text`];
  const author = types.map((type, slot) => sql`${parameter({ kind: 'text', slot })}::${type}`);
  return sql`${ACTIVITY} as (insert into ${tableName(activity)} (action, collection, item, "user", ip, user_agent, origin)
    select ${action}, ${literal(collection.name)}, ${itemText(collection, WRITTEN)}, ${commaList(author)}
    from ${WRITTEN}${joined}
    returning id, item)`;
}
