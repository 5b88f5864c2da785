/** The oracle's aggregates: rows in groups, exact fractions for sums and averages, and the order of the groups. */
import { Decimal, type Expected } from './expected.js';
import { compareValues, type KindName, showValue, type Value } from './kinds.js';
import type { Row, Table } from './model.js';
import { compareNullable, evaluate, kindOf, Refused, readExpression, type World } from './oracle-values.js';
import type { Query } from './requests.js';

interface Group {
  readonly values: readonly Value[];
  readonly rows: readonly Row[];
}

export function expectedGroups(
  world: World,
  table: Table,
  rows: readonly Row[],
  query: Query,
  prefix: '' | '_',
): Expected[] {
  const names = (query[`${prefix}groupBy`] ?? []) as string[];
  const aggregates = Object.entries((query[`${prefix}aggregate`] ?? {}) as Record<string, string[]>);
  const having = query[`${prefix}having`];
  const sort = (query[`${prefix}sort`] ?? []) as string[];
  const sortable = [...names, ...names.map(groupName), ...aggregates.flatMap(aggregateNames)];
  if (names.length > 0 && !sort.every((text) => sortable.includes(text.replace(/^-/, '')))) {
    throw new Refused('groups are sorted by what they show');
  }
  const groups = divide(world, table, rows, names).filter(
    (group) => having === undefined || holds(world, table, group, having as Query),
  );
  if (names.length > 0) sortGroups(world, table, groups, names, sort);
  return groups.map((group) => {
    const shown: Record<string, Expected> = {};
    names.forEach((name, position) => {
      const expression = readExpression(name);
      if (expression.call) world.seen.add('groupBy function');
      if (expression.path.length > 1) world.seen.add('groupBy path');
      shown[groupName(name)] = showValue(kindOf(world, table, expression), group.values[position] ?? null);
    });
    for (const [name, fields] of aggregates) {
      world.seen.add(`aggregate ${name}`);
      const entries = fields.map((field): [string, Expected] => [
        field,
        showAggregate(world, table, group, name, field),
      ]);
      const [only] = entries;
      shown[name] = entries.length === 1 && only?.[0] === '*' ? only[1] : Object.fromEntries(entries);
    }
    return shown;
  });
}

function aggregateNames([name, fields]: [string, string[]]): string[] {
  return fields.map((field) => (field === '*' ? name : `${name}.${field}`));
}

function groupName(text: string): string {
  const { call, output } = readExpression(text);
  return call === null ? text : output;
}

/** Without groups all rows are one, even if there are none. */
function divide(world: World, table: Table, rows: readonly Row[], names: readonly string[]): Group[] {
  if (names.length === 0) return [{ values: [], rows }];
  const groups = new Map<string, { values: Value[]; rows: Row[] }>();
  for (const row of rows) {
    const values = names.map((name) => evaluate(world, table, row, readExpression(name), null));
    const key = JSON.stringify(values, (_, value) => (typeof value === 'bigint' ? `${value}n` : value));
    const group = groups.get(key) ?? { values, rows: [] };
    group.rows.push(row);
    groups.set(key, group);
  }
  return [...groups.values()];
}

function sortGroups(
  world: World,
  table: Table,
  groups: Group[],
  names: readonly string[],
  sort: readonly string[],
): void {
  const named = sort.map((text) => {
    const descending = text.startsWith('-');
    const name = descending ? text.slice(1) : text;
    const position = names.findIndex((each) => each === name || groupName(each) === groupName(name));
    world.seen.add(position >= 0 ? 'sort group' : 'sort aggregate');
    return { name, position, descending };
  });
  const rest = names.map((name, position) => ({ name, position, descending: false }));
  groups.sort((left, right) => {
    for (const { name, position, descending } of [...named, ...rest]) {
      const order =
        position >= 0
          ? compareNullable(left.values[position] ?? null, right.values[position] ?? null, descending)
          : compareAggregates(
              aggregateNamed(world, table, left, name),
              aggregateNamed(world, table, right, name),
              descending,
            );
      if (order !== 0) return order;
    }
    return 0;
  });
}

type Aggregated = Decimal | Exclude<Value, number>;

function aggregateNamed(world: World, table: Table, group: Group, name: string): Aggregated {
  const dot = name.indexOf('.');
  return dot < 0
    ? aggregateOf(world, table, group, name, '*')
    : aggregateOf(world, table, group, name.slice(0, dot), name.slice(dot + 1));
}

function compareAggregates(left: Aggregated, right: Aggregated, descending: boolean): number {
  if (left instanceof Decimal && right instanceof Decimal) return left.compare(right) * (descending ? -1 : 1);
  return compareNullable(left as Value, right as Value, descending);
}

function aggregateOf(world: World, table: Table, group: Group, name: string, field: string): Aggregated {
  if (field === '*' || name === 'countAll') return new Decimal(BigInt(group.rows.length), 1n, 'number');
  const expression = readExpression(field);
  const kind = kindOf(world, table, expression);
  if (expression.path.length > 1) world.seen.add('aggregate path');
  const values = group.rows
    .map((row) => evaluate(world, table, row, expression, null))
    .filter((value) => value !== null);
  const distinct = [...new Set(values)];
  switch (name) {
    case 'count':
      return new Decimal(BigInt(values.length), 1n, 'number');
    case 'countDistinct':
      return new Decimal(BigInt(distinct.length), 1n, 'number');
    case 'min':
    case 'max': {
      const [first] = values.sort((left, right) => compareValues(left, right) * (name === 'min' ? 1 : -1));
      if (first === undefined) return null;
      return typeof first === 'number' ? fraction(kind, first) : first;
    }
    case 'sum':
      return total(kind, values, false);
    case 'sumDistinct':
      return total(kind, distinct, false);
    case 'avg':
      return total(kind, values, true);
    case 'avgDistinct':
      return total(kind, distinct, true);
    default:
      throw new Refused(`there is no aggregate "${name}"`);
  }
}

/** Texts where doubles would round. */
function total(kind: KindName, values: readonly Value[], averaged: boolean): Decimal | null {
  if (values.length === 0) return null;
  const shown = kind === 'decimal' || kind === 'bigInteger' ? 'text' : 'number';
  const numerator = values.reduce<bigint>((sum, value) => sum + fraction(kind, value).numerator, 0n);
  return new Decimal(numerator, fraction(kind, 0).denominator * (averaged ? BigInt(values.length) : 1n), shown);
}

/** Stored floats are quarters. */
function fraction(kind: KindName, value: Value): Decimal {
  if (kind === 'float') return new Decimal(BigInt(Number(value) * 4), 4n, 'number');
  if (kind === 'decimal') return new Decimal(BigInt(value as bigint), 1000n, 'text');
  return new Decimal(BigInt(value as bigint | number), 1n, 'number');
}

function showAggregate(world: World, table: Table, group: Group, name: string, field: string): Expected {
  const value = aggregateOf(world, table, group, name, field);
  if (value instanceof Decimal) return value;
  return showValue(kindOf(world, table, readExpression(field)), value);
}

function holds(world: World, table: Table, group: Group, having: Query): boolean {
  return Object.entries(having).every(([name, given]) => {
    world.seen.add('having');
    if (name === '_and') return (given as Query[]).every((each) => holds(world, table, group, each));
    if (name === '_or') return (given as Query[]).some((each) => holds(world, table, group, each));
    return holdsBelow(world, table, group, name, [], given as Query);
  });
}

function holdsBelow(
  world: World,
  table: Table,
  group: Group,
  name: string,
  path: readonly string[],
  tests: Query,
): boolean {
  return Object.entries(tests).every(([key, given]) => {
    const isField = table.columns.some((each) => each.name === key) || !/^_n?(eq|in|between|[lg]te?)$/.test(key);
    if (isField) return holdsBelow(world, table, group, name, [...path, key], given as Query);
    const found = aggregateOf(world, table, group, name, path.length === 0 ? '*' : path.join('.'));
    const kind = path.length === 0 ? 'integer' : kindOf(world, table, readExpression(path.join('.')));
    const value = found === null || found instanceof Decimal ? found : fraction(kind, found);
    if (value === null) return false;
    const order = (Array.isArray(given) ? given : [given]).map((each) =>
      value.compare(new Decimal(BigInt(Number(each) * 2), 2n, 'number')),
    );
    return compareOrder(key, order);
  });
}

/** The order of a value against each operand. */
function compareOrder(operator: string, [first = 0, second = 0, ...rest]: readonly number[]): boolean {
  switch (operator) {
    case '_eq':
      return first === 0;
    case '_neq':
      return first !== 0;
    case '_lt':
      return first < 0;
    case '_lte':
      return first <= 0;
    case '_gt':
      return first > 0;
    case '_gte':
      return first >= 0;
    case '_in':
      return [first, second, ...rest].includes(0);
    case '_nin':
      return ![first, second, ...rest].includes(0);
    case '_between':
      return first >= 0 && second <= 0;
    case '_nbetween':
      return first < 0 || second > 0;
    default:
      throw new Refused(`"${operator}" is no operator of "having"`);
  }
}
