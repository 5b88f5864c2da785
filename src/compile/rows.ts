/** A level of rows → SQL: the page, what is value of its rows, and the lateral joins to the levels below. */
import { assertNever } from '../assert-never.js';
import type { Field } from '../mirror/model.js';
import { elementAt } from '../narrow.js';
import { isMasked, maskOf } from '../plan/access.js';
import type { Condition, Level, OperandPlan, Output, RowLevel, ToManyJoin, ToOneJoin } from '../plan/plan.js';
import { alias, type Fragment, join, literal, nothing, sql } from '../sql/fragment.js';
import { compileCondition } from './condition.js';
import { type CursorRange, compileCursor, EVERY_ROW, firstOf } from './cursor.js';
import { FromClause, refersTo, type Scope } from './from-clause.js';
import { compileGroups } from './groups.js';
import { columnName } from './identifiers.js';
import { JSON_COLUMN, type JsonValue, jsonList, jsonObject, toJsonText } from './json.js';
import { areEqual, commaList, showKey } from './key-columns.js';
import { compileOperand, showOperand } from './operand.js';
import {
  type CompiledLevel,
  type JoinCondition,
  limitClause,
  offsetClause,
  orderClause,
  type PageOrder,
} from './page.js';
import { isReferred, keyOfTarget } from './reference.js';
import { sharedOutputs } from './shared-subtree.js';

export function compileRows(level: RowLevel, scope: Scope, joinedBy: JoinCondition | null): CompiledLevel {
  return compileShown(level, scope, joinedBy, (source, shared) =>
    level.bare ? compileBare(level, source) : compileObject(level.outputs, source, shared),
  );
}

/** Of a function that returns a scalar: the row is the value itself, not an object. */
function compileBare({ outputs }: RowLevel, source: FromClause): ShownRow {
  const [only] = outputs;
  if (only?.kind !== 'value') return { json: sql`'null'`, joins: nothing };
  return { json: toJsonText(showOperand(only.operand, compileOperand(only.operand, source), only.as)), joins: nothing };
}

/** The same for rows of which the key alone is value: it is the only output, so that the page has its column. */
function compileKeys(level: RowLevel, scope: Scope, joinedBy: JoinCondition): CompiledLevel {
  const { key } = level.collection;
  const outputs = key.map((field): Output => {
    return { kind: 'value', name: field.name, operand: { kind: 'field', through: [], field } };
  });
  return compileShown({ ...level, outputs }, scope, joinedBy, (source) => {
    const columns = key.map((field) => source.column([], field));
    return { json: toJsonText(showKey(key, columns)), joins: nothing };
  });
}

function compileShown(
  level: RowLevel,
  scope: Scope,
  joinedBy: JoinCondition | null,
  show: (source: FromClause, shared: Shared) => ShownRow,
): CompiledLevel {
  const number = scope.next();
  const shared = sharedOutputs(level, joinedBy === null);
  const page = compilePage(level, number, scope, joinedBy, shared.size > 0);
  const { json, joins } = show(pageSource(level, page, scope), shared);
  const query = selectFrom(page, sql`${json} as ${JSON_COLUMN}`, joins, shared);
  return { query, row: alias(`r${number}`) };
}

/** Materialized where parts of what is value are computed from the page as a whole. */
function selectFrom(page: Page, columns: Fragment, joins: Fragment, shared: Shared): Fragment {
  const order = orderClause(page.order);
  if (shared.size === 0) return sql`select ${columns} from (${page.query}) ${page.name}${joins}${order}`;
  return sql`with ${page.name} as materialized (${page.query}) select ${columns} from ${page.name}${joins}${order}`;
}

/** Each row as JSON, with its sort values as text. */
export function compileRowsWithCursor(level: RowLevel, scope: Scope): Fragment {
  const shared = sharedOutputs(level, true);
  const page = compilePage(level, scope.next(), scope, null, shared.size > 0);
  const { json, joins } = compileObject(level.outputs, pageSource(level, page, scope), shared);
  const keys = join(
    page.order.map((each) => sql`${each.column}::text`),
    sql`, `,
  );
  const columns = sql`${json} as ${JSON_COLUMN}, json_build_array(${keys})::text as ${alias('k')}`;
  return selectFrom(page, columns, joins, shared);
}

interface Page {
  readonly query: Fragment;
  readonly name: Fragment;
  readonly rows: FromClause;
  /** Columns that say whether a masked field of the row may be seen. */
  readonly flag: Flag;
  /** The order again, over the columns of the page: joins behind the page are not bound to keep it. */
  readonly order: readonly PageOrder[];
}

function compilePage(
  level: RowLevel,
  number: number,
  scope: Scope,
  joinedBy: JoinCondition | null,
  isShared: boolean,
): Page {
  const source = new FromClause(alias(`t${number}`), scope, level.collection);
  source.assume(level.where);
  const joined = joinedBy?.(source);
  const name = alias(`p${number}`);
  const columns = new Map<string, Fragment>();
  for (const field of level.outputs.flatMap((output) => neededFields(output, level))) {
    columns.set(field.name, named(field, source.raw([], field)));
  }
  const flags = compileFlags(level, source, name);
  for (const [flag, column] of flags.columns) columns.set(flag, column);
  const conditions: Fragment[] = [];
  if (joined) conditions.push(joined);
  const where = compileCondition(level.where, source);
  if (where) conditions.push(where);

  const sorted = level.order.map(({ operand, descending }) => compileOperand(operand, source, descending));
  const orderOf = (row: Fragment): PageOrder[] =>
    level.order.map(({ operand, descending }, position) => {
      const column = isPlain(operand, level) ? columnName(operand.field) : alias(`s${position}`);
      return { column: sql`${row}.${column}`, descending };
    });
  level.order.forEach(({ operand }, position) => {
    const expression = elementAt(sorted, position);
    if (isPlain(operand, level)) columns.set(operand.field.name, named(operand.field, expression));
    else columns.set(`%s${position}`, sql`${expression} as ${alias(`s${position}`)}`);
  });
  const ordinal = level.order.length === 0 ? source.ordinal(level.where, isShared) : null;
  if (ordinal) columns.set('%n', ordinal);
  const inner: PageOrder[] = ordinal
    ? [{ column: ordinal, descending: false }]
    : level.order.map(({ descending }, position) => ({ column: elementAt(sorted, position), descending }));
  const rows = ({ where, nullKeys }: CursorRange, isNeeded: Fragment | null): Fragment => {
    const matchingRows = sql`select ${join([...columns.values()], sql`, `)} from ${source.from(...conditions, where, isNeeded)}`;
    const page = sql`${limitClause(level.limit)}${offsetClause(level.offset)}${level.locked ? sql` for update of ${source.alias}` : nothing}`;
    if (!level.fenced) return sql`${matchingRows}${orderClause(inner.slice(nullKeys))}${page}`;
    // The planner does not look through an offset: what is inside is found by the filter alone.
    const row = alias(`f${number}`);
    return sql`select * from (${matchingRows} offset 0) ${row}${orderClause(orderOf(row).slice(nullKeys))}${page}`;
  };
  const ranges = level.after ? compileCursor(level.after, level.order, sorted, level.collection) : [EVERY_ROW];
  const query = firstOf(
    ranges.map((range) => (isNeeded) => rows(range, isNeeded)),
    orderOf,
    level.limit,
    number,
  );
  const order = ordinal ? [{ column: sql`${name}.${alias('n')}`, descending: false }] : orderOf(name);
  return { query, name, rows: source, flag: flags.of, order };
}

/** What is no column of the table gets the name that it has behind the page. */
function named(field: Field, expression: Fragment): Fragment {
  return field.computed ? sql`${expression} as ${columnName(field)}` : expression;
}

type PlainOperand = Extract<OperandPlan, { kind: 'field' | 'key' }>;

/** Whether the operand is a column of the row as it stands. */
function isPlain(operand: OperandPlan, level: RowLevel): operand is PlainOperand {
  if (operand.kind === 'key') return true;
  return operand.kind === 'field' && operand.through.length === 0 && !isMasked(level.collection, operand.field);
}

type Flag = (field: Field) => Fragment | null;

/** One column per rule and not per field: a rule may be costly, and is found out once per row. */
function compileFlags(
  level: RowLevel,
  source: FromClause,
  page: Fragment,
): { columns: Map<string, Fragment>; of: Flag } {
  const columns = new Map<string, Fragment>();
  const names = new Map<Condition, Fragment>();
  for (const field of level.outputs.flatMap((output) => shownFields(output))) {
    const rule = maskOf(level.collection, field);
    const mask = names.has(rule) ? null : source.mask([], field);
    if (!mask) continue;
    const name = alias(`k${names.size}`);
    columns.set(`%k${names.size}`, sql`${mask} as ${name}`);
    names.set(rule, sql`${page}.${name}`);
  }
  return { columns, of: (field) => names.get(maskOf(level.collection, field)) ?? null };
}

/** The fields that an output shows, or shows something behind. */
function shownFields(output: Output): Field[] {
  switch (output.kind) {
    case 'value':
      if (output.operand.kind === 'count' || output.operand.kind === 'first') return viaOf(output.operand.toMany);
      return ownField(output.operand);
    case 'one':
    case 'reference':
      return [output.toOne.field];
    case 'any':
      return output.targets.map(({ toOne }) => toOne.field);
    case 'constant':
      return [];
    case 'object':
      return output.outputs.flatMap((each) => shownFields(each));
    default:
      return viaOf(output.toMany);
  }
}

function ownField(operand: OperandPlan): Field[] {
  return 'field' in operand ? [operand.field] : [];
}

function viaOf({ via }: ToManyJoin): Field[] {
  return via ? [via] : [];
}

function neededFields(output: Output, level: RowLevel): Field[] {
  switch (output.kind) {
    case 'value':
      if (output.operand.kind === 'count' || output.operand.kind === 'first') return [...output.operand.toMany.key];
      return ownField(output.operand);
    case 'one':
    case 'reference':
      return output.toOne.kind === 'one' ? [...output.toOne.columns] : [output.toOne.field];
    case 'constant':
      return [];
    case 'object':
      return output.outputs.flatMap((each) => neededFields(each, level));
    case 'any':
      return output.targets.flatMap(({ toOne }) => [toOne.field, toOne.collectionField]);
    default:
      return [...output.toMany.key];
  }
}

/** A row as JSON, and the joins that this takes. */
interface ShownRow {
  readonly json: Fragment;
  readonly joins: Fragment;
}

function pageSource(level: RowLevel, page: Page, scope: Scope): FromClause {
  const value = (field: Field): Fragment => sql`${page.name}.${columnName(field)}`;
  return new FromClause(page.name, scope, level.collection, { flag: page.flag, value, rows: page.rows });
}

/** Outputs that are computed once per distinct reference. */
type Shared = ReadonlySet<Output>;

function compileObject(outputs: readonly Output[], rows: FromClause, shared: Shared): ShownRow {
  const compiled = outputs.map((output) => ({ name: output.name, ...compileOutput(output, rows, shared) }));
  return {
    json: jsonObject(compiled),
    joins: join(
      compiled.map(({ from }) => from),
      nothing,
    ),
  };
}

interface CompiledOutput {
  readonly value: JsonValue;
  readonly from: Fragment;
}

function compileOutput(output: Output, page: FromClause, shared: Shared): CompiledOutput {
  const { scope } = page;
  switch (output.kind) {
    case 'value':
      return { value: showOperand(output.operand, compileOperand(output.operand, page), output.as), from: nothing };
    case 'constant':
      return { value: { form: 'constant', constant: output.text }, from: nothing };
    case 'object': {
      const { json, joins } = compileObject(output.outputs, page, shared);
      return { value: { form: 'document', text: json }, from: joins };
    }
    case 'one': {
      if (shared.has(output)) return compileShared(output, page);
      const compile = output.keys ? compileKeys : compileRows;
      const { query } = compile(output.level, scope, joinToOne(output.toOne, page));
      const { column, from } = lateral(query, scope);
      return { value: { form: 'json', text: column }, from };
    }
    case 'reference':
      return { value: showKey(output.toOne.columns, page.reference([], output.toOne)), from: nothing };
    case 'many':
      return compileList(compileChildren(output.level, scope, joinToMany(output.toMany, page)), output.toMany, page);
    case 'keys':
      return compileList(compileKeys(output.level, scope, joinToMany(output.toMany, page)), output.toMany, page);
    case 'any': {
      // A case, not a join per target: keys of several types lie in one column, and only the named target may read it.
      const [first] = output.targets;
      if (!first) return { value: { form: 'constant', constant: null }, from: nothing };
      const cases = output.targets.map(
        ({ toOne, level: target }) =>
          sql` when ${literal(toOne.target.name)} then (${anyTarget(target, toOne, output.keys, page).query})`,
      );
      const text = sql`case ${page.raw([], first.toOne.collectionField)}::text${join(cases, nothing)} end`;
      return { value: { form: 'json', text }, from: nothing };
    }
    default:
      return assertNever(output);
  }
}

/** The subtree of each distinct reference of the page, joined back to its rows. The offset is a fence: the join must not repeat it. */
function compileShared({ toOne, level }: Extract<Output, { kind: 'one' }>, page: FromClause): CompiledOutput {
  const { scope } = page;
  const stored = page.reference([], toOne);
  const distinct = alias(`d${scope.next()}`);
  const keys = stored.map((_, position) => alias(`h${position}`));
  const columns = stored.map((reference, position) => sql`${reference} as ${elementAt(keys, position)}`);
  const distinctKeys = keys.map((key) => sql`${distinct}.${key}`);
  const { query } = compileRows(level, scope, (related) => isJoined(toOne, related, distinctKeys, nothing, page));
  const { column, from } = lateral(query, scope);
  const name = alias(`l${scope.next()}`);
  const rows = sql`select ${commaList([...distinctKeys, column])} from (select distinct ${commaList(columns)} from ${page.alias}) ${distinct}${from} offset 0`;
  const same = areEqual(
    keys.map((key) => sql`${name}.${key}`),
    stored,
  );
  return {
    value: { form: 'json', text: sql`${name}.${JSON_COLUMN}` },
    from: sql` left join (${rows}) ${name} on ${same}`,
  };
}

/** Null where the caller may not see the field that shows the list. */
function compileList(related: CompiledLevel, toMany: ToManyJoin, page: FromClause): CompiledOutput {
  const mask = toMany.via && page.mask([], toMany.via);
  const list = sql`select ${jsonList(related.row)} as ${JSON_COLUMN} from (${related.query}) ${related.row}`;
  const { column, from } = lateral(list, page.scope);
  if (!mask) return { value: { form: 'document', text: column }, from };
  return { value: { form: 'json', text: sql`case when ${mask} then ${column} end` }, from };
}

function anyTarget(level: RowLevel, toOne: ToOneJoin, keys: boolean, page: FromClause): CompiledLevel {
  const compile = level.outputs.length === 0 && keys ? compileKeys : compileRows;
  return compile(level, page.scope, joinToOne(toOne, page));
}

/** The page of a to-one relation keeps its `limit 1`, a fence: without it the planner joins the whole related table. */
function joinToOne(toOne: ToOneJoin, page: FromClause): JoinCondition {
  const named = toOne.kind === 'any' ? page.raw([], toOne.collectionField) : nothing;
  const stored = page.reference([], toOne);
  return (related) => isJoined(toOne, related, stored, named, page);
}

function isJoined(
  toOne: ToOneJoin,
  related: FromClause,
  stored: readonly Fragment[],
  named: Fragment,
  parent: FromClause,
): Fragment {
  const key = keyOfTarget(toOne).map((field) => related.raw([], field));
  const same = isReferred(toOne, key, stored, named);
  if (toOne.kind === 'any') return same;
  const pairs = { columns: toOne.key, parentColumns: toOne.columns };
  return sql`${same}${related.joinedTo({ parent, through: [], ...pairs })}`;
}

function joinToMany(toMany: ToManyJoin, page: FromClause): JoinCondition {
  return (child) => refersTo(toMany, child, page);
}

function compileChildren(children: Level, scope: Scope, joinedBy: JoinCondition): CompiledLevel {
  return children.kind === 'rows' ? compileRows(children, scope, joinedBy) : compileGroups(children, scope, joinedBy);
}

function lateral(query: Fragment, scope: Scope): { column: Fragment; from: Fragment } {
  const name = alias(`l${scope.next()}`);
  return { column: sql`${name}.${JSON_COLUMN}`, from: sql` left join lateral (${query}) ${name} on true` };
}
