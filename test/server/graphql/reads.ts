/** Random reads, each written twice: as the body of a SEARCH and as a GraphQL document. */
import type { Draw } from '../items/property/draw.js';
import { type Kind, type Table, tableNamed } from './library.js';

export interface Twin {
  readonly collection: string;
  /** The body of a SEARCH, or of a read by key. */
  readonly rest: Record<string, unknown>;
  readonly key: string | null;
  readonly document: string;
  readonly variables: Record<string, unknown>;
  /** What REST shows, as GraphQL would. */
  readonly expect: (data: unknown) => unknown;
}

interface Level {
  readonly fields: string[];
  readonly alias: Record<string, string>;
  readonly deep: Record<string, unknown>;
  readonly text: string;
  readonly show: (row: Record<string, unknown>) => unknown;
}

interface Condition {
  readonly rest: Record<string, unknown>;
  readonly graphql: Record<string, unknown>;
}

export function drawRead(draw: Draw): Twin {
  const variables: Record<string, { type: string; value: unknown }> = {};
  const table = tableNamed(
    draw.pick([
      ...['articles', 'articles', 'articles', 'authors', 'comments', 'articles_blocks', 'tags'],
      ...['sales_rooms', 'sales_rooms', 'desks', 'sales_lamps', 'authors_rooms', 'sales_payments', 'visits'],
    ]),
  );
  const twin = draw.chance(15) ? drawGroups(table, draw) : drawRows(table, variables, draw);
  const names = Object.keys(variables);
  const header =
    names.length === 0 ? '' : `query (${names.map((name) => `$${name}: ${variables[name]?.type}`).join(', ')}) `;
  return {
    ...twin,
    document: `${header}{ ${twin.document} }`,
    variables: Object.fromEntries(names.map((name) => [name, variables[name]?.value])),
  };
}

type Variables = Record<string, { type: string; value: unknown }>;

function drawRows(table: Table, variables: Variables, draw: Draw): Twin {
  const level = drawLevel(table, 3, variables, draw);
  const { fields, alias, deep } = level;
  if (draw.chance(15) && table.keys.length > 0) {
    const key = draw.pick(table.keys);
    const spelled = table.key.length === 1 ? draw.pick([key, literal(key)]) : literal(key);
    return {
      collection: table.name,
      rest: { fields, alias, deep },
      key,
      document: `result: ${table.name}_by_id(id: ${spelled}) { ${level.text} }`,
      variables: {},
      expect: (data) => level.show(data as Record<string, unknown>),
    };
  }
  const list = drawList(table, variables, draw);
  return {
    collection: table.name,
    rest: { fields, alias, deep, ...list.rest },
    key: null,
    document: `result: ${table.name}${list.text} { ${level.text} }`,
    variables: {},
    expect: (data) => (data as Record<string, unknown>[]).map(level.show),
  };
}

/** What is selected of a row; relations to a depth, some of them twice under different names. */
function drawLevel(table: Table, depth: number, variables: Variables, draw: Draw): Level {
  const fields: string[] = [];
  const alias: Record<string, string> = {};
  const deep: Record<string, unknown> = {};
  const texts: string[] = [];
  const shown: [string, (row: Record<string, unknown>) => unknown][] = [];
  for (const name of draw.some(Object.keys(table.values), 1, 4)) {
    const output = draw.chance(20) ? `a_${name}` : name;
    if (output !== name) alias[output] = name;
    fields.push(output);
    texts.push(output === name ? name : `${output}: ${name}`);
    shown.push([output, (row) => showValue(row[output], name, table)]);
  }
  if (draw.chance(20)) {
    texts.push('__typename');
    shown.push(['__typename', () => table.name]);
  }
  addFunctions(table, fields, texts, shown, draw);
  if (depth > 0) {
    const relations = { ...table.one, ...table.many };
    for (const name of draw.some(Object.keys(relations), 0, 2)) {
      for (const output of draw.chance(15) ? [`x_${name}`, `y_${name}`] : [name]) {
        const target = tableNamed(relations[name] as string);
        const inner = drawLevel(target, depth - 1, variables, draw);
        const many = name in table.many;
        const list = many && draw.chance(50) ? drawList(target, variables, draw) : { rest: {}, text: '' };
        if (output !== name) alias[output] = name;
        fields.push(...inner.fields.map((field) => `${output}.${field}`));
        deep[output] = { ...inner.deep, ...prefixed({ ...list.rest, alias: inner.alias }) };
        texts.push(`${output === name ? '' : `${output}: `}${name}${list.text} { ${inner.text} }`);
        shown.push([output, (row) => showRelated(row[output], inner)]);
      }
    }
    for (const [name, targets] of Object.entries(table.any)) {
      if (draw.chance(60)) addAny(name, targets, fields, texts, shown, variables, draw);
    }
  }
  const show = (row: Record<string, unknown>): unknown =>
    Object.fromEntries(shown.map(([name, value]) => [name, value(row)]));
  return { fields, alias, deep, text: texts.join(' '), show };
}

function addFunctions(
  table: Table,
  fields: string[],
  texts: string[],
  shown: [string, (row: Record<string, unknown>) => unknown][],
  draw: Draw,
): void {
  const counted = Object.keys(table.many);
  if (counted.length > 0 && draw.chance(25)) {
    const name = draw.pick(counted);
    fields.push(`count(${name})`);
    texts.push(`${name}_func { count }`);
    shown.push([`${name}_func`, (row) => ({ count: row[`${name}_count`] })]);
  }
  if (table.values['published_at'] && draw.chance(25)) {
    fields.push('year(published_at)', 'weekday(published_at)');
    texts.push('published_at_func { y: year weekday }');
    shown.push(['published_at_func', (row) => ({ y: row['published_at_year'], weekday: row['published_at_weekday'] })]);
  }
}

function addAny(
  name: string,
  targets: readonly string[],
  fields: string[],
  texts: string[],
  shown: [string, (row: Record<string, unknown>) => unknown][],
  variables: Variables,
  draw: Draw,
): void {
  if (!fields.includes('collection')) {
    fields.push('collection');
    texts.push('collection');
    shown.push(['collection', (row) => row['collection']]);
  }
  const inner = new Map(targets.map((target) => [target, drawLevel(tableNamed(target), 0, variables, draw)]));
  for (const [target, level] of inner) {
    // Without aliases: REST has none for the scopes of an item.
    const plain = Object.keys(tableNamed(target).values);
    fields.push(...plain.map((field) => `${name}:${target}.${field}`));
    inner.set(target, { ...level, text: plain.join(' '), show: (row) => plainRow(row, tableNamed(target)) });
  }
  texts.push(`${name} { ${[...inner].map(([target, level]) => `... on ${target} { ${level.text} }`).join(' ')} }`);
  shown.push([
    name,
    (row) => {
      const value = row[name] as Record<string, unknown> | null;
      return value === null ? null : inner.get(String(row['collection']))?.show(value);
    },
  ]);
}

function plainRow(row: Record<string, unknown>, table: Table): unknown {
  return Object.fromEntries(Object.keys(table.values).map((name) => [name, showValue(row[name], name, table)]));
}

function showRelated(value: unknown, level: Level): unknown {
  if (value === null) return null;
  return Array.isArray(value) ? value.map(level.show) : level.show(value as Record<string, unknown>);
}

/** Keys and their parts are texts and decimals numbers in GraphQL. */
function showValue(value: unknown, name: string, table: Table): unknown {
  if (value === null) return null;
  if (table.key.includes(name)) return String(value);
  return table.values[name] === 'decimal' ? Number(value) : value;
}

function drawList(table: Table, variables: Variables, draw: Draw): { rest: Record<string, unknown>; text: string } {
  const rest: Record<string, unknown> = {};
  const texts: string[] = [];
  const add = (name: string, type: string, restValue: unknown, value: unknown = restValue): void => {
    rest[name] = restValue;
    if (draw.chance(40)) {
      const variable = `v${Object.keys(variables).length}`;
      variables[variable] = { type, value };
      texts.push(`${name}: $${variable}`);
    } else texts.push(`${name}: ${literal(value)}`);
  };
  if (draw.chance(60)) {
    const { rest: filter, graphql } = drawFilter(table, 2, draw);
    add('filter', `${table.name}_filter`, filter, graphql);
  }
  if (draw.chance(50)) {
    const keys = Object.keys(table.values).filter((name) => table.values[name] !== 'json');
    const paths = [...keys, ...Object.entries(table.one).map(([name, target]) => `${name}.${firstOf(target)}`)];
    add(
      'sort',
      '[String]',
      draw.some(paths, 1, 2).map((path) => (draw.chance(50) ? `-${path}` : path)),
    );
  }
  if (draw.chance(50)) add('limit', 'Int', draw.integer(-1, 5));
  if (draw.chance(25)) add(draw.pick(['offset', 'page']), 'Int', draw.integer(0, 3));
  if (draw.chance(10)) add('search', 'String', draw.pick(['hello', 'o', '1']));
  return { rest, text: texts.length === 0 ? '' : `(${texts.join(', ')})` };
}

function firstOf(name: string): string {
  return Object.keys(tableNamed(name).values)[0] ?? '';
}

function drawFilter(table: Table, depth: number, draw: Draw): Condition {
  if (depth > 0 && draw.chance(25)) {
    const key = draw.pick(['_and', '_or']);
    const parts = draw.repeat(1, 2, () => drawFilter(table, depth - 1, draw));
    return { rest: { [key]: parts.map(({ rest }) => rest) }, graphql: { [key]: parts.map(({ graphql }) => graphql) } };
  }
  const relations = { ...table.one, ...table.many };
  if (depth > 0 && Object.keys(relations).length > 0 && draw.chance(40)) {
    const name = draw.pick(Object.keys(relations));
    const inner = drawFilter(tableNamed(relations[name] as string), depth - 1, draw);
    if (!(name in table.many) || draw.chance(40))
      return { rest: { [name]: inner.rest }, graphql: { [name]: inner.graphql } };
    const quantifier = draw.pick(['_some', '_none']);
    return {
      rest: { [name]: { [quantifier]: inner.rest } },
      graphql: { [name]: { [quantifier]: inner.graphql } },
    };
  }
  const [any] = Object.entries(table.any);
  if (any && depth > 0 && draw.chance(50)) {
    const target = draw.pick(any[1]);
    const inner = drawFilter(tableNamed(target), 0, draw);
    return { rest: { [`${any[0]}:${target}`]: inner.rest }, graphql: { [`${any[0]}__${target}`]: inner.graphql } };
  }
  if (table.values['published_at'] && draw.chance(20)) {
    const condition = { _gte: draw.integer(2021, 2025) };
    return { rest: { 'year(published_at)': condition }, graphql: { published_at_func: { year: condition } } };
  }
  const name = draw.pick(Object.keys(table.values));
  const condition = { [name]: drawOperator(table.values[name] as Kind, draw) };
  return { rest: condition, graphql: condition };
}

function drawOperator(kind: Kind, draw: Draw): Record<string, unknown> {
  switch (kind) {
    case 'id':
    case 'integer':
    case 'decimal':
    case 'float': {
      const operator = draw.pick(['_eq', '_neq', '_gt', '_lte', '_in', '_between', '_null']);
      if (operator === '_null') return { _null: draw.chance(50) };
      const number = (): number => draw.integer(-3, 12);
      return { [operator]: operator === '_in' || operator === '_between' ? [number(), number()] : number() };
    }
    case 'date':
      return { [draw.pick(['_lt', '_gte'])]: `${draw.integer(1900, 2025)}-03-01` };
    case 'json':
      return draw.pick([
        { _nnull: true },
        { _json: { k: { _gt: draw.integer(0, 6) } } },
        { _json_contains: { k: draw.integer(0, 6) } },
        { _has_key: draw.pick(['k', 'lang']) },
      ]);
    case 'text':
      return draw.pick([
        { _contains: draw.pick(['e', 'body', 'a']) },
        { _istarts_with: draw.pick(['h', 'a']) },
        { _in: ['published', 'news', 'Nice!'] },
        { _nempty: true },
        { _neq: 'draft' },
        { _gt: draw.pick(['b', 'Nice!']) },
        { _between: ['a', 'p'] },
        { _fts: { query: draw.pick(['nice', 'body or news', '-draft']), config: 'english' } },
      ]);
  }
}

function drawGroups(table: Table, draw: Draw): Twin {
  const numbers = Object.keys(table.values).filter((name) =>
    ['integer', 'decimal', 'float'].includes(table.values[name] ?? ''),
  );
  const groups = draw.some(
    Object.keys(table.values).filter((name) => table.values[name] === 'text'),
    0,
    1,
  );
  const aggregate: Record<string, string[]> = { count: [firstOf(table.name)] };
  for (const name of draw.some(['sum', 'avg', 'min', 'max', 'countDistinct'], 0, 3)) {
    const fields = draw.some(numbers, 1, 2);
    if (fields.length > 0) aggregate[name] = fields;
  }
  const list = groups.length > 0 && draw.chance(50) ? { limit: draw.integer(1, 3) } : {};
  const inner = Object.entries(aggregate).map(([name, fields]) => `${name} { ${fields.join(' ')} }`);
  const args = [
    ...(groups.length > 0 ? [`groupBy: ${literal(groups)}`] : []),
    ...Object.entries(list).map(([name, value]) => `${name}: ${value}`),
  ];
  return {
    collection: table.name,
    rest: { aggregate, ...(groups.length > 0 ? { groupBy: groups } : {}), ...list },
    key: null,
    document: `result: ${table.name}_aggregated${args.length > 0 ? `(${args.join(', ')})` : ''} { ${groups.length > 0 ? 'group ' : ''}${inner.join(' ')} }`,
    variables: {},
    expect: (data) => (data as Record<string, unknown>[]).map((row) => showGroup(row, groups, aggregate)),
  };
}

function showGroup(
  row: Record<string, unknown>,
  groups: readonly string[],
  aggregate: Record<string, string[]>,
): unknown {
  const values = Object.entries(aggregate).map(([name, fields]) => {
    const given = row[name] as Record<string, unknown>;
    return [
      name,
      Object.fromEntries(fields.map((field) => [field, given[field] === null ? null : Number(given[field])])),
    ];
  });
  const group = groups.length > 0 ? { group: Object.fromEntries(groups.map((name) => [name, row[name]])) } : {};
  return { ...group, ...Object.fromEntries(values) };
}

function prefixed(values: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [`_${name}`, value]));
}

/** As GraphQL writes values: like JSON, but keys are bare. */
export function literal(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(literal).join(', ')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([key, inner]) => `${key}: ${literal(inner)}`)
    .join(', ')}}`;
}
