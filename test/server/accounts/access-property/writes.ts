/**
 * Random writes of people with policies, and what has to come of them, found by asking every rule about every row. Values are
 * such as rows have, so that what is refused is refused by a rule and not by the database.
 */
import type { Draw } from '../../items/property/draw.js';
import { drawValue, isBoxed, isJson, type KindName, type Value, writeValue } from '../../items/property/kinds.js';
import {
  type Column,
  joinKey,
  keyTextOf,
  type Model,
  type Relation,
  type Row,
  type Table,
  tableNamed,
} from '../../items/property/model.js';
import { matches } from '../../items/property/oracle-filter.js';
import { readExpression } from '../../items/property/oracle-values.js';
import { type Drawn, grants, holds, presetValue, type Rule, refers, resolve, rulesOf } from './policies.js';

/** By column; what a reference of several columns leads to, by its alias. */
type Data = Readonly<Record<string, Value | readonly Value[]>>;

export type Write =
  | { readonly kind: 'create'; readonly table: Table; readonly items: readonly Data[] }
  | { readonly kind: 'update'; readonly table: Table; readonly keys: readonly string[]; readonly data: Data }
  | { readonly kind: 'delete'; readonly table: Table; readonly keys: readonly string[] }
  /** New rows in the list of one that exists. */
  | {
      readonly kind: 'nested';
      readonly table: Table;
      readonly key: string;
      readonly list: Relation & { kind: 'many' };
      readonly target: Table;
      readonly items: readonly Data[];
    };

/** Lists of a many-to-any relation, and of rows without a key. */
const UNWRITTEN: ReadonlySet<string> = new Set(['parts', 'log']);

/** `number` makes new keys new. */
export function drawWrite(model: Model, number: number, draw: Draw): Write {
  const table = draw.pick(
    model.tables.filter(({ key, relations }) => key.length > 0 && relations.every(({ kind }) => kind !== 'any')),
  );
  const form = draw.integer(1, 100);
  const key = (): string => keyTextOf(table, draw.pick(table.rows));
  // What a sorted list adds of itself is no matter of permissions.
  const lists = table.relations.filter(
    (each) => each.kind === 'many' && !UNWRITTEN.has(each.target) && each.sortField === null,
  );
  if (form <= 35 || table.rows.length === 0) {
    const items = draw.repeat(1, 2, (position) => drawItem(table, model, number * 10 + position, [], draw));
    return isTaken(table, items) ? drawWrite(model, number, draw) : { kind: 'create', table, items };
  }
  if (form <= 60 && lists.length > 0) {
    const list = draw.pick(lists) as Relation & { kind: 'many' };
    const target = tableNamed(model, list.target);
    const items = draw.repeat(1, 2, (position) =>
      drawItem(
        target,
        model,
        number * 10 + position,
        list.many.columns.map(({ column }) => column),
        draw,
      ),
    );
    const write: Write = { kind: 'nested', table, key: key(), list, target, items };
    const parent = parentOf(write);
    return isTaken(
      target,
      items.map((item) => ({ ...item, ...parent })),
    )
      ? drawWrite(model, number, draw)
      : write;
  }
  const keys = [...new Set(draw.repeat(1, 3, key))];
  if (form <= 70) return { kind: 'delete', table, keys };
  const names = draw.some(writable(table), 1, 3);
  return { kind: 'update', table, keys, data: drawData(names, table, model, draw) };
}

/** A key that consists of references may be there already, or none of its rows. */
function isTaken(table: Table, items: readonly Data[]): boolean {
  const keys = items.map((item) => keyTextOf(table, columnsOf(table, item)));
  const known = new Set([...table.rows.map((row) => keyTextOf(table, row)), '']);
  return new Set(keys).size < keys.length || keys.some((key) => known.has(key));
}

/** What the items of a list refer to their parent by. */
function parentOf({ table, key, list: { many } }: Write & { kind: 'nested' }): Data {
  const [parent] = rowsWith(table, [key]);
  const held = many.columns.map(({ referenced }) => parent?.[referenced] ?? null);
  return { [many.field]: held.length > 1 ? held : (held[0] ?? null) };
}

/** Columns, and aliases of several. */
function writable(table: Table): string[] {
  const columns = table.columns.filter(
    ({ name, kind }) => !isBoxed(kind) && !isKey(table, name) && (!refers(table, name) || soleReference(table, name)),
  );
  return [...columns.map(({ name }) => name), ...referencesOf(table).map(({ name }) => name)];
}

function isKey({ key }: Table, name: string): boolean {
  return key.some((column) => column.name === name);
}

function soleReference({ relations }: Table, name: string): boolean {
  return relations.some((each) => each.kind === 'one' && each.name === name);
}

/** Of several columns each, none of which is a part of the key. */
function referencesOf(table: Table): (Relation & { kind: 'one' })[] {
  return table.relations.filter(
    (each): each is Relation & { kind: 'one' } =>
      each.kind === 'one' &&
      each.many.columns.length > 1 &&
      each.many.columns.every(({ column }) => !isKey(table, column)),
  );
}

function drawData(names: readonly string[], table: Table, model: Model, draw: Draw): Data {
  return Object.fromEntries(names.map((name) => [name, drawCell(name, table, model, draw)]));
}

function drawItem(table: Table, model: Model, number: number, without: readonly string[], draw: Draw): Data {
  const needed = table.columns.filter(({ name, nullable }) => !nullable && !isKey(table, name)).map(({ name }) => name);
  const leftOut = (name: string): boolean => {
    const relation = referencesOf(table).find((each) => each.name === name);
    return without.includes(relation?.many.columns[0]?.column ?? name);
  };
  const names = [...needed, ...draw.some(writable(table), 0, 3)].filter((name) => !leftOut(name));
  const key = Object.entries(newKey(table, model, number, draw)).filter(([name]) => !without.includes(name));
  return { ...Object.fromEntries(key), ...drawData([...new Set(names)], table, model, draw) };
}

/** Parts that are references lead to rows that exist. */
function newKey(table: Table, model: Model, number: number, draw: Draw): Row {
  const key: Record<string, Value> = {};
  for (const { name, kind } of table.key) key[name] = newValue(kind, number, draw);
  for (const relation of table.relations) {
    if (relation.kind !== 'one' || !isKey(table, relation.many.columns[0]?.column ?? '')) continue;
    const { rows } = tableNamed(model, relation.target);
    const row = rows.length === 0 ? null : draw.pick(rows);
    for (const { column, referenced } of relation.many.columns) key[column] = row?.[referenced] ?? null;
  }
  return key;
}

function newValue(kind: KindName, number: number, draw: Draw): Value {
  switch (kind) {
    case 'integer':
      return 1_000_000 + number;
    case 'bigInteger':
    case 'decimal':
      return BigInt(1_000_000 + number);
    case 'uuid':
      return `aaaaaaaa-0000-4000-8000-${String(number).padStart(12, '0')}`;
    case 'date':
      return new Date(Date.UTC(2100, 0, 1 + number)).toISOString().slice(0, 10);
    case 'dateTime':
    case 'timestamp':
      return new Date(Date.UTC(2100, 0, 1 + number)).toISOString().slice(0, -1);
    case 'text':
    case 'string':
      return `new ~ ${number}`;
    default:
      return drawValue(kind, draw);
  }
}

function drawCell(name: string, table: Table, model: Model, draw: Draw): Value | readonly Value[] {
  const relation = table.relations.find((each) => each.kind === 'one' && each.name === name);
  if (relation?.kind === 'one') {
    const { rows } = tableNamed(model, relation.target);
    if (rows.length === 0 || draw.chance(20)) return null;
    const row = draw.pick(rows);
    const held = relation.many.columns.map(({ referenced }) => row[referenced] ?? null);
    return held.length > 1 ? held : (held[0] ?? null);
  }
  const column = table.columns.find((each) => each.name === name) as Column;
  if (isJson(column.kind)) return { json: [1] };
  return column.nullable && draw.chance(15) ? null : drawValue(column.kind, draw);
}

export interface Judgement {
  /** Answers that are right. */
  readonly statuses: readonly number[];
  /** Rows as they are after it; empty where nothing may change. */
  readonly rows: readonly { readonly table: Table; readonly row: Row }[];
  readonly gone: readonly { readonly table: Table; readonly key: string }[];
}

const FORBIDDEN: Judgement = { statuses: [403], rows: [], gone: [] };
/** The values alone decide it, whatever else is wrong. */
const INVALID: Judgement = { statuses: [400, 403], rows: [], gone: [] };
const DONE = [200, 204];

export function judge(model: Model, drawn: Drawn, write: Write): Judgement {
  const { table } = write;
  switch (write.kind) {
    case 'create':
      return judgeItems(model, drawn, table, write.items, {});
    case 'nested': {
      const rows = rowsWith(table, [write.key]);
      const changed = judgeUpdate(model, drawn, table, rows, { [write.list.name]: null }, {});
      const made = judgeItems(model, drawn, write.target, write.items, parentOf(write));
      if ([changed, made].includes(INVALID)) return INVALID;
      if ([changed, made].includes(FORBIDDEN)) return FORBIDDEN;
      return { statuses: DONE, rows: [...made.rows, ...changed.rows], gone: [] };
    }
    case 'update':
      return judgeUpdate(model, drawn, table, rowsWith(table, write.keys), write.data, write.data);
    case 'delete': {
      const rules = rulesOf(drawn, 'delete', table.name);
      const rows = rowsWith(table, write.keys);
      const open = rows.every((row) => rules.some((rule) => holds(model, rule, drawn.person, table, row)));
      if (!open || rules.length === 0) return FORBIDDEN;
      // Other rows may need them.
      return { statuses: [204, 400], rows: [], gone: write.keys.map((key) => ({ table, key })) };
    }
  }
}

function rowsWith(table: Table, keys: readonly string[]): Row[] {
  return table.rows.filter((row) => keys.includes(keyTextOf(table, row)));
}

/** What an alias of several columns stands for. */
function columnsOf(table: Table, data: Data): Row {
  const entries = Object.entries(data).flatMap(([name, value]): [string, Value][] => {
    const relation = table.relations.find((each) => each.kind === 'one' && each.name === name);
    if (!relation || relation.many.columns.length === 1) return [[name, value as Value]];
    return relation.many.columns.map(({ column }, at) => [column, (value as readonly Value[] | null)?.[at] ?? null]);
  });
  return Object.fromEntries(entries);
}

/** An alias is written by who may write its columns too. */
function writtenBy(table: Table, data: Data): string[] {
  return [...Object.keys(data), ...Object.keys(columnsOf(table, data))];
}

/** `given` are the fields that the caller names, `data` those that are columns. */
function judgeUpdate(
  model: Model,
  drawn: Drawn,
  table: Table,
  rows: readonly Row[],
  given: Data,
  data: Data,
): Judgement {
  const rules = rulesOf(drawn, 'update', table.name);
  const names = writtenBy(table, given);
  if (rules.length === 0 || !names.every((name) => rules.some((rule) => grants(rule, name)))) return FORBIDDEN;
  const whole = { ...presetsOf(rules, drawn, table), ...columnsOf(table, data) };
  if (!isValid(model, rules, drawn, table, whole)) return INVALID;
  const open = rows.every((row) => {
    const holding = rules.filter((rule) => holds(model, rule, drawn.person, table, row));
    return holding.length > 0 && names.every((name) => holding.some((rule) => grants(rule, name)));
  });
  if (!open) return FORBIDDEN;
  return { statuses: DONE, rows: rows.map((row) => ({ table, row: { ...row, ...whole } })), gone: [] };
}

function judgeItems(model: Model, drawn: Drawn, table: Table, items: readonly Data[], parent: Data): Judgement {
  const rules = rulesOf(drawn, 'create', table.name);
  const named = items.map((item) => ({ ...item, ...parent }));
  const open = named.every((item) => writtenBy(table, item).every((name) => rules.some((rule) => grants(rule, name))));
  if (!open || rules.length === 0) return FORBIDDEN;
  const rows = named.map((item) => ({ ...presetsOf(rules, drawn, table), ...columnsOf(table, item) }));
  if (!rows.every((row) => isValid(model, rules, drawn, table, row))) return INVALID;
  const blank = Object.fromEntries(table.columns.map(({ name }) => [name, null]));
  return { statuses: DONE, rows: rows.map((row) => ({ table, row: { ...blank, ...row } })), gone: [] };
}

/** What comes later wins. */
function presetsOf(rules: readonly Rule[], drawn: Drawn, table: Table): Row {
  const presets = Object.assign({}, ...rules.map((rule) => resolve(rule.presets ?? {}, drawn.person))) as Record<
    string,
    unknown
  >;
  return Object.fromEntries(
    Object.entries(presets).map(([name, value]) => {
      const kind = table.columns.find((column) => column.name === name)?.kind ?? 'text';
      return [name, presetValue(kind, value) ?? (value as Value)];
    }),
  );
}

/** A field that is not written is no matter of a validation. */
function isValid(model: Model, rules: readonly Rule[], drawn: Drawn, table: Table, row: Row): boolean {
  return rules.every(({ validation }) =>
    Object.entries(resolve(validation ?? {}, drawn.person)).every(([key, filter]) => {
      const [name = ''] = readExpression(key).path;
      return !Object.hasOwn(row, name) || matches({ model, seen: new Set() }, { [key]: filter }, table, row);
    }),
  );
}

/** As the client sends it. */
export function encodeWrite(model: Model, write: Write): { method: string; path: string; body: unknown } {
  const { table } = write;
  const path = `/items/${encodeURIComponent(table.name)}`;
  const text = (of: Table, data: Data): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(data).map(([name, value]) => {
        const kind = of.columns.find((column) => column.name === name)?.kind ?? 'text';
        if (isTuple(value)) return [name, aliasText(model, of, name, value)];
        return [name, value !== null && isBoxed(kind) ? (value as { json: unknown }).json : writeValue(kind, value)];
      }),
    );
  switch (write.kind) {
    case 'create':
      return { method: 'POST', path, body: write.items.map((item) => text(table, item)) };
    case 'update':
      return { method: 'PATCH', path, body: { keys: write.keys, data: text(table, write.data) } };
    case 'delete':
      return { method: 'DELETE', path, body: write.keys };
    case 'nested':
      return {
        method: 'PATCH',
        path: `${path}/${encodeURIComponent(write.key)}`,
        body: { [write.list.name]: { create: write.items.map((item) => text(write.target, item)) } },
      };
  }
}

function isTuple(value: Value | readonly Value[]): value is readonly Value[] {
  return Array.isArray(value);
}

/** The key of the row that the alias leads to. */
function aliasText(model: Model, table: Table, name: string, values: readonly Value[]): string | null {
  const relation = table.relations.find((each) => each.kind === 'one' && each.name === name);
  return relation?.kind === 'one' ? joinKey(tableNamed(model, relation.target), values) : null;
}
