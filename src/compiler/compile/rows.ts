/** A level of rows → SQL: the page, the values of its rows, and the lateral joins to the levels below. */
import { assertNever } from '../../base/assert-never.js';
import { elementAt } from '../../base/narrow.js';
import { singleKey } from '../model/item-key.js';
import type { Output, RowLevel, ToManyJoin, ToOneJoin } from '../plan/plan.js';
import { alias, type Fragment, join, literal, nothing, sql } from '../sql/fragment.js';
import { areEqual } from './compare.js';
import { type FromClause, refersTo, type Scope, shownIf } from './from-clause.js';
import { compileGroups } from './groups.js';
import { JSON_COLUMN, type JsonValue, jsonList, jsonObject, toJsonText } from './json.js';
import { commaList, showKey } from './key-columns.js';
import { combined, type LinkColumn, linkColumns, linksBelow, linksOf, ownLinks } from './links.js';
import { compileOperand, showOperand } from './operand.js';
import { type CompiledLevel, compilePage, type JoinCondition, orderClause, type Page, pageSource } from './page.js';
import { isReferred, keyOfTarget } from './reference.js';
import { quotedTag, ROW_TAG } from './row-tag.js';
import { changesOfList, changesOfOne, type RowChanges, versionChanges, versionOf } from './version.js';

export function compileRows(
  level: RowLevel,
  scope: Scope,
  joinedBy: JoinCondition | null,
  changes = changesOf(level),
): CompiledLevel {
  const show: Show = (shown) => (level.bare ? compileBare(level, shown.page) : compileObject(level.outputs, shown));
  return compileShown(level, { scope, joinedBy, changes }, show);
}

/** Rows of another source than their table, under the alias that it gets. */
export function compileRowsFrom(level: RowLevel, scope: Scope, table: (row: Fragment) => Fragment): CompiledLevel {
  const show: Show = (shown) => compileObject(level.outputs, shown);
  return compileShown(level, { scope, joinedBy: null, changes: null, table }, show);
}

function changesOf({ version }: RowLevel): RowChanges | null {
  return version ? versionChanges(version) : null;
}

/** For a function that returns a scalar: the row is the value itself, not an object. */
function compileBare({ outputs }: RowLevel, source: FromClause): ShownRow {
  const [only] = outputs;
  if (only?.kind !== 'value') return { json: sql`'null'`, joins: nothing, links: [] };
  const json = toJsonText(showOperand(only.operand, compileOperand(only.operand, source), only.as));
  return { json, joins: nothing, links: [] };
}

/** Compiles rows that show only their key. The key is the only output, so the page contains its columns. */
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
  const show: Show = ({ page }) => {
    const columns = key.map((field) => page.column([], field));
    return { json: toJsonText(showKey(key, columns)), joins: nothing, links: [] };
  };
  return compileShown({ ...level, outputs }, { scope, joinedBy, changes, linked: level }, show);
}

/** The rows of a page, as their outputs see them. */
interface ShownPage {
  readonly page: FromClause;
  /** Outputs that are computed once per distinct reference. */
  readonly shared: Shared;
  /** The changes of the row if it is shown as a version, else null. */
  readonly changes: Fragment | null;
  /** The row part of its entity tag, or null if it has none. */
  readonly tag: Fragment | null;
}

type Show = (shown: ShownPage) => ShownRow;

interface LevelContext {
  readonly scope: Scope;
  /** The condition that joins the level to its parent, or null at the root. */
  readonly joinedBy: JoinCondition | null;
  readonly changes: RowChanges | null;
  /** Replaces the table. */
  readonly table?: ((row: Fragment) => Fragment) | undefined;
  /** The level as the links name it, if it is another one. */
  readonly linked?: RowLevel;
}

function compileShown(level: RowLevel, context: LevelContext, show: Show): CompiledLevel {
  const { scope, joinedBy, changes } = context;
  const number = scope.next();
  const shared = changes ? NONE_SHARED : sharedOutputs(level, joinedBy === null);
  const sets = linksOf(scope, context.linked ?? level);
  const page = compilePage(level, { ...context, number, isShared: shared.size > 0, linked: sets });
  const rows = pageSource(level, page, scope);
  const { json, joins, links } = show({ page: rows, shared, changes: page.changes, tag: page.tag });
  const tag = level.tagged ? sql`, ${page.name}.${ROW_TAG}` : nothing;
  const all = [...ownLinks(sets, rows), ...links];
  const query = selectFrom(page, sql`${json} as ${JSON_COLUMN}${tag}${linkColumns(all)}`, joins, shared);
  return { query, row: alias(`r${number}`), links: all.map(({ set }) => set) };
}

/** The page is materialized if some outputs are computed from the page as a whole. */
function selectFrom(page: Page, columns: Fragment, joins: Fragment, shared: Shared): Fragment {
  const order = orderClause(page.order);
  if (shared.size === 0) return sql`select ${columns} from (${page.query}) ${page.name}${joins}${order}`;
  return sql`with ${page.name} as materialized (${page.query}) select ${columns} from ${page.name}${joins}${order}`;
}

/** Each row as JSON, with its sort values as text. */
export function compileRowsWithCursor(level: RowLevel, scope: Scope): Fragment {
  const changes = changesOf(level);
  const shared = changes ? NONE_SHARED : sharedOutputs(level, true);
  const page = compilePage(level, {
    number: scope.next(),
    scope,
    joinedBy: null,
    isShared: shared.size > 0,
    changes,
  });
  const shown = { page: pageSource(level, page, scope), shared, changes: page.changes, tag: page.tag };
  const { json, joins } = compileObject(level.outputs, shown);
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
  readonly links: readonly LinkColumn[];
}

type Shared = ReadonlySet<Output>;

/** Rows of a version differ though they refer to the same. */
const NONE_SHARED: Shared = new Set();

function compileObject(outputs: readonly Output[], shown: ShownPage): ShownRow {
  const compiled = outputs.map((output) => ({ name: output.name, ...compileOutput(output, shown) }));
  return {
    json: jsonObject(compiled),
    joins: join(
      compiled.map(({ from }) => from),
      nothing,
    ),
    links: compiled.flatMap(({ links = [] }) => links),
  };
}

interface CompiledOutput {
  readonly value: JsonValue;
  readonly from: Fragment;
  /** The links of the rows below. */
  readonly links?: readonly LinkColumn[];
}

function compileOutput(output: Output, shown: ShownPage): CompiledOutput {
  const { page, shared, changes, tag } = shown;
  switch (output.kind) {
    case 'value':
      return { value: showOperand(output.operand, compileOperand(output.operand, page), output.as), from: nothing };
    case 'constant':
      return { value: { form: 'constant', constant: output.text }, from: nothing };
    case 'tag':
      return {
        value: tag ? { form: 'quoted', text: quotedTag(tag) } : { form: 'constant', constant: null },
        from: nothing,
      };
    case 'version':
      return { value: { form: 'json', text: changes ? versionOf(changes) : sql`null` }, from: nothing };
    case 'object': {
      const { json, joins, links } = compileObject(output.outputs, shown);
      return { value: { form: 'document', text: json }, from: joins, links };
    }
    case 'one': {
      if (shared.has(output)) return compileShared(output, page);
      const compile = output.keys ? compileKeys : compileRows;
      // The offset is a fence: the planner would copy the JSON of the row into that of each row above, and plan the copy each time.
      const { query, links } = relatedRow(output.level, output.toOne, compile, shown);
      const { column, from, row } = lateral(sql`${query} offset 0`, page.scope);
      return { value: { form: 'json', text: column }, from, links: linksBelow(links, row) };
    }
    case 'reference':
      return { value: showKey(output.toOne.columns, page.reference([], output.toOne)), from: nothing };
    case 'many':
    case 'keys':
      return compileList(compileChildren(output, shown), output.toMany, page);
    case 'any': {
      // A case, not a join per target: keys of several types lie in one column, and only the named target may read it.
      const [first] = output.targets;
      if (!first) return { value: { form: 'constant', constant: null }, from: nothing };
      const cases = output.targets.map(({ toOne, level }) => {
        const compile = level.outputs.length === 0 && output.keys ? compileKeys : compileRows;
        return sql` when ${literal(toOne.target.name)} then (${relatedRow(level, toOne, compile, shown).query})`;
      });
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
  const { query, links } = compileRows(level, scope, isJoined(toOne, page, distinctKeys, nothing));
  const { column, from, row } = lateral(query, scope);
  const name = alias(`l${scope.next()}`);
  const rows = sql`select ${commaList([...distinctKeys, column])}${linkColumns(linksBelow(links, row))}
    from (select distinct ${commaList(columns)} from ${page.alias}) ${distinct}${from} offset 0`;
  const same = areEqual(
    keys.map((key) => sql`${name}.${key}`),
    stored,
    toOne.kind === 'one' ? toOne.columns : [toOne.field],
  );
  return {
    value: { form: 'json', text: sql`${name}.${JSON_COLUMN}` },
    from: sql` left join (${rows}) ${name} on ${same}`,
    links: linksBelow(links, name),
  };
}

/** Compiles to null if the caller may not see the field that shows the list. */
function compileList(related: CompiledLevel, toMany: ToManyJoin, page: FromClause): CompiledOutput {
  const mask = toMany.via && page.mask([], toMany.via);
  const below = linkColumns(combined(related));
  const list = sql`select ${jsonList(related.row)} as ${JSON_COLUMN}${below} from (${related.query}) ${related.row}`;
  const { column, from, row } = lateral(list, page.scope);
  const links = linksBelow(related.links, row);
  if (!mask) return { value: { form: 'document', text: column }, from, links };
  return { value: { form: 'json', text: shownIf(mask, column) }, from, links };
}

/** The row that a reference leads to. In a version that may be a row that only the version has. */
function relatedRow(
  level: RowLevel,
  toOne: ToOneJoin,
  compile: typeof compileRows | typeof compileKeys,
  { page, changes }: ShownPage,
): Pick<CompiledLevel, 'query' | 'links'> {
  const { scope } = page;
  if (!changes) return compile(level, scope, joinToOne(toOne, page));
  const { existing, made } = changesOfOne(changes, toOne.field, toOne.target, page.mask([], toOne.field));
  const { query } = compile(level, scope, joinToOne(toOne, page), existing);
  return { query: sql`(${query}) union all (${compile(level, scope, () => sql`true`, made).query})`, links: [] };
}

/** The page of a to-one relation keeps its `limit 1`, a fence: without it the planner joins the whole related table. */
function joinToOne(toOne: ToOneJoin, page: FromClause): JoinCondition {
  const named = toOne.kind === 'any' ? page.raw([], toOne.collectionField) : nothing;
  return isJoined(toOne, page, page.reference([], toOne), named);
}

/** `stored` is the reference, `named` the column with the name of its collection. */
function isJoined(toOne: ToOneJoin, parent: FromClause, stored: readonly Fragment[], named: Fragment): JoinCondition {
  return (related) => {
    const key = keyOfTarget(toOne).map((field) => related.raw([], field));
    const same = isReferred(toOne, key, stored, named);
    if (toOne.kind === 'any') return same;
    const pairs = { columns: toOne.key, parentColumns: toOne.columns };
    return sql`${same}${related.joinedTo({ parent, through: [], ...pairs })}`;
  };
}

function compileChildren(
  { kind, level, toMany }: Extract<Output, { kind: 'many' | 'keys' }>,
  { page, changes }: ShownPage,
): CompiledLevel {
  const { scope } = page;
  const joinedBy: JoinCondition = (child) => refersTo(toMany, child, page);
  // Groups are made of the stored rows, without the changes of a version.
  if (level.kind === 'groups') return compileGroups(level, scope, joinedBy);
  const compile = kind === 'keys' ? compileKeys : compileRows;
  const key = singleKey(toMany.collection);
  if (!changes || !toMany.via || !key) return compile(level, scope, joinedBy);
  const { stays, existing, made } = changesOfList(changes, toMany.via.name, toMany.collection, key);
  const { query, row } = compile(level, scope, (child) => stays(child, joinedBy(child)), existing);
  // Rows that only the version has, have no key yet.
  if (kind === 'keys') return { query, row, links: [] };
  return { query: sql`(${query}) union all (${compile(level, scope, () => sql`true`, made).query})`, row, links: [] };
}

function lateral(query: Fragment, scope: Scope): { column: Fragment; from: Fragment; row: Fragment } {
  const row = alias(`l${scope.next()}`);
  return { column: sql`${row}.${JSON_COLUMN}`, from: sql` left join lateral (${query}) ${row} on true`, row };
}

/**
 * The to-one subtrees that are computed once per distinct reference of a page instead of once per row: those that hold a list or a count,
 * below a page of several rows. Measurements: docs/decisions/shared-subtrees.md. One-to-one relations are excluded, since every row
 * has its own, and so are streams, which must not wait for their last row.
 */
function sharedOutputs(level: RowLevel, isRoot: boolean): ReadonlySet<Output> {
  const shared = new Set<Output>();
  if (level.locked || !mayHaveMany(level, isRoot)) return shared;
  const visit = (outputs: readonly Output[]): void => {
    for (const output of outputs) {
      if (output.kind === 'object') visit(output.outputs);
      else if (output.kind === 'one' && mayRepeat(output.toOne) && hasLists(output.level.outputs)) shared.add(output);
    }
  };
  visit(level.outputs);
  return shared;
}

function mayHaveMany({ limit }: RowLevel, isRoot: boolean): boolean {
  if (limit.kind === 'all') return !isRoot;
  return limit.kind === 'slot' || limit.value > 1;
}

function mayRepeat(toOne: ToOneJoin): boolean {
  return toOne.kind === 'one' && !toOne.columns.some(({ column }) => column?.is_unique);
}

function hasLists(outputs: readonly Output[]): boolean {
  return outputs.some((output) => {
    switch (output.kind) {
      case 'many':
      case 'keys':
        return true;
      case 'value':
        return output.operand.kind === 'count' || output.operand.kind === 'first';
      case 'object':
        return hasLists(output.outputs);
      case 'one':
        return hasLists(output.level.outputs);
      case 'any':
        return output.targets.some(({ level }) => hasLists(level.outputs));
      default:
        return false;
    }
  });
}
