/**
 * Random models: two to four tables with columns of every type, related in every way the service knows, and their rows.
 * Each model has a self relation, a many-to-many and a many-to-any relation beside random many-to-one relations. Keys have one column
 * or several; references to the latter do too. Some models have tables whose key holds a reference, and tables without a key.
 */
import type { Draw } from './draw.js';
import { KINDS, type KindName, showValue, type Value, writeValue } from './kinds.js';
import { fillRows } from './rows.js';
import { SPECIAL_KINDS } from './special-types.js';

export interface Column {
  readonly name: string;
  readonly kind: KindName;
  readonly nullable: boolean;
}

export type Row = Readonly<Record<string, Value>>;

export interface Table {
  readonly name: string;
  /** One column, several, or none where rows cannot be told apart. */
  readonly key: readonly Column[];
  /** What says that it is the key: the database, or the metadata of the service. */
  readonly keyBy: 'primary' | 'unique' | 'declared';
  readonly partitioned: boolean;
  /** The key first. */
  readonly columns: Column[];
  readonly relations: Relation[];
  /** The default order of the collection. */
  sortField: string | null;
  /** The column with words that a search looks into. */
  searchField: string | null;
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

/** The values of the key of a row, whether or not they may be seen. */
export function keyOf(table: Table, row: Row): Value[] {
  const whole = wholeOf(table, row);
  return table.key.map(({ name }) => whole[name] ?? null);
}

/** The key of a row as requests name it, whether or not it may be seen. */
export function keyTextOf(table: Table, row: Row): string {
  return joinKey(table, keyOf(table, row)) ?? '';
}

/** The parts as they are shown, joined by `~`; null where one is missing. */
export function joinKey({ key }: Table, values: readonly Value[]): string | null {
  if (values.includes(null)) return null;
  const [only] = key;
  if (only && key.length === 1) return writeValue(only.kind, values[0] ?? null);
  return key
    .map(({ kind }, position) => {
      const value = values[position] ?? null;
      const text = kind === 'decimal' ? writeValue(kind, value) : String(showValue(kind, value));
      return text?.replaceAll('\\', '\\\\').replaceAll('~', '\\~');
    })
    .join('~');
}

/** The column of a key that has one column alone. */
export function soleKey({ key }: Table): Column | null {
  return key.length === 1 ? (key[0] ?? null) : null;
}

/** Whether all that names its rows may be seen. */
export function showsKey({ key, columns }: Table): boolean {
  return key.length > 0 && key.every(({ name }) => columns.some((column) => column.name === name));
}

export function wholeOf({ view }: Table, row: Row): Row {
  return view ? view.whole(row) : row;
}

/** What a row refers to by a relation to one row; null where it refers to nothing, or that may not be seen. */
export function heldBy(table: Table, row: Row | null, relation: Relation): Value[] | null {
  if (!row) return null;
  const { columns } = relation.many;
  if (columns.length > 1 && !(table.view?.lists(row, relation.name) ?? true)) return null;
  const holder = columns.length > 1 ? wholeOf(table, row) : row;
  const values = columns.map(({ column }) => holder[column] ?? null);
  return values.includes(null) ? null : values;
}

/** The row of the other side whose key these are. */
export function rowWith(target: Table, relation: Relation, values: readonly Value[] | null): Row | null {
  if (!values) return null;
  const { columns } = relation.many;
  const isIt = (row: Row): boolean =>
    columns.every(({ referenced }, position) => wholeOf(target, row)[referenced] === values[position]);
  return target.rows.find(isIt) ?? null;
}

/** A relation as one of its sides sees it; `many` names the side that stores the reference. */
export type Relation = (ToOne | ToMany | ToAny) & {
  readonly many: {
    readonly table: string;
    readonly field: string;
    /** In the order of the key: several where the field is an alias beside them. */
    readonly columns: readonly { readonly column: string; readonly referenced: string }[];
  };
};

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
const PART_KINDS: readonly KindName[] = [
  ...KEY_KINDS,
  ...(['date', 'timestamp', 'dateTime', 'decimal', 'boolean', 'time'] as const),
];
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
  const others: Table[] = [];
  const relate = (from: Table, name: string, target: Table, alias: string | null, sortField: string | null): void => {
    const { relation, columns } = drawToOne(from, name, target, alias !== null, draw);
    from.columns.push(...columns);
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
  others.push(drawManyToMany(left, right, draw));
  others.push(drawManyToAny(draw.pick(entities), draw.some(entities, 2, 2), draw));
  if (draw.chance(60)) others.push(drawLines(draw.pick(entities), draw));
  if (draw.chance(60)) {
    const log = drawKeyless(start, draw);
    relate(log, 'about', draw.pick(entities), draw.chance(80) ? 'logs' : null, null);
    if (draw.chance(50)) relate(log, 'by', draw.pick(entities), null, null);
    others.push(log);
  }
  const tables = [...entities, ...others];
  for (const entity of entities) {
    if (draw.chance(20)) entity.sortField = entity.columns.find(isSortable)?.name ?? null;
  }
  for (const table of tables) {
    const words = table.columns.find(({ kind }) => kind === 'words');
    if (words && draw.chance(40)) table.searchField = words.name;
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
  const names = draw.pick([['id'], ['id'], ['Key'], [`${name}_id`], ['k "1"', 'part'], ['day', 'no', 'code']] as const);
  const key = names.map(
    (each): Column => ({ name: each, kind: draw.pick(names.length > 1 ? PART_KINDS : KEY_KINDS), nullable: false }),
  );
  const others = drawColumns(columnCount, start, draw);
  const keyBy = key.length > 1 ? draw.pick(['primary', 'primary', 'unique', 'declared'] as const) : 'primary';
  return {
    ...bareTable(name, key),
    keyBy,
    partitioned: key.length > 1 && keyBy === 'primary' && draw.chance(50),
    // The columns of a key need not come in its order.
    columns: [...(draw.chance(50) ? key : key.toReversed()), ...others],
  };
}

function drawColumns(count: number, start: number, draw: Draw): Column[] {
  const columns = draw.some(COLUMN_NAMES, count, count).map((column, index): Column => {
    const turn = KINDS[(start + index) % KINDS.length] as KindName;
    const kind = index < 3 ? turn : index === 3 ? draw.pick(['json', 'jsonb'] as const) : draw.pick(KINDS);
    return { name: column, kind, nullable: draw.chance(70) };
  });
  // Arrays have most operators: each table has one.
  const [first, ...others] = SPECIAL_KINDS;
  const special = [first, ...draw.some(others, 2, 4)].map(
    (kind): Column => ({ name: `its ${kind}`, kind, nullable: draw.chance(70) }),
  );
  return [...columns, ...special];
}

/** A reference to a key of several columns has an alias field beside the columns that hold it. */
function drawToOne(
  from: Table,
  name: string,
  target: Table,
  declared: boolean,
  draw: Draw,
): { relation: Relation & ToOne; columns: Column[] } {
  const isSole = target.key.length === 1;
  const canConstrain = target.keyBy !== 'declared';
  const constrained = canConstrain && ((isSole && !declared) || draw.chance(60));
  const columns = target.key.map(
    ({ kind }, position): Column => ({ name: isSole ? name : `${name}_${position}`, kind, nullable: true }),
  );
  const pairs = columns.map((column, position) => ({
    column: column.name,
    referenced: target.key[position]?.name ?? '',
  }));
  const relation = {
    kind: 'one',
    name,
    target: target.name,
    constrained,
    declared: declared || !isSole || draw.chance(50),
    many: { table: from.name, field: name, columns: pairs },
  } as const;
  return { relation, columns };
}

/** `links` on one side, sorted by the junction; sometimes `linked` on the other. Sometimes its key is its two references. */
function drawManyToMany(left: Table, right: Table, draw: Draw): Table {
  const own: Column = { name: 'id', kind: draw.pick(['integer', 'uuid']), nullable: false };
  const bare = bareTable('left_right', [own]);
  const extra: Column = { name: 'note', kind: draw.pick(['text', 'integer', 'date']), nullable: true };
  const ends = [
    { name: 'left_id', table: left, alias: 'links', sortField: 'sort', other: 'right_id' },
    { name: 'right_id', table: right, alias: draw.chance(60) ? 'linked' : null, sortField: null, other: 'left_id' },
  ];
  const sides = ends.map((end) => ({ ...end, ...drawToOne(bare, end.name, end.table, end.alias !== null, draw) }));
  const isKey = draw.chance(60);
  const held = sides.flatMap(({ columns }) => columns).map((column) => ({ ...column, nullable: !isKey }));
  const junction: Table = {
    ...bare,
    key: isKey ? (draw.chance(50) ? held : held.toReversed()) : bare.key,
    columns: [...(isKey ? [] : [own]), ...held],
  };
  for (const { relation, table, alias, sortField, other } of sides) {
    junction.relations.push(isKey ? { ...relation, constrained: table.keyBy !== 'declared' } : relation);
    if (alias === null) continue;
    const many = { kind: 'many', name: alias, target: junction.name, sortField, junctionField: other } as const;
    table.relations.push({ ...many, many: relation.many });
  }
  junction.columns.push({ name: 'sort', kind: 'integer', nullable: true }, extra);
  return junction;
}

function drawManyToAny(parent: Table, targets: readonly Table[], draw: Draw): Table {
  const junction = bareTable('parts', [{ name: 'id', kind: 'integer', nullable: false }]);
  const { relation, columns } = drawToOne(junction, 'parent_id', parent, true, draw);
  junction.columns.push(...columns, { name: 'item', kind: 'string', nullable: true });
  junction.columns.push({ name: 'collection', kind: 'string', nullable: true });
  junction.columns.push({ name: 'sort', kind: 'integer', nullable: true });
  junction.relations.push(relation, {
    kind: 'any',
    name: 'item',
    collectionField: 'collection',
    targets: targets.map(({ name }) => name),
    many: { table: junction.name, field: 'item', columns: [{ column: 'item', referenced: '' }] },
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

/** Like the lines of an order: the key is that of the parent, and a number. */
function drawLines(parent: Table, draw: Draw): Table {
  const bare = bareTable('lines', []);
  const { relation, columns } = drawToOne(bare, 'of', parent, true, draw);
  const held = columns.map((column): Column => ({ ...column, nullable: false }));
  const line: Column = { name: 'line', kind: 'integer', nullable: false };
  const key = draw.chance(50) ? [...held, line] : [line, ...held];
  const columnsOfOwn: Column[] = [
    { name: 'amount', kind: draw.pick(['integer', 'decimal', 'float']), nullable: true },
    { name: 'remark', kind: 'text', nullable: true },
  ];
  const lines: Table = {
    ...bare,
    key,
    partitioned: draw.chance(50),
    columns: [...key, ...columnsOfOwn],
    relations: [{ ...relation, constrained: parent.keyBy !== 'declared' }],
  };
  const many = { kind: 'many', name: 'its lines', target: 'lines', sortField: null, junctionField: null } as const;
  parent.relations.push({ ...many, many: relation.many });
  return lines;
}

/** Without a key only a sort tells its rows apart: equal numbers are those of equal rows. */
function drawKeyless(start: number, draw: Draw): Table {
  const number: Column = { name: ORDER, kind: 'integer', nullable: false };
  const columns = [number, ...drawColumns(draw.integer(2, 5), start, draw)];
  return { ...bareTable('log', []), columns, sortField: ORDER };
}

/** The column that gives rows without a key an order. */
export const ORDER = 'ordinal';

function bareTable(name: string, key: readonly Column[]): Table {
  const plain = { keyBy: 'primary', partitioned: false, sortField: null, searchField: null } as const;
  return { ...plain, name, key, columns: [...key], relations: [], rows: [] };
}
