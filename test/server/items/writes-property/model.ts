/**
 * Random models for writes: two to four tables with every way of making keys, and the tables that join them. Each has a
 * self relation, a many-to-many and a many-to-any relation beside random many-to-one relations. Every table has a `label`
 * that payloads give: rows whose keys the database makes are found again by it. Keys have one column or several; references to the
 * latter have an alias beside their columns. The key of a junction may be its references, that of a line holds its parent's.
 */
import type { Draw } from '../property/draw.js';

export type Value = string | number | boolean | null;
export type Row = Record<string, Value>;

/** `several`: its columns are among those of the table. `none`: rows cannot be told apart. */
export type KeyKind = 'serial' | 'bigserial' | 'always' | 'uuid' | 'flagged' | 'text' | 'several' | 'none';
export type ColumnType = 'text' | 'integer' | 'boolean' | 'uuid' | 'date';

export interface Column {
  readonly name: string;
  readonly type: ColumnType;
  readonly nullable: boolean;
  /** What the database gives a row that leaves the column out. */
  readonly initial: Value;
  /** Whether it counts up in the column, which is a part of the key. */
  readonly counts?: boolean;
}

/** Which column holds what of the other side. */
export type Pairs = readonly { readonly column: string; readonly referenced: string }[];

export interface One {
  readonly kind: 'one';
  readonly name: string;
  readonly target: string;
  readonly columns: Pairs;
  /** Whether PostgreSQL guards it. */
  readonly constrained: boolean;
  readonly onDelete: 'no action' | 'set null' | 'cascade';
}

export interface Many {
  readonly kind: 'many';
  readonly name: string;
  readonly target: string;
  readonly foreignKey: string;
  readonly columns: Pairs;
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
  /** The columns of a key of several, in its order. */
  readonly parts: readonly string[];
  readonly partitioned: boolean;
  /** Without a key of one column. */
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
  if (draw.chance(60)) tables.push(drawLines(draw.pick(entities), draw));
  if (draw.chance(30)) tables.push(drawLog(draw.pick(entities), draw));
  tables.push(...drawTickets(entities, draw));
  for (const table of tables) table.rows = distinct(table, drawRows(table, tables, draw));
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

/** The key of a row: a value, or the texts of its parts as one. */
export function keyOf({ key, parts }: Table, row: Row): Value {
  return key.kind === 'several' ? joinKey(parts.map((name) => row[name] ?? null)) : (row[key.name] ?? null);
}

export function joinKey(parts: readonly Value[]): string {
  return parts.map((part) => String(part).replace(/[\\~]/g, '\\$&')).join('~');
}

/** Null for what cannot be a key of the table. */
export function splitKey({ parts }: Table, key: unknown): string[] | null {
  const found = [...String(key).matchAll(/((?:[^\\~]|\\[\\~])*)(~|$)/g)];
  const texts = found.slice(0, found.findIndex(([, , end]) => end === '') + 1).map(([, text = '']) => text);
  const whole = texts.join('~') === String(key) && texts.length === parts.length;
  return whole ? texts.map((text) => text.replace(/\\(.)/g, '$1')) : null;
}

export function isPart({ parts }: Table, name: string): boolean {
  return parts.includes(name);
}

export function columnOf(table: Table, name: string): Column | undefined {
  return table.columns.find((column) => column.name === name);
}

/** Columns by which the table is referred to, as others would have them. */
function referencedColumns(table: Table): Column[] {
  if (table.key.kind !== 'several')
    return [{ name: table.key.name, type: keyTypeOf(table), nullable: false, initial: null }];
  return table.parts.flatMap((name) => columnOf(table, name) ?? []);
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
  if (draw.chance(40)) return drawComposite(name, columns, draw);
  const key = { name: draw.pick(['id', 'id', 'Key']), kind: draw.pick(KEY_KINDS) };
  return { name, key, parts: [], partitioned: false, columns, relations: [], rows: [] };
}

function drawComposite(name: string, columns: readonly Column[], draw: Draw): Table {
  const part = (column: string, type: ColumnType, counts = false): Column => {
    return { name: column, type, nullable: false, initial: null, counts };
  };
  const parts = draw.pick([
    [part('code', 'text'), part('no', 'integer')],
    [part('its uuid', 'uuid'), part('day', 'date')],
    [part('day', 'date'), part('no', 'integer', true)],
    [part('a', 'integer'), part('b', 'text'), part('c', 'integer')],
  ]);
  return {
    ...bareTable(name, 'several'),
    parts: parts.map((column) => column.name),
    partitioned: draw.chance(50),
    columns: draw.chance(50) ? [...parts, ...columns] : [...columns, ...parts.toReversed()],
  };
}

interface RelationOptions {
  readonly required?: boolean;
  readonly sorted?: boolean;
  /** A column that another reference holds as well, and what it refers to. */
  readonly shared?: { readonly column: string; readonly of: string };
}

function relate(
  from: Table,
  name: string,
  target: Table,
  alias: string | null,
  { required = false, sorted = false, shared }: RelationOptions,
  draw: Draw,
): void {
  const constrained = draw.chance(75);
  const onDelete = draw.pick(['no action', 'no action', required ? 'cascade' : 'set null', 'cascade'] as const);
  const referenced = referencedColumns(target);
  const columns = referenced.map((column, position) => ({
    column: column.name === shared?.of ? shared.column : referenced.length === 1 ? name : `${name}_${position}`,
    referenced: column.name,
  }));
  for (const [position, { column }] of columns.entries())
    if (column !== shared?.column)
      from.columns.push({
        name: column,
        type: referenced[position]?.type ?? 'text',
        nullable: !required,
        initial: null,
      });
  const plain = { kind: 'one', name, target: target.name, columns, onDelete } as const;
  from.relations.push({ ...plain, constrained: constrained || alias === null });
  if (alias === null) return;
  const sortField = sorted ? 'sort' : null;
  if (sorted && !from.columns.some((column) => column.name === 'sort'))
    from.columns.push({ name: 'sort', type: 'integer', nullable: true, initial: null });
  const deselect = draw.pick(['nullify', 'delete'] as const);
  target.relations.push({
    kind: 'many',
    name: alias,
    target: from.name,
    foreignKey: name,
    columns,
    deselect,
    sortField,
  });
}

function drawManyToMany(entities: readonly Table[], draw: Draw): Table {
  const isKey = draw.chance(60);
  const junction = bareTable('left_right', isKey ? 'several' : draw.pick(['serial', 'uuid', 'always']));
  relate(junction, 'left_id', draw.pick(entities), 'links', { sorted: true, required: isKey }, draw);
  relate(junction, 'right_id', draw.pick(entities), draw.chance(60) ? 'linked' : null, { required: isKey }, draw);
  return isKey ? keyedBy(junction, [], draw) : junction;
}

/** Like the lines of an order. */
function drawLines(parent: Table, draw: Draw): Table {
  const lines = bareTable('lines', 'several');
  relate(lines, 'of', parent, 'its lines', { required: true }, draw);
  return keyedBy(lines, [{ name: 'line', type: 'integer', nullable: false, initial: null }], draw);
}

/** By its references, and other columns. */
function keyedBy(table: Table, others: readonly Column[], draw: Draw): Table {
  const held = table.relations.flatMap((relation) => (relation.kind === 'one' ? relation.columns : []));
  const names = [...held.map(({ column }) => column), ...others.map(({ name }) => name)];
  const parts = draw.chance(50) ? names : names.toReversed();
  return { ...table, parts, partitioned: draw.chance(30), columns: [...table.columns, ...others] };
}

/** Whose two references share a column, as in a database of several tenants. */
function drawTickets(entities: readonly Table[], draw: Draw): Table[] {
  const shareable = (table: Table): Column[] =>
    table.parts.flatMap((name) => columnOf(table, name) ?? []).filter((column) => !column.counts);
  const targets = entities.filter(({ parts }) => parts.length > 0);
  if (targets.length === 0) return [];
  const [first, second] = [draw.pick(targets), draw.pick(targets)];
  const pairs = shareable(first).flatMap((one) =>
    shareable(second).flatMap((other) => (one.type === other.type ? [{ one, other }] : [])),
  );
  if (pairs.length === 0) return [];
  const { one, other } = draw.pick(pairs);
  const tickets = bareTable('tickets', 'serial');
  relate(tickets, 'first', first, draw.chance(60) ? 'tickets' : null, {}, draw);
  const column = `first_${first.parts.indexOf(one.name)}`;
  relate(
    tickets,
    'second',
    second,
    draw.chance(60) ? 'more tickets' : null,
    { shared: { column, of: other.name } },
    draw,
  );
  return [tickets];
}

/** What becomes null where the reference comes to lead nowhere: what no other reference holds. */
export function ownColumns({ relations }: Table, relation: One | Many): Pairs {
  const name = relation.kind === 'one' ? relation.name : relation.foreignKey;
  const others = relations.flatMap((each) => (each.kind === 'one' && each.name !== name ? each.columns : []));
  const own = relation.columns.filter(({ column }) => !others.some((other) => other.column === column));
  return own.length > 0 ? own : relation.columns;
}

/** Can be read, and never written. */
function drawLog(about: Table, draw: Draw): Table {
  const log = bareTable('log', 'none');
  relate(log, 'about', about, 'logs', {}, draw);
  return log;
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
  const key = { name: kind === 'several' || kind === 'none' ? '' : 'id', kind };
  return { name, key, parts: [], partitioned: false, columns: [label], relations: [], rows: [] };
}

function drawRows(table: Table, tables: readonly Table[], draw: Draw): Row[] {
  const place = tables.indexOf(table);
  return draw.repeat(3, 9, (position) => {
    const row: Row = table.key.name === '' ? {} : { [table.key.name]: firstKey(table, place, position + 1) };
    for (const column of table.columns)
      row[column.name] = isPart(table, column.name)
        ? firstPart(column, place, position + 1, draw)
        : firstValue(column, `${place}-${position}`, draw);
    return row;
  });
}

function firstKey(table: Table, place: number, number: number): Value {
  const type = keyTypeOf(table);
  if (type === 'integer') return number;
  return type === 'text' ? `key ${number}` : makeUuid(place * 100 + number);
}

/** Few, so that rows have parts in common; the number alone tells them apart where nothing else does. */
function firstPart({ name, type }: Column, place: number, number: number, draw: Draw): Value {
  if (type === 'uuid') return makeUuid(place * 100 + draw.integer(1, 3));
  if (type === 'date') return draw.pick(['2024-02-29', '1999-12-31']);
  if (type === 'text') return draw.pick(['a', 'b~', '\\', '', 'a~b']);
  return name === 'no' || name === 'line' || name === 'a' ? number : draw.integer(1, 3);
}

export function makeUuid(number: number): string {
  return `0badcafe-0000-4000-8000-${number.toString(16).padStart(12, '0')}`;
}

function firstValue(column: Column, label: string, draw: Draw): Value {
  if (column.name === 'label') return `first ${label}`;
  if (column.nullable && draw.chance(20)) return null;
  if (column.type === 'integer') return draw.integer(1, 20);
  if (column.type === 'date') return '2024-02-29';
  return column.type === 'boolean' ? draw.chance(50) : draw.pick(['a', 'b', '']);
}

function fillReferences(table: Table, tables: readonly Table[], draw: Draw): void {
  const rowsOf = (name: string): Row[] => tables.find((each) => each.name === name)?.rows ?? [];
  for (const relation of table.relations) {
    for (const row of table.rows) {
      if (relation.kind === 'one') {
        const [first] = relation.columns;
        const nullable = columnOf(table, first?.column ?? '')?.nullable === true;
        const own = ownColumns(table, relation);
        const shared = relation.columns.filter((pair) => !own.includes(pair));
        const isSecond = table.relations.findIndex((each) => each.kind === 'one') < table.relations.indexOf(relation);
        const fitting = rowsOf(relation.target).filter(
          (target) => !isSecond || shared.every(({ column, referenced }) => row[column] === target[referenced]),
        );
        const held = fitting.length === 0 || (nullable && draw.chance(25)) ? null : draw.pick(fitting);
        for (const { column, referenced } of isSecond ? own : relation.columns)
          row[column] = held?.[referenced] ?? null;
      }
      if (relation.kind === 'any') {
        const named = draw.pick(relation.targets);
        const target = tables.find(({ name }) => name === named) as Table;
        row[relation.collectionField] = target.name;
        row[relation.name] = String(keyOf(target, draw.pick(target.rows)));
      }
    }
  }
  table.rows = distinct(table, table.rows);
}

/** Parts of keys are drawn, and may come twice. */
function distinct(table: Table, rows: readonly Row[]): Row[] {
  if (table.key.kind === 'none') return [...rows];
  return [...new Map(rows.map((row) => [String(keyOf(table, row)), row])).values()];
}
