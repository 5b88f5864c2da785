/**
 * The oracle: what the service has to answer to a request, found by nested loops over the rows in memory. It shares no code
 * with the service and reads requests in the form of a SEARCH body.
 */
import type { Expected } from './expected.js';
import { Key } from './expected.js';
import { isJson, type Json, showValue } from './kinds.js';
import {
  heldBy,
  joinKey,
  keyOf,
  keyTextOf,
  type Relation,
  type Row,
  rowWith,
  showsKey,
  soleKey,
  type Table,
  tableNamed,
  wholeOf,
} from './model.js';
import { isFound, matches } from './oracle-filter.js';
import { expectedGroups } from './oracle-groups.js';
import {
  anyTarget,
  childrenOf,
  columnNamed,
  compareNullable,
  evaluate,
  isListed,
  Refused,
  readExpression,
  stepInto,
  type World,
} from './oracle-values.js';
import type { Query, ReadRequest } from './requests.js';
import { emptyTree, isOpened, mergeTrees, readFields, type Tree, wholeTree } from './selection.js';
import { rankOf } from './special-types.js';

export interface ExpectedAnswer {
  readonly status: number;
  readonly body: { readonly [name: string]: Expected } | null;
}

export function expectedAnswer(world: World, request: ReadRequest): ExpectedAnswer {
  const table = tableNamed(world.model, request.collection);
  const { query } = request;
  for (const name of Object.keys(query)) world.seen.add(`parameter ${name}`);
  refuseEmpty(query, '');
  const level: Level = { table, query, prefix: '', from: null, backlink: query['backlink'] !== false };
  const tree = readFields((query['fields'] as string[] | undefined) ?? ['*']);
  if (request.item !== null) {
    world.seen.add('single read');
    if (table.key.length > 1) world.seen.add('key of several columns');
    const row = table.key.length > 0 && table.rows.find((each) => hasKey(table, each, [request.item ?? '']));
    return row ? { status: 200, body: { data: showRow(world, level, row, tree) } } : { status: 403, body: null };
  }
  const keys = request.keys?.map(String);
  if (keys) world.seen.add('parameter keys');
  if (table.key.length === 0) {
    world.seen.add('no key');
    if (keys) return { status: 403, body: null };
    if (request.walk !== null) return { status: 400, body: null };
  }
  if (keys && !showsKey(table)) return { status: 403, body: null };
  const named = table.rows.filter((row) => !keys || hasKey(table, row, keys));
  const found = select(world, level, named);
  if (query['filter'] !== undefined) {
    world.seen.add(`filter keeps ${found.length === 0 ? 'none' : found.length === named.length ? 'all' : 'some'}`);
  }
  const data =
    query['aggregate'] !== undefined || query['groupBy'] !== undefined
      ? page(world, expectedGroups(world, table, found, query, ''), level)
      : page(world, sorted(world, level, found, null), level).map((row) => showRow(world, level, row, tree));
  if (query['meta'] === undefined) return { status: 200, body: { data } };
  const wanted = query['meta'] as string[];
  const all = { total_count: table.rows.length, filter_count: found.length, estimated_count: found.length };
  const isWanted = (name: string): boolean => wanted.includes('*') && name !== 'estimated_count';
  const meta = Object.entries(all).filter(([name]) => isWanted(name) || wanted.includes(name));
  return { status: 200, body: { data, meta: Object.fromEntries(meta) } };
}

/** The service reads a list without entries as one that was not given: only a shrunk request has one. */
function refuseEmpty(query: Query, prefix: '' | '_'): void {
  for (const [name, value] of Object.entries(query)) {
    if (typeof value !== 'object' || value === null) continue;
    if (prefix === '_' && !name.startsWith('_')) refuseEmpty(value as Query, '_');
    if (name === 'deep') refuseEmpty({ ...value } as Query, '_');
    if (!LISTS.has(name.slice(prefix.length))) continue;
    const isEmpty =
      Object.keys(value).length === 0 || Object.values(value).some((each) => Object.keys(each).length === 0);
    if (isEmpty) throw new Refused(`"${name}" is empty`);
  }
}

const LISTS: ReadonlySet<string> = new Set(['fields', 'alias', 'sort', 'aggregate', 'groupBy', 'having', 'meta']);

/** One level of the answer: the table, and what the query, or `deep`, says of it. */
interface Level {
  readonly table: Table;
  readonly query: Query;
  readonly prefix: '' | '_';
  readonly from: Relation | null;
  readonly backlink: boolean;
}

function parameter(level: Level, name: string): unknown {
  return level.query[`${level.prefix}${name}`];
}

/** A key names a row only to who may see it. */
function hasKey(table: Table, row: Row, keys: readonly string[]): boolean {
  const isOpen = table.key.every(({ name }) => (row[name] ?? null) !== null);
  return isOpen && keys.includes(keyTextOf(table, row));
}

function select(world: World, level: Level, rows: readonly Row[]): Row[] {
  const filter = parameter(level, 'filter');
  const search = parameter(level, 'search');
  return rows.filter(
    (row) =>
      (filter === undefined || matches(world, filter, level.table, row)) &&
      (search === undefined || isFound(world, String(search), level.table, row)),
  );
}

function sorted(world: World, level: Level, rows: readonly Row[], relation: Relation | null): Row[] {
  const { table } = level;
  const given = parameter(level, 'sort') as string[] | undefined;
  const fallback = (relation?.kind === 'many' ? relation.sortField : null) ?? table.sortField;
  const keys = (given ?? (fallback === null ? [] : [fallback])).map((text) => {
    const descending = text.startsWith('-');
    return { expression: readExpression(descending ? text.slice(1) : text), descending };
  });
  const ranked = rows.map((row) => ({
    row,
    values: keys.map(({ expression, descending }) => {
      if (given && expression.call) world.seen.add('sort function');
      if (given && expression.path.length > 1) world.seen.add('sort path');
      if (expression.call === 'rank') return rank(world, level, row, expression.path[0] ?? '');
      return evaluate(world, table, row, expression, descending);
    }),
  }));
  ranked.sort((left, right) => {
    for (const [position, { descending }] of keys.entries()) {
      const order = compareNullable(left.values[position] ?? null, right.values[position] ?? null, descending);
      if (order !== 0) return order;
    }
    const [one, other] = [keyOf(table, left.row), keyOf(table, right.row)];
    return one.map((value, at) => compareNullable(value, other[at] ?? null, false)).find((order) => order !== 0) ?? 0;
  });
  return ranked.map(({ row }) => row);
}

/** Of the first search in the field. */
function rank(world: World, level: Level, row: Row, name: string): number | null {
  world.seen.add('sort rank');
  const value = (row[columnNamed(level.table, name).name] ?? null) as Json | null;
  const filter = (parameter(level, 'filter') ?? {}) as { readonly _or?: readonly Query[] } & Query;
  const test = (filter._or?.[0] ?? filter)[name] as { readonly _fts?: { readonly query: string } } | undefined;
  const search = level.table.searchField === name ? parameter(level, 'search') : undefined;
  const query = test?._fts?.query ?? search;
  if (query === undefined) throw new Refused('a rank needs a search');
  return value && rankOf(value.json, String(query));
}

/** `page` 0 says nothing, and no page says anything without a limit. */
function page<Item>(world: World, items: readonly Item[], level: Level): Item[] {
  const limit = Number(parameter(level, 'limit') ?? world.model.options.defaultLimit);
  const number = Number(parameter(level, 'page') ?? 0);
  const offset = number > 0 && limit >= 0 ? limit * (number - 1) : Number(parameter(level, 'offset') ?? 0);
  return items.slice(offset, limit < 0 ? undefined : offset + limit);
}

interface Output {
  /** A column or a relation of the table, or a function as it was written. */
  readonly source: string;
  readonly tree: Tree;
}

function showRow(world: World, level: Level, row: Row, tree: Tree): { [name: string]: Expected } {
  const shown: Record<string, Expected> = {};
  for (const [name, output] of outputsOf(world, level, tree)) {
    if (!isLeftOut(world, level, name, output)) shown[name] = showOutput(world, level, row, name, output);
  }
  return shown;
}

/** What leads to where nothing may be seen, unless the field itself is selected, and keys that may not be seen. */
function isLeftOut(world: World, level: Level, name: string, { source, tree }: Output): boolean {
  const { table } = level;
  const cut = table.view?.cut.find((each) => each.name === source);
  if (cut) return (isOpened(tree) && !tree.isWhole) || cut.kind === 'many' || cut.many.columns.length > 1;
  const relation = table.relations.find((each) => each.name === source);
  if (relation?.kind !== 'many' || isOpened(tree)) return false;
  const target = tableNamed(world.model, relation.target);
  const { query } = below(level, name, target, relation);
  const isGrouped = query['_aggregate'] !== undefined || query['_groupBy'] !== undefined;
  return !isGrouped && !showsKey(target);
}

/** Wildcards stand for all columns, relations and aliases. */
function outputsOf(world: World, level: Level, tree: Tree): Map<string, Output> {
  const outputs = new Map<string, Output>();
  const aliases = new Map(Object.entries((parameter(level, 'alias') ?? {}) as Record<string, string>));
  const add = (name: string, source: string, below: Tree): void => {
    outputs.set(name, { source, tree: mergeTrees(outputs.get(name)?.tree ?? emptyTree(), below) });
  };
  for (const text of tree.calls) add(readExpression(text).output, text, emptyTree());
  for (const [name, below] of tree.fields) {
    if (name !== '*') {
      if (aliases.has(name)) world.seen.add('alias');
      const [base = name] = name.split(':');
      const isScoped = base !== name && !aliases.has(name);
      add(
        isScoped ? base : name,
        aliases.get(name) ?? base,
        isScoped
          ? { ...emptyTree(), isWhole: below.isWhole && isOpened(below), scopes: new Map([[name, below]]) }
          : below,
      );
      continue;
    }
    world.seen.add(below.fields.size > 0 ? 'fields *.*' : 'fields *');
    for (const column of level.table.columns) {
      const relations = [...level.table.relations, ...(level.table.view?.cut ?? [])];
      const relation = relations.find((each) => each.name === column.name);
      add(column.name, column.name, relation && !isWayBack(relation, level) ? below : wholeTree());
    }
    for (const relation of level.table.relations) {
      const isAlias = relation.kind === 'many' || relation.many.columns.length > 1;
      if (isAlias) add(relation.name, relation.name, isWayBack(relation, level) ? wholeTree() : below);
    }
    for (const [alias, target] of aliases) add(alias, target, below);
  }
  return outputs;
}

function isWayBack(relation: Relation, { from, backlink }: Level): boolean {
  if (backlink || !from) return false;
  return from.many.table === relation.many.table && from.many.field === relation.many.field;
}

function showOutput(world: World, level: Level, row: Row, name: string, { source, tree }: Output): Expected {
  const { table } = level;
  if (source.includes('(')) return showCall(world, table, row, source);
  const relation = table.relations.find((each) => each.name === source);
  if (relation?.kind === 'many') return showMany(world, level, row, name, relation, tree);
  if (relation?.kind === 'one' && isOpened(tree)) {
    const target = tableNamed(world.model, relation.target);
    const found = rowWith(target, relation, heldBy(table, row, relation));
    const kind = relation.many.columns.length > 1 ? 'many-to-one of several columns' : 'many-to-one';
    return showSingle(world, below(level, name, target, relation), found, tree, kind);
  }
  if (relation?.kind === 'one' && relation.many.columns.length > 1) {
    world.seen.add('fields reference of several columns');
    return joinKey(tableNamed(world.model, relation.target), heldBy(table, row, relation) ?? [null]);
  }
  if (relation?.kind === 'any' && isOpened(tree)) return showAny(world, level, row, name, relation, tree);
  return showValue(columnNamed(table, source).kind, row[source] ?? null);
}

function below(level: Level, name: string, table: Table, relation: Relation): Level {
  const deep = (level.prefix === '' ? level.query['deep'] : level.query) as Query | undefined;
  return {
    table,
    query: (deep?.[name] as Query | undefined) ?? {},
    prefix: '_',
    from: relation,
    backlink: level.backlink,
  };
}

function note(world: World, level: Level): void {
  for (const name of Object.keys(level.query)) if (name.startsWith('_')) world.seen.add(`deep ${name}`);
}

function showSingle(world: World, level: Level, row: Row | null, tree: Tree, kind: string): Expected {
  world.seen.add(`fields ${kind}`);
  note(world, level);
  const [found] = row ? select(world, level, [row]) : [];
  return found ? showRow(world, level, found, tree) : null;
}

function showMany(
  world: World,
  level: Level,
  row: Row,
  name: string,
  relation: Relation & { kind: 'many' },
  tree: Tree,
): Expected {
  const target = tableNamed(world.model, relation.target);
  const inner = below(level, name, target, relation);
  note(world, inner);
  if (!isListed(level.table, row, relation.name)) return null;
  const found = select(world, inner, childrenOf(world, level.table, row, relation));
  if (inner.query['_aggregate'] !== undefined || inner.query['_groupBy'] !== undefined) {
    return page(world, expectedGroups(world, target, found, inner.query, '_'), inner);
  }
  const rows = page(world, sorted(world, inner, found, relation), inner);
  if (tree.fields.size + tree.calls.size === 0) {
    world.seen.add('fields keys');
    return rows.map((each) => showKey(target, each));
  }
  world.seen.add(relation.junctionField === null ? 'fields one-to-many' : 'fields many-to-many');
  if (relation.many.columns.length > 1) world.seen.add('fields one-to-many of several columns');
  return rows.map((each) => showRow(world, inner, each, tree));
}

/** Fields without a scope are of every target that has them; a target of which nothing is selected shows its key. */
function showAny(
  world: World,
  level: Level,
  row: Row,
  name: string,
  relation: Relation & { kind: 'any' },
  tree: Tree,
): Expected {
  const named = wholeOf(level.table, row)[relation.collectionField];
  const target = world.model.tables.find(({ name }) => name === named);
  if (!target || !relation.targets.includes(target.name)) return null;
  const fields = [...target.columns, ...target.relations, ...(target.view?.cut ?? [])];
  const has = (field: string): boolean => field === '*' || fields.some((each) => each.name === field);
  const common: Tree = {
    ...tree,
    fields: new Map([...tree.fields].filter(([field]) => has(field))),
    scopes: new Map(),
  };
  const wanted = mergeTrees(common, tree.scopes.get(`${relation.name}:${target.name}`) ?? emptyTree());
  const inner = below(level, `${name}:${target.name}`, target, relation);
  const found = anyTarget(level.table, row, relation, target);
  if (wanted.fields.size + wanted.calls.size > 0) return showSingle(world, inner, found, wanted, 'many-to-any');
  const [shown] = found ? select(world, inner, [found]) : [];
  const key = shown && (showsKey(target) ? showKey(target, shown) : keyTextOf(target, shown));
  return shown && key !== null ? new Key(String(key)) : null;
}

/** As the caller may see it. */
function showKey(table: Table, row: Row): string | number | null {
  const values = table.key.map(({ name }) => row[name] ?? null);
  const sole = soleKey(table);
  return sole ? (showValue(sole.kind, values[0] ?? null) as string | number | null) : joinKey(table, values);
}

function showCall(world: World, table: Table, row: Row, text: string): Expected {
  const expression = readExpression(text);
  world.seen.add('fields function');
  if (expression.call !== 'json') return evaluate(world, table, row, expression, null) as Expected;
  const [name = ''] = expression.path;
  if (!isJson(columnNamed(table, name).kind)) throw new Refused(`json() does not fit "${name}"`);
  world.seen.add('json()');
  const value = row[name] ?? null;
  return (value === null ? null : (stepInto((value as Json).json, expression.inside) ?? null)) as Expected;
}
