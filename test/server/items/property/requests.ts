/**
 * Random requests, in the form of a SEARCH body. What is selected and what `deep` says of it are drawn together, so that
 * most of what `deep` says matters.
 */
import type { Draw } from './draw.js';
import { drawFilter, type Filter } from './filters.js';
import { isBoxed, isNumber, isText, type KindName, TEXTS, writeValue } from './kinds.js';
import { keyTextOf, type Model, ORDER, type Relation, type Table, tableNamed } from './model.js';
import { drawCall, drawPath, type Path, spellCall } from './paths.js';
import { drawAlternatives, drawQuery } from './special-types.js';

export type Query = { readonly [parameter: string]: unknown };

export interface ReadRequest {
  readonly collection: string;
  /** The key of a single read. */
  readonly item: string | null;
  readonly query: Query;
  /** Keys of a SEARCH. */
  readonly keys: readonly unknown[] | null;
  /** Follows cursors in pages of this size instead of asking once. */
  readonly walk: number | null;
  /** Decides how the request is written. */
  readonly spelling: number;
}

export function drawRequest(model: Model, draw: Draw): ReadRequest {
  const table = draw.pick(model.tables);
  const spelling = draw.integer(0, 1_000_000);
  const plain = { collection: table.name, item: null, keys: null, walk: null, spelling };
  const form = draw.integer(1, 100);
  if (form <= 6) {
    const { fields, alias, deep } = drawLevel(table, model, 3, draw);
    return {
      ...plain,
      item: drawKey(table, draw),
      query: compact({ fields, alias, deep, backlink: drawBacklink(draw) }),
    };
  }
  if (form <= 24) return { ...plain, query: { ...drawGroups(table, model, '', draw), ...drawMeta(draw) } };
  if (form <= 32) {
    const sort = drawSort(table, model, draw);
    const filter = draw.chance(40) ? drawFilter(table, model, 1, draw) : undefined;
    const fields = leastOf(table);
    return { ...plain, walk: draw.integer(1, 5), query: compact({ fields, sort, filter }) };
  }
  const { fields, alias, deep } = drawLevel(table, model, draw.integer(0, 3), draw);
  const query = compact({
    ...drawList(table, model, '', draw),
    ...drawMeta(draw),
    fields: draw.chance(8) ? undefined : fields,
    alias,
    deep,
    backlink: drawBacklink(draw),
  });
  const keys = draw.chance(5) ? draw.repeat(0, 4, () => drawKey(table, draw)) : null;
  return { ...plain, keys, query };
}

function drawMeta(draw: Draw): Query {
  if (!draw.chance(25)) return {};
  return {
    meta: draw.pick([['*'], ['total_count'], ['filter_count'], ['filter_count', 'total_count'], ['estimated_count']]),
  };
}

function drawBacklink(draw: Draw): boolean | undefined {
  return draw.chance(15) ? draw.chance(30) : undefined;
}

function drawKey(table: Table, draw: Draw): string {
  const [row] = draw.some(table.rows, 1, 1);
  const key = row && keyTextOf(table, row);
  if (!key || draw.chance(10)) return table.key.map(({ kind }) => MISSING[kind] ?? 'no such key').join('~') || '1';
  return key;
}

const MISSING: Readonly<Partial<Record<KindName, string>>> = {
  integer: '999999',
  bigInteger: '999999',
  uuid: '99999999-9999-4999-8999-999999999999',
  date: '2222-02-22',
  boolean: 'true',
  decimal: '9.999',
  time: '01:02:03',
  dateTime: '2222-02-22T00:00:00',
  timestamp: '2222-02-22T00:00:00.000Z',
};

/** What a request that selects as little as possible selects. */
export function leastOf({ key, columns }: Table): string[] {
  return (key.length > 0 ? key : columns.slice(0, 1)).map(({ name }) => name);
}

/** Which rows, in which order, how many. */
function drawList(table: Table, model: Model, prefix: '' | '_', draw: Draw): Query {
  const query: Record<string, unknown> = {};
  if (draw.chance(55)) query[`${prefix}filter`] = drawFilter(table, model, draw.integer(0, 3), draw);
  if (draw.chance(10)) query[`${prefix}search`] = drawSearch(table, draw);
  if (draw.chance(45)) query[`${prefix}sort`] = drawSort(table, model, draw);
  return { ...query, ...(draw.chance(6) ? drawRanked(table, model, prefix, draw) : {}), ...drawPage(prefix, draw) };
}

/** The best first: of a search in the column that is declared for it, or of a filter. */
function drawRanked(table: Table, model: Model, prefix: '' | '_', draw: Draw): Query {
  const columns = table.columns.filter(({ kind }) => kind === 'words' || kind === 'label');
  if (columns.length === 0) return {};
  const { name } = draw.pick(columns);
  const query = drawAlternatives(draw);
  const sort = [`${draw.pick(['-', '-', ''])}rank(${name})`, ...drawSort(table, model, draw)];
  if (table.searchField === name) return { [`${prefix}search`]: query, [`${prefix}sort`]: sort };
  const test = { [name]: { _fts: { query, config: 'simple' } } };
  const other = drawFilter(table, model, 0, draw);
  // Beside what always holds there is no search.
  const filter = draw.chance(50) || Object.keys(other).length === 0 ? test : { _or: [test, other] };
  return { [`${prefix}filter`]: filter, [`${prefix}sort`]: sort };
}

function drawPage(prefix: '' | '_', draw: Draw): Query {
  const query: Record<string, unknown> = {};
  if (draw.chance(45)) query[`${prefix}limit`] = draw.pick([-1, 0, 1, 2, 3, 5, 12, 100]);
  if (draw.chance(20)) query[`${prefix}offset`] = draw.pick([0, 1, 2, 5]);
  if (draw.chance(15)) query[`${prefix}page`] = draw.pick([0, 1, 2, 3]);
  return query;
}

/** What looks like a number but is none of some type: it is not found there, and nothing is wrong with it. */
const NO_NUMBERS = ['1e999', '-1e-999', '99999999999999999999', 'NaN', 'Infinity', '0x10', '--1'] as const;

function drawSearch(table: Table, draw: Draw): string {
  if (table.searchField !== null) return drawQuery(draw);
  const column = draw.pick(table.columns);
  const stored = table.rows.flatMap((row) => writeValue(column.kind, row[column.name] ?? null) ?? []);
  if (draw.chance(10)) return draw.pick(NO_NUMBERS);
  const text = stored.length > 0 && draw.chance(70) ? draw.pick(stored) : draw.pick(TEXTS);
  if (!isText(column.kind) || draw.chance(30)) return column.kind === 'decimal' ? text.replace(/\.?0+$/, '') : text;
  const start = draw.integer(0, text.length);
  const piece = [...text].slice(start, start + 3).join('');
  return draw.chance(50) ? piece.toUpperCase() : piece;
}

/** Rows without a key would come in any order behind it. */
function drawSort(table: Table, model: Model, draw: Draw): string[] {
  const sort = draw.repeat(1, 3, () => {
    const path = drawPath(table, model, { depth: 3, many: draw.chance(60), calls: 25 }, draw);
    return draw.chance(45) ? `-${path.text}` : path.text;
  });
  return table.key.length > 0 ? sort : [...sort, ORDER];
}

interface Level {
  readonly fields: string[];
  readonly alias: Query | undefined;
  readonly deep: Query | undefined;
}

const ALIASES = ['x1', 'älias', "o'alias"] as const;

/** What is selected of a table, with what `deep` says of its relations. */
function drawLevel(table: Table, model: Model, depth: number, draw: Draw): Level {
  const fields: string[] = [];
  const alias: Record<string, string> = {};
  const deep: Record<string, Query> = {};
  if (draw.chance(25)) fields.push('*');
  if (depth > 0 && draw.chance(8)) fields.push(depth > 2 && draw.chance(25) ? '*.*.*' : '*.*');
  fields.push(...draw.some(table.columns, 0, 4).map(({ name }) => name));
  for (const call of draw.repeat(0, 2, () => (draw.chance(40) ? drawCall(table, draw) : null))) {
    if (call) fields.push(spellCall([], call, draw));
  }
  const relations: [string, Relation][] = draw
    .some(table.relations, 0, depth > 0 ? 3 : 1)
    .map((each) => [each.name, each]);
  for (const name of draw.chance(20) ? draw.some(ALIASES, 1, 2) : []) {
    const related = table.relations.filter(
      (each) => each.kind !== 'any' && tableNamed(model, each.target).key.length > 0,
    );
    if (depth > 0 && related.length > 0 && draw.chance(60)) {
      const relation = draw.pick(related);
      alias[name] = relation.name;
      if (draw.chance(85)) relations.push([name, relation]);
      continue;
    }
    const call = draw.chance(40) ? drawCall(table, draw) : null;
    alias[name] = call ? spellCall([], call, draw) : draw.pick(table.columns).name;
    if (draw.chance(85)) fields.push(name);
  }
  for (const [name, relation] of relations) {
    if (relation.kind === 'any') drawAny(relation, model, depth, fields, deep, draw);
    else drawRelation(name, relation, model, depth, fields, deep, draw);
  }
  if (fields.length === 0) fields.push(...leastOf(table));
  return { fields, alias: filled(alias), deep: filled(deep) };
}

function drawRelation(
  name: string,
  relation: Relation & { kind: 'one' | 'many' },
  model: Model,
  depth: number,
  fields: string[],
  deep: Record<string, Query>,
  draw: Draw,
): void {
  const target = tableNamed(model, relation.target);
  const inner = drawLevel(target, model, depth - 1, draw);
  const isNested = depth > 0 && draw.chance(75);
  // Rows without a key have nothing to show under the bare name, which is refused.
  const bare = target.key.length > 0 ? name : `${name}.*`;
  fields.push(...(isNested ? inner.fields.map((field) => prefixed(name, field, draw)) : [bare]));
  const own = draw.chance(55) ? drawDeep(relation, target, model, draw) : {};
  const said = compact({ ...own, _alias: inner.alias, ...(isNested ? inner.deep : {}) });
  if (Object.keys(said).length > 0) deep[name] = said;
}

function drawDeep(relation: Relation, target: Table, model: Model, draw: Draw): Query {
  if (relation.kind === 'many') {
    return draw.chance(22) ? drawGroups(target, model, '_', draw) : drawList(target, model, '_', draw);
  }
  const filter = { _filter: drawFilter(target, model, draw.integer(0, 2), draw) };
  return draw.chance(80) ? filter : { ...filter, _search: drawSearch(target, draw), ...drawPage('_', draw) };
}

/** Of some targets by name, of all of them, or both. */
function drawAny(
  relation: Relation & { kind: 'any' },
  model: Model,
  depth: number,
  fields: string[],
  deep: Record<string, Query>,
  draw: Draw,
): void {
  if (depth === 0 || draw.chance(20)) {
    fields.push(relation.name);
    return;
  }
  for (const name of draw.some(relation.targets, 0, 2)) {
    const target = tableNamed(model, name);
    const inner = drawLevel(target, model, depth - 1, draw);
    const key = `${relation.name}:${name}`;
    fields.push(...inner.fields.map((field) => prefixed(key, field, draw)));
    const own = draw.chance(40) ? drawDeep(relation, target, model, draw) : {};
    const said = compact({ ...own, _alias: inner.alias, ...inner.deep });
    if (Object.keys(said).length > 0) deep[key] = said;
  }
  const columns = tableNamed(model, draw.pick(relation.targets)).columns;
  const unscoped = draw.chance(50) ? [draw.chance(40) ? '*' : draw.pick(columns).name] : [];
  fields.push(...unscoped.map((field) => `${relation.name}.${field}`));
}

/** Puts a relation before a field: `author` and `year(born)` give `author.year(born)` or `year(author.born)`. */
function prefixed(relation: string, field: string, draw: Draw): string {
  const match = /^(\w+)\((.*)\)$/s.exec(field);
  return match && draw.chance(50) ? `${match[1]}(${relation}.${match[2]})` : `${relation}.${field}`;
}

const NUMERIC = ['sum', 'sumDistinct', 'avg', 'avgDistinct'] as const;

function drawGroups(table: Table, model: Model, prefix: '' | '_', draw: Draw): Query {
  const groups = distinct(
    draw.repeat(0, 2, () => drawPath(table, model, { depth: 2, many: false, calls: 35 }, draw)),
    (path) => groupName(path),
  );
  const aggregate: Record<string, string[]> = {};
  const rows = draw.chance(40) ? draw.pick(['count', 'countAll'] as const) : null;
  if (rows) aggregate[rows] = ['*'];
  for (const path of draw.repeat(groups.length > 0 ? 0 : 1, 4, () =>
    drawPath(table, model, { depth: 2, many: false, calls: 0 }, draw),
  )) {
    const functions = [
      'count',
      'countDistinct',
      ...(isNumber(path.kind) ? NUMERIC : []),
      ...(isOrdered(path) ? ['min', 'max'] : []),
    ];
    const name = draw.pick(functions);
    aggregate[name] = [...new Set([...(aggregate[name] ?? []), path.text])];
  }
  const sorts = [
    ...groups.flatMap((path) => [path.text, groupName(path)]),
    ...Object.entries(aggregate).flatMap(([name, fields]) => {
      const isAlone = fields.length === 1;
      return fields.flatMap((field) => (field === '*' ? (isAlone ? [name] : []) : [`${name}.${field}`]));
    }),
  ];
  const list = drawList(table, model, prefix, draw);
  const named = (name: string): string => `${prefix}${name}`;
  return compact({
    ...list,
    [named('sort')]:
      sorts.length > 0 && draw.chance(50)
        ? draw.some(sorts, 1, 2).map((name) => (draw.chance(50) ? `-${name}` : name))
        : undefined,
    [named('groupBy')]: groups.length > 0 ? groups.map(({ text }) => text) : undefined,
    [named('aggregate')]: Object.keys(aggregate).length > 0 ? aggregate : undefined,
    [named('having')]: draw.chance(25) ? drawHaving(table, model, draw) : undefined,
  });
}

/** Groups along a path are shown under the path. */
function groupName(path: Path): string {
  return path.column ? path.text : path.output;
}

function isOrdered({ kind }: Path): boolean {
  return !isBoxed(kind) && kind !== 'boolean' && kind !== 'uuid';
}

function drawHaving(table: Table, model: Model, draw: Draw): Filter {
  const operators = ['_eq', '_neq', '_lt', '_lte', '_gt', '_gte', '_in', '_nin', '_between', '_nbetween'] as const;
  const test = (): Filter => {
    const name = draw.pick(operators);
    const number = (): number => draw.pick([0, 1, 2, 3, 5, -1, 1.5, 100]);
    return { [name]: name.endsWith('in') || name.endsWith('between') ? [number(), number()] : number() };
  };
  const one = (): [string, Filter] => {
    if (draw.chance(50)) return [draw.pick(['count', 'countAll']), test()];
    const path = drawPath(table, model, { depth: 1, many: false, calls: 0 }, draw);
    const extremes = path.kind === 'decimal' || path.kind === 'float' ? ['min', 'max'] : [];
    const name = draw.pick(['count', 'countDistinct', ...(isNumber(path.kind) ? NUMERIC : []), ...extremes]);
    const nested = path.text.split('.').reduceRight<Filter>((below, step) => ({ [step]: below }), test());
    return [name, nested];
  };
  const all = Object.fromEntries(draw.repeat(1, 2, one));
  return draw.chance(20) ? { [draw.pick(['_and', '_or'])]: [all, Object.fromEntries([one()])] } : all;
}

function distinct<Item>(list: readonly Item[], keyOf: (item: Item) => string): Item[] {
  return [...new Map(list.map((item) => [keyOf(item), item])).values()];
}

function filled(object: Readonly<Record<string, unknown>>): Query | undefined {
  return Object.keys(object).length > 0 ? object : undefined;
}

function compact(object: Readonly<Record<string, unknown>>): Query {
  return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}
