/** A level of rows → SQL: the page, what is value of its rows, and the lateral joins to the levels below. */
import { assertNever } from '../base/assert-never.js';
import { elementAt } from '../base/narrow.js';
import { singleKey } from '../mirror/item-key.js';
import type { Output, RowLevel, ToManyJoin, ToOneJoin } from '../plan/plan.js';
import { alias, type Fragment, join, literal, nothing, sql } from '../sql/fragment.js';
import { areEqual } from './compare.js';
import { type FromClause, refersTo, type Scope } from './from-clause.js';
import { compileGroups } from './groups.js';
import { JSON_COLUMN, type JsonValue, jsonList, jsonObject, toJsonText } from './json.js';
import { commaList, showKey } from './key-columns.js';
import { compileOperand, showOperand } from './operand.js';
import { type CompiledLevel, type JoinCondition, orderClause } from './page.js';
import { isReferred, keyOfTarget } from './reference.js';
import { compilePage, type Page, pageSource } from './row-page.js';
import { sharedOutputs } from './shared-subtree.js';
import { changesOfList, changesOfOne, type RowChanges, versionChanges, versionOf } from './version.js';

export function compileRows(
  level: RowLevel,
  scope: Scope,
  joinedBy: JoinCondition | null,
  changes = changesOf(level),
): CompiledLevel {
  const show: Show = (source, shared, changed) =>
    level.bare ? compileBare(level, source) : compileObject(level.outputs, source, shared, changed);
  return compileShown(level, scope, joinedBy, show, changes);
}

function changesOf({ version }: RowLevel): RowChanges | null {
  return version ? versionChanges(version) : null;
}

/** Of a function that returns a scalar: the row is the value itself, not an object. */
function compileBare({ outputs }: RowLevel, source: FromClause): ShownRow {
  const [only] = outputs;
  if (only?.kind !== 'value') return { json: sql`'null'`, joins: nothing };
  return { json: toJsonText(showOperand(only.operand, compileOperand(only.operand, source), only.as)), joins: nothing };
}

/** The same for rows of which the key alone is value: it is the only output, so that the page has its column. */
function compileKeys(
  level: RowLevel,
  scope: Scope,
  joinedBy: JoinCondition,
  changes: RowChanges | null = null,
): CompiledLevel {
  const { key } = level.collection;
  const outputs = key.map((field): Output => {
    return { kind: 'value', name: field.name, operand: { kind: 'field', through: [], field } };
  });
  const show: Show = (source) => {
    const columns = key.map((field) => source.column([], field));
    return { json: toJsonText(showKey(key, columns)), joins: nothing };
  };
  return compileShown({ ...level, outputs }, scope, joinedBy, show, changes);
}

/** `changes` are those of the row, where it is shown as a version. */
type Show = (source: FromClause, shared: Shared, changes: Fragment | null) => ShownRow;

function compileShown(
  level: RowLevel,
  scope: Scope,
  joinedBy: JoinCondition | null,
  show: Show,
  changes: RowChanges | null,
): CompiledLevel {
  const number = scope.next();
  const shared = changes ? NONE_SHARED : sharedOutputs(level, joinedBy === null);
  const page = compilePage(level, number, scope, joinedBy, shared.size > 0, changes);
  const { json, joins } = show(pageSource(level, page, scope), shared, page.changes);
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
  const changes = changesOf(level);
  const shared = changes ? NONE_SHARED : sharedOutputs(level, true);
  const page = compilePage(level, scope.next(), scope, null, shared.size > 0, changes);
  const { json, joins } = compileObject(level.outputs, pageSource(level, page, scope), shared, page.changes);
  const keys = join(
    page.order.map((each) => sql`${each.column}::text`),
    sql`, `,
  );
  const columns = sql`${json} as ${JSON_COLUMN}, json_build_array(${keys})::text as ${alias('k')}`;
  return selectFrom(page, columns, joins, shared);
}

/** A row as JSON, and the joins that this takes. */
interface ShownRow {
  readonly json: Fragment;
  readonly joins: Fragment;
}

/** Outputs that are computed once per distinct reference. */
type Shared = ReadonlySet<Output>;

/** Rows of a version differ though they refer to the same. */
const NONE_SHARED: Shared = new Set();

function compileObject(
  outputs: readonly Output[],
  rows: FromClause,
  shared: Shared,
  changes: Fragment | null,
): ShownRow {
  const compiled = outputs.map((output) => ({ name: output.name, ...compileOutput(output, rows, shared, changes) }));
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

function compileOutput(output: Output, page: FromClause, shared: Shared, changes: Fragment | null): CompiledOutput {
  const { scope } = page;
  switch (output.kind) {
    case 'value':
      return { value: showOperand(output.operand, compileOperand(output.operand, page), output.as), from: nothing };
    case 'constant':
      return { value: { form: 'constant', constant: output.text }, from: nothing };
    case 'version':
      return { value: { form: 'json', text: changes ? versionOf(changes) : sql`null` }, from: nothing };
    case 'object': {
      const { json, joins } = compileObject(output.outputs, page, shared, changes);
      return { value: { form: 'document', text: json }, from: joins };
    }
    case 'one': {
      if (shared.has(output)) return compileShared(output, page);
      const compile = output.keys ? compileKeys : compileRows;
      const { column, from } = lateral(relatedRow(output.level, output.toOne, compile, page, changes), scope);
      return { value: { form: 'json', text: column }, from };
    }
    case 'reference':
      return { value: showKey(output.toOne.columns, page.reference([], output.toOne)), from: nothing };
    case 'many':
    case 'keys':
      return compileList(compileChildren(output, scope, page, changes), output.toMany, page);
    case 'any': {
      // A case, not a join per target: keys of several types lie in one column, and only the named target may read it.
      const [first] = output.targets;
      if (!first) return { value: { form: 'constant', constant: null }, from: nothing };
      const cases = output.targets.map(
        ({ toOne, level: target }) =>
          sql` when ${literal(toOne.target.name)} then (${anyTarget(target, toOne, output.keys, page, changes)})`,
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
    toOne.kind === 'one' ? toOne.columns : [toOne.field],
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

function anyTarget(
  level: RowLevel,
  toOne: ToOneJoin,
  keys: boolean,
  page: FromClause,
  changes: Fragment | null,
): Fragment {
  const compile = level.outputs.length === 0 && keys ? compileKeys : compileRows;
  return relatedRow(level, toOne, compile, page, changes);
}

/** The row that a reference leads to; in a version that may be one that it has made. */
function relatedRow(
  level: RowLevel,
  toOne: ToOneJoin,
  compile: typeof compileRows | typeof compileKeys,
  page: FromClause,
  changes: Fragment | null,
): Fragment {
  const { scope } = page;
  if (!changes) return compile(level, scope, joinToOne(toOne, page)).query;
  const { existing, made } = changesOfOne(changes, toOne.field, toOne.target, page.mask([], toOne.field));
  const { query } = compile(level, scope, joinToOne(toOne, page), existing);
  return sql`(${query}) union all (${compile(level, scope, () => sql`true`, made).query})`;
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

function compileChildren(
  output: Extract<Output, { kind: 'many' | 'keys' }>,
  scope: Scope,
  page: FromClause,
  changes: Fragment | null,
): CompiledLevel {
  const { kind, level, toMany } = output;
  const joinedBy: JoinCondition = (child) => refersTo(toMany, child, page);
  // Groups are those of the rows as they are.
  if (level.kind === 'groups') return compileGroups(level, scope, joinedBy);
  const compile = kind === 'keys' ? compileKeys : compileRows;
  const key = singleKey(toMany.collection);
  if (!changes || !toMany.via || !key) return compile(level, scope, joinedBy);
  const { stays, existing, made } = changesOfList(changes, toMany.via.name, toMany.collection, key);
  const { query, row } = compile(level, scope, (child) => stays(child, joinedBy(child)), existing);
  // What only the version has, has no key yet.
  if (kind === 'keys') return { query, row };
  return { query: sql`(${query}) union all (${compile(level, scope, () => sql`true`, made).query})`, row };
}

function lateral(query: Fragment, scope: Scope): { column: Fragment; from: Fragment } {
  const name = alias(`l${scope.next()}`);
  return { column: sql`${name}.${JSON_COLUMN}`, from: sql` left join lateral (${query}) ${name} on true` };
}
