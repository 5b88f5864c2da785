/**
 * Random models for writes: two to four tables with every way of making keys, and the tables that join them. Each has a
 * self relation, a many-to-many and a many-to-any relation beside random many-to-one relations. Every table has a `label`
 * that payloads give: rows whose keys the database makes are found again by it.
 */
import type { Draw } from '../property/draw.js';

export type Value = string | number | boolean | null;
export type Row = Record<string, Value>;

export type KeyKind = 'serial' | 'bigserial' | 'always' | 'uuid' | 'flagged' | 'text';
export type ColumnType = 'text' | 'integer' | 'boolean' | 'uuid';

export interface Column {
  readonly name: string;
  readonly type: ColumnType;
  readonly nullable: boolean;
  /** What the database gives a row that leaves the column out. */
  readonly initial: Value;
}

export interface One {
  readonly kind: 'one';
  readonly name: string;
  readonly target: string;
  /** Whether PostgreSQL guards it. */
  readonly constrained: boolean;
  readonly onDelete: 'no action' | 'set null' | 'cascade';
}

export interface Many {
  readonly kind: 'many';
  readonly name: string;
  readonly target: string;
  readonly foreignKey: string;
  readonly deselect: 'nullify' | 'delete';
  readonly sortField: string | null;
}

export interface Any {
  readonly kind: 'any';
  readonly name: string;
  readonly collectionField: string;
  readonly targets: readonly string[];
}

export type Relation = One | Many | Any;

export interface Table {
  readonly name: string;
  readonly key: { readonly name: string; readonly kind: KeyKind };
  /** Without the key. */
  readonly columns: Column[];
  readonly relations: Relation[];
  /** What every run of cases begins with. */
  rows: Row[];
}

export interface Model {
  readonly tables: readonly Table[];
}

const KEY_KINDS: readonly KeyKind[] = ['serial', 'serial', 'bigserial', 'always', 'uuid', 'flagged', 'text'];
const TABLE_NAMES = ['things', 'Order', 'sélect', 'people'] as const;

export function drawModel(draw: Draw): Model {
  const entities = draw.some(TABLE_NAMES, 2, 4).map((name) => drawEntity(name, draw));
  for (const [position, entity] of entities.entries()) {
    // Only towards earlier tables, so that rows can be made in some order.
    const required = position > 0 && draw.chance(25);
    const target = required ? draw.pick(entities.slice(0, position)) : draw.pick(entities);
    relate(entity, `owner ${position}`, target, `list_${position}`, { required, sorted: draw.chance(50) }, draw);
    if (draw.chance(50)) {
      const alias = draw.chance(60) ? `more_${position}` : null;
      relate(entity, `ref_${position}`, draw.pick(entities), alias, {}, draw);
    }
  }
  const itself = draw.pick(entities);
  relate(itself, 'parent', itself, 'children', {}, draw);
  const tables = [...entities, drawManyToMany(entities, draw), drawManyToAny(entities, draw)];
  for (const table of tables) table.rows = drawRows(table, tables, draw);
  for (const table of tables) fillReferences(table, tables, draw);
  return { tables };
}

export function tableNamed(model: Model, name: string): Table {
  const table = model.tables.find((each) => each.name === name);
  if (!table) throw new Error(`there is no table "${name}"`);
  return table;
}

export function relationNamed(table: Table, name: string): Relation | undefined {
  return table.relations.find((each) => each.name === name);
}

export function keyTypeOf({ key }: Table): ColumnType {
  if (key.kind === 'text') return 'text';
  return key.kind === 'uuid' || key.kind === 'flagged' ? 'uuid' : 'integer';
}

function drawEntity(name: string, draw: Draw): Table {
  const columns: Column[] = [
    { name: 'label', type: 'text', nullable: false, initial: null },
    { name: 'number', type: 'integer', nullable: true, initial: draw.pick([null, 7]) },
    { name: 'we"ird note', type: 'text', nullable: true, initial: draw.pick([null, "it's"]) },
  ];
  if (draw.chance(60)) columns.push({ name: 'Flag', type: 'boolean', nullable: false, initial: true });
  if (draw.chance(30)) columns.push({ name: 'needed', type: 'integer', nullable: false, initial: null });
  const key = { name: draw.pick(['id', 'id', 'Key']), kind: draw.pick(KEY_KINDS) };
  return { name, key, columns, relations: [], rows: [] };
}

interface RelationOptions {
  readonly required?: boolean;
  readonly sorted?: boolean;
}

function relate(
  from: Table,
  name: string,
  target: Table,
  alias: string | null,
  { required = false, sorted = false }: RelationOptions,
  draw: Draw,
): void {
  const constrained = draw.chance(75);
  const onDelete = draw.pick(['no action', 'no action', required ? 'cascade' : 'set null', 'cascade'] as const);
  from.columns.push({ name, type: keyTypeOf(target), nullable: !required, initial: null });
  from.relations.push({ kind: 'one', name, target: target.name, constrained: constrained || alias === null, onDelete });
  if (alias === null) return;
  const sortField = sorted ? 'sort' : null;
  if (sorted && !from.columns.some((column) => column.name === 'sort'))
    from.columns.push({ name: 'sort', type: 'integer', nullable: true, initial: null });
  const deselect = draw.pick(['nullify', 'delete'] as const);
  target.relations.push({ kind: 'many', name: alias, target: from.name, foreignKey: name, deselect, sortField });
}

function drawManyToMany(entities: readonly Table[], draw: Draw): Table {
  const junction = bareTable('left_right', draw.pick(['serial', 'uuid', 'always']));
  relate(junction, 'left_id', draw.pick(entities), 'links', { sorted: true }, draw);
  relate(junction, 'right_id', draw.pick(entities), draw.chance(60) ? 'linked' : null, {}, draw);
  return junction;
}

function drawManyToAny(entities: readonly Table[], draw: Draw): Table {
  const junction = bareTable('parts', 'serial');
  relate(junction, 'parent_id', draw.pick(entities), 'blocks', { sorted: true }, draw);
  junction.columns.push({ name: 'item', type: 'text', nullable: true, initial: null });
  junction.columns.push({ name: 'collection', type: 'text', nullable: true, initial: null });
  const targets = draw.some(entities, 2, 2).map(({ name }) => name);
  junction.relations.push({ kind: 'any', name: 'item', collectionField: 'collection', targets });
  return junction;
}

function bareTable(name: string, kind: KeyKind): Table {
  const label: Column = { name: 'label', type: 'text', nullable: true, initial: null };
  return { name, key: { name: 'id', kind }, columns: [label], relations: [], rows: [] };
}

function drawRows(table: Table, tables: readonly Table[], draw: Draw): Row[] {
  const place = tables.indexOf(table);
  return draw.repeat(3, 9, (position) => {
    const row: Row = { [table.key.name]: firstKey(table, place, position + 1) };
    for (const column of table.columns) row[column.name] = firstValue(column, `${place}-${position}`, draw);
    return row;
  });
}

function firstKey(table: Table, place: number, number: number): Value {
  const type = keyTypeOf(table);
  if (type === 'integer') return number;
  return type === 'text' ? `key ${number}` : makeUuid(place * 100 + number);
}

export function makeUuid(number: number): string {
  return `0badcafe-0000-4000-8000-${number.toString(16).padStart(12, '0')}`;
}

function firstValue(column: Column, label: string, draw: Draw): Value {
  if (column.name === 'label') return `first ${label}`;
  if (column.nullable && draw.chance(20)) return null;
  if (column.type === 'integer') return draw.integer(1, 20);
  return column.type === 'boolean' ? draw.chance(50) : draw.pick(['a', 'b', '']);
}

function fillReferences(table: Table, tables: readonly Table[], draw: Draw): void {
  const keysOf = (name: string): Value[] => {
    const target = tables.find((each) => each.name === name);
    return target ? target.rows.map((row) => row[target.key.name] ?? null) : [];
  };
  for (const relation of table.relations) {
    for (const row of table.rows) {
      if (relation.kind === 'one') {
        const nullable = table.columns.find(({ name }) => name === relation.name)?.nullable === true;
        row[relation.name] = nullable && draw.chance(25) ? null : draw.pick(keysOf(relation.target));
      }
      if (relation.kind === 'any') {
        const collection = draw.pick(relation.targets);
        row[relation.collectionField] = collection;
        row[relation.name] = String(draw.pick(keysOf(collection)));
      }
    }
  }
}
