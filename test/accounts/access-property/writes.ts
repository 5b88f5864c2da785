/**
 * Random writes of people with policies, and what has to come of them, found by asking every rule about every row. Values are
 * such as rows have, so that what is refused is refused by a rule and not by the database.
 */
import type { Draw } from '../../engine/property/draw.js';
import { drawValue, isBoxed, isJson, type Value, writeValue } from '../../engine/property/kinds.js';
import type { Column, Model, Relation, Row, Table } from '../../engine/property/model.js';
import { tableNamed } from '../../engine/property/model.js';
import { matches } from '../../engine/property/oracle-filter.js';
import { readExpression } from '../../engine/property/oracle-values.js';
import { type Drawn, grants, holds, type Rule, resolve, rulesOf } from './policies.js';

type Data = Readonly<Record<string, Value>>;

export type Write =
  | { readonly kind: 'create'; readonly table: Table; readonly items: readonly Data[] }
  | { readonly kind: 'update'; readonly table: Table; readonly keys: readonly Value[]; readonly data: Data }
  | { readonly kind: 'delete'; readonly table: Table; readonly keys: readonly Value[] }
  /** New rows in the list of one that exists. */
  | {
      readonly kind: 'nested';
      readonly table: Table;
      readonly key: Value;
      readonly list: Relation & { kind: 'many' };
      readonly target: Table;
      readonly items: readonly Data[];
    };

/** `number` makes new keys new. */
export function drawWrite(model: Model, number: number, draw: Draw): Write {
  const table = draw.pick(model.tables.filter(({ relations }) => relations.every(({ kind }) => kind !== 'any')));
  const form = draw.integer(1, 100);
  const key = (): Value => draw.pick(table.rows)[table.key.name] ?? null;
  // What a sorted list adds of itself is no matter of permissions.
  const lists = table.relations.filter(
    (each) => each.kind === 'many' && each.target !== 'parts' && each.sortField === null,
  );
  if (form <= 35 || table.rows.length === 0) {
    const items = draw.repeat(1, 2, (position) => drawItem(table, model, number * 10 + position, [], draw));
    return { kind: 'create', table, items };
  }
  if (form <= 60 && lists.length > 0) {
    const list = draw.pick(lists) as Relation & { kind: 'many' };
    const target = tableNamed(model, list.target);
    const items = draw.repeat(1, 2, (position) =>
      drawItem(target, model, number * 10 + position, [list.many.field], draw),
    );
    return { kind: 'nested', table, key: key(), list, target, items };
  }
  const keys = [...new Set(draw.repeat(1, 3, key))];
  if (form <= 70) return { kind: 'delete', table, keys };
  const columns = draw.some(writable(table), 1, 3);
  return {
    kind: 'update',
    table,
    keys,
    data: Object.fromEntries(columns.map((column) => [column.name, drawCell(column, table, model, draw)])),
  };
}

function writable(table: Table): Column[] {
  return table.columns.slice(1).filter(({ kind }) => !isBoxed(kind));
}

function drawItem(table: Table, model: Model, number: number, without: readonly string[], draw: Draw): Data {
  const needed = table.columns.slice(1).filter(({ nullable }) => !nullable);
  const columns = [...needed, ...draw.some(writable(table), 0, 3)].filter(({ name }) => !without.includes(name));
  const cells = columns.map((column) => [column.name, drawCell(column, table, model, draw)] as const);
  return { [table.key.name]: newKey(table, number), ...Object.fromEntries(cells) };
}

function newKey({ key }: Table, number: number): Value {
  if (key.kind === 'integer') return 1_000_000 + number;
  if (key.kind === 'bigInteger') return BigInt(1_000_000 + number);
  return key.kind === 'uuid' ? `aaaaaaaa-0000-4000-8000-${String(number).padStart(12, '0')}` : `new ${number}`;
}

function drawCell(column: Column, table: Table, model: Model, draw: Draw): Value {
  const relation = table.relations.find((each) => each.kind === 'one' && each.name === column.name);
  if (relation?.kind === 'one') {
    const { rows, key } = tableNamed(model, relation.target);
    return rows.length === 0 || draw.chance(20) ? null : (draw.pick(rows)[key.name] ?? null);
  }
  if (isJson(column.kind)) return { json: [1] };
  return column.nullable && draw.chance(15) ? null : drawValue(column.kind, draw);
}

export interface Judgement {
  /** Answers that are right. */
  readonly statuses: readonly number[];
  /** Rows as they are after it; empty where nothing may change. */
  readonly rows: readonly { readonly table: Table; readonly row: Row }[];
  readonly gone: readonly { readonly table: Table; readonly key: Value }[];
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
      const made = judgeItems(model, drawn, write.target, write.items, { [write.list.many.field]: write.key });
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

function rowsWith(table: Table, keys: readonly Value[]): Row[] {
  return table.rows.filter((row) => keys.includes(row[table.key.name] ?? null));
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
  const names = Object.keys(given);
  const fitting = rules.filter((rule) => names.every((name) => grants(rule, name)));
  if (fitting.length === 0) return FORBIDDEN;
  const whole = { ...presetsOf(rules, drawn, table), ...data };
  if (!isValid(model, rules, drawn, table, whole)) return INVALID;
  const open = rows.every((row) => fitting.some((rule) => holds(model, rule, drawn.person, table, row)));
  if (!open) return FORBIDDEN;
  return { statuses: DONE, rows: rows.map((row) => ({ table, row: { ...row, ...whole } })), gone: [] };
}

function judgeItems(model: Model, drawn: Drawn, table: Table, items: readonly Data[], parent: Data): Judgement {
  const rules = rulesOf(drawn, 'create', table.name);
  const named = items.map((item) => ({ ...item, ...parent }));
  const open = named.every((item) => Object.keys(item).every((name) => rules.some((rule) => grants(rule, name))));
  if (!open || rules.length === 0) return FORBIDDEN;
  const rows = named.map((item) => ({ ...presetsOf(rules, drawn, table), ...item }));
  if (!rows.every((row) => isValid(model, rules, drawn, table, row))) return INVALID;
  const blank = Object.fromEntries(table.columns.map(({ name }) => [name, null]));
  return { statuses: DONE, rows: rows.map((row) => ({ table, row: { ...blank, ...row } })), gone: [] };
}

/** What comes later wins. */
function presetsOf(rules: readonly Rule[], drawn: Drawn, table: Table): Data {
  const presets = Object.assign({}, ...rules.map((rule) => resolve(rule.presets ?? {}, drawn.person))) as Record<
    string,
    unknown
  >;
  return Object.fromEntries(
    Object.entries(presets).map(([name, value]) => {
      const kind = table.columns.find((column) => column.name === name)?.kind ?? 'text';
      const stored = table.rows.map((row) => row[name] ?? null).find((each) => writeValue(kind, each) === value);
      return [name, stored ?? (value as Value)];
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
export function encodeWrite(write: Write): { method: string; path: string; body: unknown } {
  const { table } = write;
  const path = `/items/${encodeURIComponent(table.name)}`;
  const text = (of: Table, data: Data): Record<string, unknown> =>
    Object.fromEntries(
      Object.entries(data).map(([name, value]) => {
        const kind = of.columns.find((column) => column.name === name)?.kind ?? 'text';
        return [name, value !== null && isBoxed(kind) ? (value as { json: unknown }).json : writeValue(kind, value)];
      }),
    );
  const keyText = (key: Value): string => writeValue(table.key.kind, key) ?? '';
  switch (write.kind) {
    case 'create':
      return { method: 'POST', path, body: write.items.map((item) => text(table, item)) };
    case 'update':
      return { method: 'PATCH', path, body: { keys: write.keys.map(keyText), data: text(table, write.data) } };
    case 'delete':
      return { method: 'DELETE', path, body: write.keys.map(keyText) };
    case 'nested':
      return {
        method: 'PATCH',
        path: `${path}/${encodeURIComponent(keyText(write.key))}`,
        body: { [write.list.name]: { create: write.items.map((item) => text(write.target, item)) } },
      };
  }
}
