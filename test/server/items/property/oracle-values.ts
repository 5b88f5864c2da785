/**
 * The oracle's values: what a path and a function give for a row, by walking the rows in memory. A row that a relation does
 * not find is null, and so are its values.
 */
import { compareValues, isBoxed, isJson, type Json, type KindName, type Value } from './kinds.js';
import {
  type Column,
  heldBy,
  keyTextOf,
  type Model,
  Refused,
  type Relation,
  type Row,
  rowWith,
  type Table,
  tableNamed,
  Unknown,
  wholeOf,
} from './model.js';

export { Refused };

/** The rows, and what a request made of them: features are noted where they are evaluated. */
export interface World {
  readonly model: Model;
  readonly seen: Set<string>;
}

export interface Expression {
  readonly path: readonly string[];
  readonly call: string | null;
  /** Steps into a JSON value. */
  readonly inside: readonly string[];
  readonly output: string;
}

/** `a.b`, `a.year(b)`, `year(a.b)`, `json(a.b, x.y[0])`. */
export function readExpression(text: string): Expression {
  const open = text.indexOf('(');
  if (open < 0) {
    const path = text.split('.');
    return { path, call: null, inside: [], output: path.at(-1) ?? '' };
  }
  const before = text.slice(0, open).split('.');
  const call = before.pop() ?? '';
  const [argument = '', ...rest] = text.slice(open + 1, -1).split(',');
  const path = [...before, ...argument.split('.')];
  const inside = rest
    .join(',')
    .trim()
    .split(/[.[\]]+/)
    .filter((step) => step !== '');
  const output = [path.at(-1), ...inside, call].join('_');
  return { path, call, inside, output: call === 'json' ? output.replace(/[ ,]+/g, '_') : output };
}

/** A relation by the name that leads to it, with the scope of a many-to-any relation. */
export function relationNamed(table: Table, name: string): { relation: Relation; scope: string | null } | null {
  const relation = table.relations.find((each) => each.name === name);
  if (relation) return { relation, scope: null };
  const colon = name.indexOf(':');
  const any = table.relations.find((each) => each.kind === 'any' && colon > 0 && each.name === name.slice(0, colon));
  return any ? { relation: any, scope: name.slice(colon + 1) } : null;
}

export function columnNamed(table: Table, name: string): Column {
  const column = table.columns.find((each) => each.name === name);
  if (!column) throw new Unknown(`"${table.name}" has no column "${name}"`);
  return column;
}

/** Where one step leads to: a table, and the row in it if there is one. */
export function follow(world: World, table: Table, row: Row | null, name: string): { table: Table; row: Row | null } {
  const found = relationNamed(table, name);
  if (found?.relation.kind === 'one') {
    world.seen.add('path many-to-one');
    const target = tableNamed(world.model, found.relation.target);
    if (found.relation.many.columns.length > 1) world.seen.add('path of several columns');
    return { table: target, row: rowWith(target, found.relation, heldBy(table, row, found.relation)) };
  }
  if (found?.relation.kind !== 'any' || found.scope === null) throw new Unknown(`"${name}" leads to no single row`);
  world.seen.add('path many-to-any');
  const target = tableNamed(world.model, found.scope);
  return { table: target, row: row && anyTarget(table, row, found.relation, target) };
}

export function anyTarget(table: Table, row: Row, relation: Relation & { kind: 'any' }, target: Table): Row | null {
  if (wholeOf(table, row)[relation.collectionField] !== target.name) return null;
  return target.rows.find((each) => keyTextOf(target, each) === row[relation.name]) ?? null;
}

export function childrenOf(world: World, table: Table, row: Row | null, relation: Relation & { kind: 'many' }): Row[] {
  if (!row) return [];
  const target = tableNamed(world.model, relation.target);
  const parent = wholeOf(table, row);
  return target.rows.filter((child) => {
    const whole = wholeOf(target, child);
    return relation.many.columns.every(({ column, referenced }) => whole[column] === parent[referenced]);
  });
}

/** Whether what the list holds may be known. */
export function isListed(table: Table, row: Row | null, relation: string): boolean {
  return table.view?.lists(row, relation) ?? true;
}

/** The kind of what an expression gives. */
export function kindOf(world: World, table: Table, { path, call }: Expression): KindName {
  const end = endOf(world.model, table, path);
  if (call === 'json') return 'text';
  return call ? 'integer' : columnNamed(end, path.at(-1) ?? '').kind;
}

export function endOf(model: Model, table: Table, path: readonly string[]): Table {
  return path.slice(0, -1).reduce((at, name) => {
    const found = relationNamed(at, name);
    if (!found) throw new Unknown(`"${name}" is no relation of "${at.name}"`);
    const target = found.relation.kind === 'any' ? found.scope : found.relation.target;
    if (target === null) throw new Refused(`"${name}" needs a scope`);
    return tableNamed(model, target);
  }, table);
}

/** JSON functions give the text of what they find. Of several rows, the value that comes first in the direction counts. */
export function evaluate(
  world: World,
  table: Table,
  row: Row | null,
  expression: Expression,
  descending: boolean | null,
): Value {
  const [name = '', ...rest] = expression.path;
  if (rest.length === 0) return endValue(world, table, row, name, expression);
  const inner = { ...expression, path: rest };
  const found = relationNamed(table, name);
  if (found?.relation.kind !== 'many') {
    const next = follow(world, table, row, name);
    return evaluate(world, next.table, next.row, inner, descending);
  }
  if (descending === null) throw new Refused(`"${name}" leads to several rows`);
  world.seen.add('path to-many');
  const target = tableNamed(world.model, found.relation.target);
  if (!isListed(table, row, name)) return null;
  const values = childrenOf(world, table, row, found.relation).map((child) =>
    evaluate(world, target, child, inner, descending),
  );
  return values.sort((left, right) => compareNullable(left, right, descending))[0] ?? null;
}

function endValue(world: World, table: Table, row: Row | null, name: string, { call, inside }: Expression): Value {
  if (call !== null) world.seen.add(`${call}()`);
  if (call === 'count') {
    const relation = table.relations.find((each) => each.name === name);
    if (relation?.kind === 'many') {
      return isListed(table, row, name) ? childrenOf(world, table, row, relation).length : null;
    }
  }
  const column = columnNamed(table, name);
  const value = row?.[name] ?? null;
  if (call === null) return value;
  if (isJson(column.kind)) {
    const found = value === null ? undefined : (value as Json).json;
    if (call === 'count') return Array.isArray(found) ? found.length : null;
    if (call === 'json') return jsonText(stepInto(found, inside), column.kind === 'jsonb');
  }
  if (call === 'json' || call === 'count' || isBoxed(column.kind))
    throw new Refused(`${call}() does not fit "${name}"`);
  return value === null ? null : datePart(call, String(value), column.kind);
}

export function stepInto(value: unknown, steps: readonly string[]): unknown {
  return steps.reduce<unknown>((found, step) => {
    if (Array.isArray(found)) return /^\d+$/.test(step) ? found[Number(step)] : undefined;
    if (found === null || typeof found !== 'object') return undefined;
    return Object.hasOwn(found, step) ? (found as Record<string, unknown>)[step] : undefined;
  }, value);
}

/** Scalars without quotes; objects as their type writes them. */
export function jsonText(value: unknown, binary: boolean): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value === 'string') return value;
  return binary ? binaryText(value) : JSON.stringify(value);
}

function binaryText(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(binaryText).join(', ')}]`;
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  const length = (key: string): number => Buffer.byteLength(key);
  const entries = Object.entries(value).sort(
    ([left], [right]) => length(left) - length(right) || compareValues(left, right),
  );
  return `{${entries.map(([key, each]) => `${JSON.stringify(key)}: ${binaryText(each)}`).join(', ')}}`;
}

function datePart(name: string, text: string, kind: KindName): number {
  const [date = '', time = ''] = kind === 'date' ? [text, ''] : kind === 'time' ? ['', text] : text.split('T');
  const part = (value: string, position: number, separator: string): number => {
    if (value === '') throw new Refused(`${name}() does not fit a ${kind}`);
    return Math.floor(Number(value.split(separator)[position]));
  };
  switch (name) {
    case 'year':
      return part(date, 0, '-');
    case 'month':
      return part(date, 1, '-');
    case 'day':
      return part(date, 2, '-');
    case 'hour':
      return part(time, 0, ':');
    case 'minute':
      return part(time, 1, ':');
    case 'second':
      return part(time, 2, ':');
    case 'weekday':
      return new Date(`${date}T00:00:00Z`).getUTCDay();
    case 'week':
      return isoWeek(new Date(`${date}T00:00:00Z`));
    default:
      throw new Refused(`there is no function "${name}"`);
  }
}

/** The week that holds the Thursday of the date's week counts from the first Thursday of the year. */
function isoWeek(date: Date): number {
  const thursday = new Date(date);
  thursday.setUTCDate(date.getUTCDate() + 4 - (date.getUTCDay() || 7));
  return Math.floor((thursday.getTime() - Date.UTC(thursday.getUTCFullYear(), 0, 1)) / 604_800_000) + 1;
}

/** Ascending orders end with nulls, descending ones begin with them. */
export function compareNullable(left: Value, right: Value, descending: boolean): number {
  if (left === null || right === null) return (left === right ? 0 : left === null ? 1 : -1) * (descending ? -1 : 1);
  return compareValues(left, right) * (descending ? -1 : 1);
}
