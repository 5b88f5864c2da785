/** The rows of a random model: keys first, so that references can lead to them. */
import type { Draw } from './draw.js';
import { drawValue, type KindName, TEXTS, type Value } from './kinds.js';
import { type Column, joinKey, type Relation, type Row, type Table, type ToAny } from './model.js';

/** By table, in the order of its key. */
type Keys = ReadonlyMap<string, readonly (readonly Value[])[]>;

/** Tables whose keys hold references stand behind those that they refer to. */
export function fillRows(tables: readonly Table[], draw: Draw): void {
  const keys = new Map<string, readonly (readonly Value[])[]>();
  for (const table of tables)
    keys.set(table.name, drawKeys(table, keys, draw.chance(5) ? 0 : draw.integer(6, 22), draw));
  for (const table of tables) {
    table.rows = table.key.length === 0 ? drawKeylessRows(table, keys, draw) : drawRows(table, keys, draw);
    for (const relation of table.relations)
      if (relation.kind === 'any') drawReferences(table, relation, tables, keys, draw);
  }
}

function drawRows(table: Table, keys: Keys, draw: Draw): Row[] {
  return (keys.get(table.name) ?? []).map((key) => {
    const row = Object.fromEntries(table.key.map(({ name }, position) => [name, key[position] ?? null]));
    return { ...row, ...drawOthers(table, keys, draw) };
  });
}

/** Some rows are there twice. */
function drawKeylessRows(table: Table, keys: Keys, draw: Draw): Row[] {
  const rows = draw.repeat(4, 14, (position) => ({
    ...drawOthers(table, keys, draw),
    [table.sortField ?? '']: position,
  }));
  return rows.flatMap((row) => (draw.chance(15) ? [row, { ...row }] : [row]));
}

function drawOthers(table: Table, keys: Keys, draw: Draw): Row {
  const row: Record<string, Value> = {};
  for (const column of table.columns) if (!table.key.includes(column)) row[column.name] = drawCell(column, draw);
  for (const relation of table.relations) {
    if (relation.kind !== 'one' || isPartOfKey(table, relation)) continue;
    const held = drawReference(table, relation, keys, draw);
    for (const [position, { column }] of relation.many.columns.entries()) row[column] = held[position] ?? null;
  }
  return row;
}

function isPartOfKey(table: Table, relation: Relation): boolean {
  return relation.many.columns.every(({ column }) => table.key.some(({ name }) => name === column));
}

function drawCell(column: Column, draw: Draw): Value {
  return column.nullable && draw.chance(20) ? null : drawValue(column.kind, draw);
}

/** A part of a reference may be missing: then it leads nowhere. */
function drawReference(table: Table, relation: Relation & { kind: 'one' }, keys: Keys, draw: Draw): readonly Value[] {
  if (draw.chance(20)) return [];
  const targets = keys.get(relation.target) ?? [];
  const { columns } = relation.many;
  if (!relation.constrained && draw.chance(10))
    return columns.map(({ column }) =>
      drawValue(table.columns.find(({ name }) => name === column)?.kind ?? 'text', draw),
    );
  if (targets.length === 0) return [];
  const held = draw.pick(targets);
  return columns.length > 1 && draw.chance(10) ? held.with(draw.integer(0, held.length - 1), null) : held;
}

function drawKeys(table: Table, keys: Keys, count: number, draw: Draw): Value[][] {
  const found = new Map<string, Value[]>();
  const held = table.relations.filter((relation) => relation.kind === 'one' && isPartOfKey(table, relation));
  // There may be fewer keys than that.
  for (let number = 1; found.size < count && number < count * 4; number++) {
    if (draw.chance(15)) continue;
    const values = new Map<string, Value>();
    for (const relation of held) {
      const targets = relation.kind === 'one' ? (keys.get(relation.target) ?? []) : [];
      const target = targets.length > 0 ? draw.pick(targets) : [];
      for (const [position, { column }] of relation.many.columns.entries())
        values.set(column, target[position] ?? null);
    }
    const key = table.key.map(({ name, kind }) =>
      values.has(name) ? (values.get(name) ?? null) : drawKeyValue(kind, table.key.length, number, draw),
    );
    const text = joinKey(table, key);
    if (text !== null && text !== '') found.set(text, key);
  }
  return [...found.values()];
}

function drawKeyValue(kind: KindName, parts: number, number: number, draw: Draw): Value {
  if (parts > 1 && draw.chance(50)) return drawValue(kind, draw);
  switch (kind) {
    case 'integer':
      return number;
    case 'bigInteger':
      return draw.pick([BigInt(number), 9007199254740993n + BigInt(number)]);
    case 'uuid':
      return `${draw.integer(0x10000000, 0x7fffffff).toString(16)}-0000-4000-8000-${String(number).padStart(12, '0')}`;
    case 'text':
    case 'string':
      return draw.pick([`k${number}`, String(number), ...TEXTS.slice(1)]);
    default:
      return drawValue(kind, draw);
  }
}

/** Mostly keys of the named collection; some lead nowhere, cannot be keys, or name no collection of the relation. */
function drawReferences(table: Table, relation: ToAny, tables: readonly Table[], keys: Keys, draw: Draw): void {
  table.rows = table.rows.map((row) => {
    const collection = draw.chance(90) ? draw.pick(relation.targets) : draw.pick([null, 'elsewhere', table.name]);
    const target = tables.find(({ name }) => name === collection);
    const known = keys.get(collection ?? '') ?? [];
    const isKnown = target && known.length > 0 && draw.chance(85);
    const item = isKnown
      ? joinKey(target, draw.pick(known))
      : draw.pick([null, '999999', 'nothing', '', '1~', 'a~b\\', '~~']);
    return { ...row, [relation.name]: item, [relation.collectionField]: collection };
  });
}
