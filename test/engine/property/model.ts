/**
 * Random models: two to four tables with columns of every type, related in every way the service knows, and their rows.
 * Each model has a self relation, a many-to-many and a many-to-any relation beside random many-to-one relations.
 */
import type { Draw } from './draw.js';
import { drawValue, KINDS, type KindName, TEXTS, type Value } from './kinds.js';
import { SPECIAL_KINDS } from './special-types.js';

export interface Column {
  readonly name: string;
  readonly kind: KindName;
  readonly nullable: boolean;
}

export type Row = Readonly<Record<string, Value>>;

export interface Table {
  readonly name: string;
  readonly key: Column;
  /** The key first. */
  readonly columns: Column[];
  readonly relations: Relation[];
  /** The default order of the collection. */
  sortField: string | null;
  rows: Row[];
  /** What somebody sees of it; absent where that is everything. */
  readonly view?: View;
}

/** A table as somebody sees it: its columns, relations and rows are those that may be seen, values that may not are null. */
export interface View {
  /** The row behind the one that is seen. */
  whole(row: Row): Row;
  /** Whether the list may be seen in the row, or would be in one that does not exist. */
  lists(row: Row | null, relation: string): boolean;
  /** Relations that lead to where nothing may be seen. */
  readonly cut: readonly Relation[];
  isMasked(column: string): boolean;
}

/** The key of a row, whether or not it may be seen. */
export function keyOf(table: Table, row: Row): Value {
  return wholeOf(table, row)[table.key.name] ?? null;
}

export function wholeOf({ view }: Table, row: Row): Row {
  return view ? view.whole(row) : row;
}

/** A relation as one of its sides sees it; `many` names the side that stores the reference. */
export type Relation = (ToOne | ToMany | ToAny) & { readonly many: { readonly table: string; readonly field: string } };

export interface ToOne {
  readonly kind: 'one';
  readonly name: string;
  readonly target: string;
  /** Whether PostgreSQL knows of it. */
  readonly constrained: boolean;
  /** Whether the service's metadata knows of it. */
  readonly declared: boolean;
}

export interface ToMany {
  readonly kind: 'many';
  readonly name: string;
  readonly target: string;
  readonly sortField: string | null;
  readonly junctionField: string | null;
}

export interface ToAny {
  readonly kind: 'any';
  readonly name: string;
  readonly collectionField: string;
  readonly targets: readonly string[];
}

export interface Model {
  readonly tables: readonly Table[];
  /** Options of the service under which the model is read. */
  readonly options: { readonly defaultLimit: number; readonly streamAbove: number };
}

export function tableNamed(model: Model, name: string): Table {
  const table = model.tables.find((each) => each.name === name);
  if (!table) throw new Unknown(`there is no table "${name}"`);
  return table;
}

/** A request that the service has to refuse: only a shrunk one is. */
export class Refused extends Error {}

/** A request that names what does not exist, or may not be seen. */
export class Unknown extends Refused {}

const KEY_KINDS: readonly KindName[] = ['integer', 'integer', 'bigInteger', 'uuid', 'string', 'text'];
const TABLE_NAMES = ['things', 'Order', 'sélect', 'people'] as const;
const COLUMN_NAMES = [
  'a',
  'e',
  'Name',
  'user',
  'naïve',
  'we"ird',
  "it's",
  'two words',
  'x-y',
  '50%',
  'back\\slash',
  '_lead',
  'value',
  'date',
  'r0',
  '漢',
] as const;

export function drawModel(draw: Draw): Model {
  const start = draw.integer(0, KINDS.length - 1);
  const entities = draw
    .some(TABLE_NAMES, 2, 4)
    .map((name, position) => drawTable(name, draw.integer(4, 9), start + position * 3, draw));
  const junctions: Table[] = [];
  const relate = (from: Table, name: string, target: Table, alias: string | null, sortField: string | null): void => {
    const { relation, column } = drawToOne(from, name, target, alias !== null, draw);
    from.columns.push(column);
    from.relations.push(relation);
    if (alias === null) return;
    const many = { kind: 'many', name: alias, target: from.name, sortField, junctionField: null } as const;
    target.relations.push({ ...many, many: relation.many });
  };

  for (const [position, entity] of entities.entries()) {
    for (const index of [0, 1].slice(0, draw.integer(1, 2))) {
      const alias = draw.chance(75) ? `list_${position}_${index}` : null;
      const sortField = draw.chance(30) ? (entity.columns.find(isSortable)?.name ?? null) : null;
      relate(entity, index === 0 ? `owner${position}` : `ref ${position}`, draw.pick(entities), alias, sortField);
    }
  }
  const itself = draw.pick(entities);
  relate(itself, 'parent', itself, 'children', null);

  const [left, right] = [draw.pick(entities), draw.pick(entities)];
  junctions.push(drawManyToMany(left, right, draw));
  junctions.push(drawManyToAny(draw.pick(entities), draw.some(entities, 2, 2), draw));
  const tables = [...entities, ...junctions];
  for (const entity of entities) {
    if (draw.chance(20)) entity.sortField = entity.columns.find(isSortable)?.name ?? null;
  }
  fillRows(tables, draw);
  const options = { defaultLimit: draw.pick([3, 7, 100]), streamAbove: draw.pick([5, 10, 10_000]) };
  return { tables, options };
}

function isSortable(column: Column): boolean {
  return column.kind === 'integer' || column.kind === 'text';
}

/** The kinds of the first columns take turns, from `start` on; one column holds JSON values, which have many operators. */
function drawTable(name: string, columnCount: number, start: number, draw: Draw): Table {
  const key: Column = {
    name: draw.pick(['id', 'id', 'Key', `${name}_id`]),
    kind: draw.pick(KEY_KINDS),
    nullable: false,
  };
  const columns = draw.some(COLUMN_NAMES, columnCount, columnCount).map((column, index): Column => {
    const turn = KINDS[(start + index) % KINDS.length] as KindName;
    const kind = index < 3 ? turn : index === 3 ? draw.pick(['json', 'jsonb'] as const) : draw.pick(KINDS);
    return { name: column, kind, nullable: draw.chance(70) };
  });
  // Arrays have most operators: each table has one.
  const [first, ...others] = SPECIAL_KINDS;
  const special = [first, ...draw.some(others, 2, 3)].map(
    (kind): Column => ({ name: `its ${kind}`, kind, nullable: draw.chance(70) }),
  );
  return { name, key, columns: [key, ...columns, ...special], relations: [], sortField: null, rows: [] };
}

function drawToOne(
  from: Table,
  name: string,
  target: Table,
  declared: boolean,
  draw: Draw,
): { relation: Relation & ToOne; column: Column } {
  const constrained = !declared || draw.chance(60);
  const relation = {
    kind: 'one',
    name,
    target: target.name,
    constrained,
    declared: declared || draw.chance(50),
    many: { table: from.name, field: name },
  } as const;
  return { relation, column: { name, kind: target.key.kind, nullable: true } };
}

/** `links` on one side, sorted by the junction; sometimes `linked` on the other. */
function drawManyToMany(left: Table, right: Table, draw: Draw): Table {
  const junction = bareTable('left_right', draw.pick(['integer', 'uuid']));
  const extra: Column = { name: 'note', kind: draw.pick(['text', 'integer', 'date']), nullable: true };
  const sides = [
    { name: 'left_id', table: left, alias: 'links', sortField: 'sort', other: 'right_id' },
    { name: 'right_id', table: right, alias: draw.chance(60) ? 'linked' : null, sortField: null, other: 'left_id' },
  ];
  for (const { name, table, alias, sortField, other } of sides) {
    const { relation, column } = drawToOne(junction, name, table, alias !== null, draw);
    junction.columns.push(column);
    junction.relations.push(relation);
    if (alias === null) continue;
    const many = { kind: 'many', name: alias, target: junction.name, sortField, junctionField: other } as const;
    table.relations.push({ ...many, many: relation.many });
  }
  junction.columns.push({ name: 'sort', kind: 'integer', nullable: true }, extra);
  return junction;
}

function drawManyToAny(parent: Table, targets: readonly Table[], draw: Draw): Table {
  const junction = bareTable('parts', 'integer');
  const { relation, column } = drawToOne(junction, 'parent_id', parent, true, draw);
  junction.columns.push(column, { name: 'item', kind: 'string', nullable: true });
  junction.columns.push({ name: 'collection', kind: 'string', nullable: true });
  junction.columns.push({ name: 'sort', kind: 'integer', nullable: true });
  junction.relations.push(relation, {
    kind: 'any',
    name: 'item',
    collectionField: 'collection',
    targets: targets.map(({ name }) => name),
    many: { table: junction.name, field: 'item' },
  });
  const many = {
    kind: 'many',
    name: 'blocks',
    target: junction.name,
    sortField: 'sort',
    junctionField: 'item',
  } as const;
  parent.relations.push({ ...many, many: relation.many });
  return junction;
}

function bareTable(name: string, kind: KindName): Table {
  const key: Column = { name: 'id', kind, nullable: false };
  return { name, key, columns: [key], relations: [], sortField: null, rows: [] };
}

function fillRows(tables: readonly Table[], draw: Draw): void {
  const keys = new Map(
    tables.map((table) => [table.name, drawKeys(table, draw.chance(5) ? 0 : draw.integer(6, 22), draw)]),
  );
  for (const table of tables) {
    table.rows = (keys.get(table.name) ?? []).map((key) => {
      const row: Record<string, Value> = { [table.key.name]: key };
      for (const column of table.columns.slice(1)) row[column.name] = drawCell(column, table, keys, draw);
      return row;
    });
    for (const relation of table.relations) if (relation.kind === 'any') drawReferences(table, relation, keys, draw);
  }
}

function drawKeys({ key }: Table, count: number, draw: Draw): Value[] {
  const keys = new Map<string, Value>();
  for (let number = 1; keys.size < count; number++) {
    if (draw.chance(15)) continue;
    const value: Value =
      key.kind === 'integer'
        ? number
        : key.kind === 'bigInteger'
          ? draw.pick([BigInt(number), 9007199254740993n + BigInt(number)])
          : key.kind === 'uuid'
            ? `${draw.integer(0x10000000, 0x7fffffff).toString(16)}-0000-4000-8000-${String(number).padStart(12, '0')}`
            : draw.pick([`k${number}`, String(number), ...TEXTS.slice(1)]);
    keys.set(String(value), value);
  }
  return [...keys.values()];
}

function drawCell(column: Column, table: Table, keys: ReadonlyMap<string, readonly Value[]>, draw: Draw): Value {
  if (column.nullable && draw.chance(20)) return null;
  const relation = table.relations.find((each) => each.kind === 'one' && each.name === column.name);
  if (relation?.kind !== 'one') return drawValue(column.kind, draw);
  const targets = keys.get(relation.target) ?? [];
  const dangling = !relation.constrained && draw.chance(10);
  if (dangling) return drawValue(column.kind, draw);
  return targets.length === 0 ? null : draw.pick(targets);
}

/** Mostly keys of the named collection; some lead nowhere, cannot be keys, or name no collection of the relation. */
function drawReferences(table: Table, relation: ToAny, keys: ReadonlyMap<string, readonly Value[]>, draw: Draw): void {
  table.rows = table.rows.map((row) => {
    const collection = draw.chance(90) ? draw.pick(relation.targets) : draw.pick([null, 'elsewhere', table.name]);
    const known = collection === null ? [] : (keys.get(collection) ?? []);
    const isKnown = known.length > 0 && draw.chance(85);
    const item = isKnown ? String(draw.pick(known)) : draw.pick([null, '999999', 'nothing', '']);
    return { ...row, [relation.name]: item, [relation.collectionField]: collection };
  });
}
