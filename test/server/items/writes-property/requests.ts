/**
 * Random writes: each kind of request, each form of each relation, to four levels and fifty rows. Most of them are right;
 * some name what is not there, contradict themselves, or do not fit. What is right and wrong about them is the oracle's to say.
 */
import type { Draw } from '../property/draw.js';
import {
  type Column,
  type ColumnType,
  columnOf,
  isPart,
  joinKey,
  keyOf,
  keyTypeOf,
  type Many,
  type Model,
  makeUuid,
  type One,
  ownColumns,
  type Relation,
  type Row,
  splitKey,
  type Table,
  tableNamed,
  type Value,
} from './model.js';
import type { State } from './oracle.js';

export type Payload = Readonly<Record<string, unknown>>;

export type Selected =
  | { readonly kind: 'keys'; readonly keys: readonly unknown[]; readonly bare: boolean }
  | { readonly kind: 'query'; readonly above: number; readonly limit: number | null };

export type WriteCase = { readonly table: string } & (
  | { readonly kind: 'create'; readonly items: readonly Payload[]; readonly many: boolean }
  | { readonly kind: 'one'; readonly key: string; readonly data: Payload }
  | { readonly kind: 'each'; readonly items: readonly Payload[] }
  | { readonly kind: 'same'; readonly selected: Selected; readonly data: Payload }
  | { readonly kind: 'delete'; readonly selected: Selected }
  /** New items that may meet those which exist, by their key. */
  | {
      readonly kind: 'conflict';
      readonly items: readonly Payload[];
      readonly many: boolean;
      readonly resolution: 'merge' | 'ignore';
    }
);

export interface Encoded {
  readonly method: string;
  readonly path: string;
  readonly body: string | null;
}

export function encodeWrite(model: Model, write: WriteCase): Encoded {
  const table = tableNamed(model, write.table);
  const { key } = table;
  const path = `/items/${encodeURIComponent(write.table)}`;
  const names = [key.name, ...table.parts].filter((name) => name !== '').map(encodeURIComponent);
  const shown = `?fields=${['label', ...names].join()}`;
  switch (write.kind) {
    case 'conflict': {
      const body = JSON.stringify(write.many ? write.items : write.items[0]);
      const conflict = `on_conflict=${names.toReversed().join()}&resolution=${write.resolution}`;
      return { method: 'POST', path: `${path}${shown}&${conflict}`, body };
    }
    case 'create':
      return { method: 'POST', path: path + shown, body: JSON.stringify(write.many ? write.items : write.items[0]) };
    case 'one':
      return {
        method: 'PATCH',
        path: `${path}/${encodeURIComponent(write.key)}${shown}`,
        body: JSON.stringify(write.data),
      };
    case 'each':
      return { method: 'PATCH', path: path + shown, body: JSON.stringify(write.items) };
    case 'same':
      return {
        method: 'PATCH',
        path: path + shown,
        body: JSON.stringify({ ...selectionBody(write.selected, key.name), data: write.data }),
      };
    case 'delete': {
      const { selected } = write;
      if (selected.kind === 'keys' && selected.bare && selected.keys.length === 1)
        return { method: 'DELETE', path: `${path}/${encodeURIComponent(String(selected.keys[0]))}`, body: null };
      const body = selected.kind === 'keys' && selected.bare ? selected.keys : selectionBody(selected, key.name);
      return { method: 'DELETE', path, body: JSON.stringify(body) };
    }
  }
}

function selectionBody(selected: Selected, key: string): Payload {
  if (selected.kind === 'keys') return { keys: selected.keys };
  const filter = { number: { _gt: selected.above } };
  return { query: selected.limit === null ? { filter } : { filter, sort: [key], limit: selected.limit } };
}

export function drawWrite(model: Model, state: State, number: number, draw: Draw): WriteCase {
  return new Writer(model, state, number, draw).write();
}

const DEEPEST = 4;
const MOST_ROWS = 50;

class Writer {
  readonly #model: Model;
  readonly #state: State;
  readonly #draw: Draw;
  readonly #number: number;
  /** Rows that the payload names, and lists it gives for them: naming one again is meant, not accident. */
  readonly #named = new Set<string>();
  readonly #listed = new Set<string>();
  /** Whether something wrong may be put in. */
  readonly #faulty: boolean;
  #rows = 0;
  #labels = 0;

  constructor(model: Model, state: State, number: number, draw: Draw) {
    this.#model = model;
    this.#state = state;
    this.#number = number;
    this.#draw = draw;
    this.#faulty = draw.chance(20);
  }

  write(): WriteCase {
    const draw = this.#draw;
    const table = draw.pick(this.#model.tables);
    const kind = draw.pick([
      'create',
      'create',
      'create',
      'one',
      'one',
      'one',
      'each',
      'each',
      'same',
      'delete',
      'conflict',
    ] as const);
    switch (kind) {
      case 'conflict': {
        const many = draw.chance(70);
        const items = draw.repeat(many ? 0 : 1, many ? 4 : 1, () => this.#met(table));
        return { kind, table: table.name, many, items, resolution: draw.pick(['merge', 'merge', 'ignore']) };
      }
      case 'create': {
        const many = draw.chance(50);
        return {
          kind,
          table: table.name,
          many,
          items: draw.repeat(many ? 0 : 1, many ? 6 : 1, () => this.#created(table, 1)),
        };
      }
      case 'one': {
        const key = String(this.#existing(table) ?? this.#unknown(table)) || 'none';
        const same = draw.chance(10) ? this.#keyFields(table, key) : {};
        return { kind, table: table.name, key, data: { ...same, ...this.#object(table, key, 1, null) } };
      }
      case 'each':
        return { kind, table: table.name, items: draw.repeat(0, 5, () => this.#changed(table, 1, null)) };
      case 'same': {
        const selected = this.#selected(table);
        return { kind, table: table.name, selected, data: this.#object(table, null, 1, null) };
      }
      case 'delete':
        return { kind, table: table.name, selected: this.#selected(table) };
    }
  }

  #selected(table: Table): Selected {
    const draw = this.#draw;
    const hasNumber = table.columns.some(({ name }) => name === 'number');
    if (hasNumber && draw.chance(30)) {
      const isNumber = table.parts.length === 0 && keyTypeOf(table) === 'integer';
      const limit = isNumber && draw.chance(40) ? draw.integer(1, 3) : null;
      return { kind: 'query', above: draw.integer(14, 22), limit };
    }
    const keys: Value[] = draw.repeat(1, 3, () => this.#existing(table)).filter((key) => key !== null);
    if (table.key.kind === 'none') keys.push('none');
    if (this.#fault(15)) keys.push(this.#unknown(table));
    return { kind: 'keys', keys: [...new Set(keys)], bare: draw.chance(50) };
  }

  /** Values alone, of an item that exists or of a new one. */
  #met(table: Table): Payload {
    const draw = this.#draw;
    const known = draw.chance(60) ? this.#existing(table) : null;
    const isMade = table.key.kind !== 'several' && table.key.kind !== 'text' && draw.chance(30);
    const key = known ?? (isMade ? null : this.#unknown(table));
    const payload: Record<string, unknown> = {
      ...(key === null ? {} : this.#keyFields(table, key)),
      label: this.#label(),
    };
    for (const column of table.columns) {
      if (column.name === 'label' || isPart(table, column.name)) continue;
      const isNeeded = !column.nullable && column.initial === null;
      const relation = table.relations.find(
        (each) => each.kind === 'one' && each.columns.some((pair) => pair.column === column.name),
      );
      if (isAny(table, column.name) || !draw.chance(isNeeded ? 97 : 35)) continue;
      if (relation?.kind !== 'one') payload[column.name] = this.#scalar(column);
      else if (relation.columns.length === 1)
        payload[column.name] = this.#anyExisting(tableNamed(this.#model, relation.target));
      else if (draw.chance(30)) Object.assign(payload, this.#heldColumns(relation));
    }
    return payload;
  }

  /** What an existing row is referred to by. */
  #heldColumns(relation: One): Payload {
    const rows = [...(this.#state.get(relation.target)?.values() ?? [])];
    const row = rows.length > 0 ? this.#draw.pick(rows) : null;
    return Object.fromEntries(relation.columns.map(({ column, referenced }) => [column, row?.[referenced] ?? null]));
  }

  /** The fields that name the item with the key. */
  #keyFields(table: Table, key: Value): Payload {
    if (table.key.kind === 'none') return {};
    if (table.key.kind !== 'several') return { [table.key.name]: key };
    const texts = splitKey(table, key) ?? [String(key)];
    return Object.fromEntries(
      texts.map((text, position) => {
        const name = table.parts[position] ?? '';
        return [name, columnOf(table, name)?.type === 'integer' && /^\d+$/.test(text) ? Number(text) : text];
      }),
    );
  }

  /** The parts of a new key that its place does not say: references lead to items that exist, or to new ones. */
  #newParts(table: Table, depth: number, foreignKey: string | null): Payload {
    const draw = this.#draw;
    const payload: Record<string, unknown> = {};
    const fresh = this.#keyFields(table, this.#unknown(table, false));
    const done = new Set<string>();
    for (const relation of table.relations) {
      if (relation.kind !== 'one' || !relation.columns.some(({ column }) => isPart(table, column))) continue;
      for (const { column } of relation.columns) done.add(column);
      if (relation.name === foreignKey) continue;
      if (relation.columns.length > 1 && draw.chance(40)) Object.assign(payload, this.#heldColumns(relation));
      else payload[relation.name] = this.#one(relation.target, depth, false);
    }
    for (const name of table.parts) {
      const isLeftOut = columnOf(table, name)?.counts ? draw.chance(85) : this.#fault(8);
      if (!done.has(name) && !isLeftOut) payload[name] = fresh[name];
    }
    return payload;
  }

  #created(table: Table, depth: number, foreignKey: string | null = null): Payload {
    const { name, kind } = table.key;
    if (kind === 'none') return { label: this.#label() };
    if (kind === 'several') {
      const parts = this.#newParts(table, depth, foreignKey);
      return { ...parts, label: this.#label(), ...this.#object(table, null, depth, foreignKey, true) };
    }
    const supplied = kind === 'text' ? !this.#fault(10) : this.#draw.chance(15);
    const key = supplied ? { [name]: this.#fault(10) ? this.#existing(table) : this.#unknown(table) } : {};
    return { ...key, label: this.#label(), ...this.#object(table, null, depth, foreignKey, true) };
  }

  #changed(table: Table, depth: number, foreignKey: string | null): Payload {
    const key = this.#existing(table);
    const given = this.#fault(8) || key === null ? this.#unknown(table) : key;
    const fields = Object.entries(this.#keyFields(table, given));
    // What the place says may be left out.
    const named = fields.filter(([name]) => !this.#isImplied(table, name, foreignKey) || this.#draw.chance(20));
    return { ...Object.fromEntries(named), ...this.#object(table, given, depth, foreignKey) };
  }

  #isImplied(table: Table, name: string, foreignKey: string | null): boolean {
    const relation = table.relations.find((each) => each.kind === 'one' && each.name === foreignKey);
    return relation?.kind === 'one' && relation.columns.some(({ column }) => column === name);
  }

  /** Fields of a row; `foreignKey` is set by the parent. */
  #object(table: Table, key: Value, depth: number, foreignKey: string | null, isNew = false): Payload {
    this.#rows++;
    const draw = this.#draw;
    const payload: Record<string, unknown> = {};
    for (const column of table.columns) {
      if (column.name === 'label' || column.name === foreignKey) continue;
      if (isPart(table, column.name) || isHeld(table, column.name)) continue;
      const relation = table.relations.find((each) => each.name === column.name);
      const isNeeded = isNew && !column.nullable && column.initial === null;
      if (!draw.chance(isNeeded ? (this.#faulty ? 90 : 100) : 35)) continue;
      if (relation?.kind === 'one') payload[column.name] = this.#one(relation.target, depth, column.nullable);
      else if (relation?.kind !== 'any' && column.name !== 'collection') payload[column.name] = this.#scalar(column);
    }
    for (const relation of table.relations) {
      if (relation.kind === 'any' && draw.chance(60)) this.#any(payload, relation, depth);
      if (relation.kind !== 'one' || relation.columns.length === 1 || relation.name === foreignKey) continue;
      if (relation.columns.some(({ column }) => isPart(table, column))) continue;
      const nullable = columnOf(table, relation.columns[0]?.column ?? '')?.nullable === true;
      if (!draw.chance(isNew && !nullable ? (this.#faulty ? 90 : 100) : 35)) continue;
      const drawn = this.#agreeing(table, relation, payload, depth, foreignKey, nullable);
      if (drawn !== undefined) payload[relation.name] = drawn;
    }
    for (const relation of table.relations) {
      if (relation.kind !== 'many' || depth >= DEEPEST || this.#rows >= MOST_ROWS || !draw.chance(30)) continue;
      const place = `${table.name}/${key}/${relation.name}`;
      if (key !== null && this.#listed.has(place)) continue;
      this.#listed.add(place);
      payload[relation.name] = this.#many(relation, depth + 1, key);
    }
    if (!isNew && table.parts.length > 0 && this.#fault(5)) payload[draw.pick(table.parts)] = draw.pick([null, 5, 'x']);
    if (this.#fault(3)) payload[draw.pick(['nothing', '__proto__x', 'constructor', 'toString'])] = 1;
    return payload;
  }

  #one(target: string, depth: number, nullable: boolean): unknown {
    const draw = this.#draw;
    const table = tableNamed(this.#model, target);
    if (nullable && draw.chance(15)) return null;
    const canNest = depth < DEEPEST && this.#rows < MOST_ROWS;
    if (this.#fault(5)) return this.#unknown(table);
    const existing = this.#anyExisting(table);
    if (existing !== null && (!canNest || draw.chance(40))) return existing;
    if (!canNest) return nullable ? null : existing;
    return this.#related(table, depth + 1);
  }

  /** What agrees, mostly, with the reference of the payload that holds one of its columns as well. */
  #agreeing(
    table: Table,
    relation: One,
    payload: Payload,
    depth: number,
    foreignKey: string | null,
    nullable: boolean,
  ): unknown {
    const draw = this.#draw;
    const target = tableNamed(this.#model, relation.target);
    const own = ownColumns(table, relation);
    const shared = relation.columns.find((pair) => !own.includes(pair));
    const other = table.relations.find(
      (each) =>
        each.kind === 'one' && each !== relation && each.columns.some(({ column }) => column === shared?.column),
    );
    if (shared && other?.name === foreignKey && draw.chance(85)) return undefined;
    const said = other?.kind === 'one' && shared ? this.#saidOf(other, shared.column, payload[other.name]) : undefined;
    if (!shared || said === undefined || draw.chance(10)) return this.#one(relation.target, depth, nullable);
    const rows = [...(this.#state.get(target.name)?.values() ?? [])].filter(
      (row) => String(row[shared.referenced]) === String(said),
    );
    if (rows.length > 0 && draw.chance(50)) return keyOf(target, draw.pick(rows));
    if (depth >= DEEPEST || this.#rows >= MOST_ROWS) return undefined;
    return { ...this.#created(target, depth + 1), [shared.referenced]: said };
  }

  /** What a reference that was drawn says of one of its columns. */
  #saidOf({ target, columns }: One, name: string, value: unknown): unknown {
    const position = columns.findIndex(({ column }) => column === name);
    if (value === null || value === undefined) return undefined;
    if (typeof value !== 'object') return splitKey(tableNamed(this.#model, target), value)?.[position];
    return (value as Payload)[columns[position]?.referenced ?? ''];
  }

  #related(table: Table, depth: number): Payload {
    const draw = this.#draw;
    if (draw.chance(50)) return this.#created(table, depth);
    const key = this.#existing(table);
    if (key !== null && draw.chance(15)) return this.#keyFields(table, key);
    return key !== null
      ? { ...this.#keyFields(table, key), ...this.#object(table, key, depth, null) }
      : this.#created(table, depth);
  }

  #any(payload: Record<string, unknown>, relation: Extract<Relation, { kind: 'any' }>, depth: number): void {
    const draw = this.#draw;
    const name = draw.pick(relation.targets);
    const table = tableNamed(this.#model, name);
    const nests = depth < DEEPEST && this.#rows < MOST_ROWS && draw.chance(70);
    payload[relation.collectionField] = name;
    payload[relation.name] = nests ? this.#related(table, depth + 1) : this.#anyExisting(table);
    if (!nests || !this.#fault(10)) return;
    if (draw.chance(50)) delete payload[relation.collectionField];
    else payload[relation.collectionField] = 'elsewhere';
  }

  #many(relation: Many, depth: number, parent: Value): unknown {
    const draw = this.#draw;
    const table = tableNamed(this.#model, relation.target);
    if (this.#fault(5)) return draw.pick(['text', 5, { create: {} }, { added: [] }, { update: [{}] }, { create: [5] }]);
    if (draw.chance(6)) return null;
    if (table.key.kind === 'none' && !this.#fault(50)) return [{ label: this.#label() }];
    if (draw.chance(50)) return draw.repeat(0, 4, () => this.#member(table, relation, depth, parent));
    const form: Record<string, unknown> = {};
    const isFull = (): boolean => this.#rows >= MOST_ROWS;
    if (draw.chance(70))
      form['create'] = draw.repeat(0, isFull() ? 0 : 3, () => this.#created(table, depth, relation.foreignKey));
    if (draw.chance(50))
      form['update'] = draw.repeat(0, isFull() ? 0 : 3, () => this.#changed(table, depth, relation.foreignKey));
    if (draw.chance(40))
      form['delete'] = draw.repeat(0, 2, () => this.#existing(table, parent, relation)).filter((key) => key !== null);
    return form;
  }

  #member(table: Table, relation: Many, depth: number, parent: Value): unknown {
    const draw = this.#draw;
    const key = this.#rows >= MOST_ROWS || draw.chance(60) ? this.#existing(table, parent, relation) : null;
    if (this.#fault(4)) return this.#unknown(table);
    if (key === null) return this.#created(table, depth, draw.chance(90) ? relation.foreignKey : null);
    if (draw.chance(50)) return key;
    const fields = Object.entries(this.#keyFields(table, key));
    const named = fields.filter(([name]) => !this.#isImplied(table, name, relation.foreignKey));
    return { ...Object.fromEntries(named), ...this.#object(table, key, depth, relation.foreignKey) };
  }

  #scalar({ type, nullable }: Column): unknown {
    const draw = this.#draw;
    if (this.#fault(3)) return draw.pick([{ a: 1 }, [1], ...(type === 'text' ? [] : ['abc', 4.5, 3_000_000_000])]);
    if (nullable ? draw.chance(15) : this.#fault(5)) return null;
    if (type === 'integer') return draw.pick([draw.integer(-5, 25), String(draw.integer(0, 25))]);
    if (type === 'boolean') return draw.chance(50);
    if (type === 'date') return draw.pick(['2024-02-29', '1999-12-31']);
    return draw.pick(['', 'text', "quo'te", 'back\\slash "x"', '漢 ✓', `{"a":1}`, 12, true]);
  }

  /** A row that the payload does not name yet, mostly; one that the parent has, half of the time. */
  #existing(table: Table, parent: Value = null, relation: Many | null = null): Value {
    if (table.key.kind === 'none') return null;
    const draw = this.#draw;
    const rows = [...(this.#state.get(table.name)?.values() ?? [])];
    const own =
      relation === null || parent === null ? [] : rows.filter((row) => referredBy(relation, row) === String(parent));
    // What is a part of the key stays with its parent.
    const isBound = relation?.columns.some(({ column }) => isPart(table, column)) === true;
    const pool = own.length > 0 && draw.chance(isBound ? 95 : 60) ? own : isBound && draw.chance(90) ? [] : rows;
    const free = draw.chance(3) ? pool : pool.filter((row) => !this.#named.has(`${table.name}/${keyOf(table, row)}`));
    if (free.length === 0) return null;
    const key = keyOf(table, draw.pick(free));
    this.#named.add(`${table.name}/${key}`);
    return key;
  }

  #anyExisting(table: Table): Value {
    const keys = [...(this.#state.get(table.name)?.values() ?? [])].map((row) => keyOf(table, row));
    return keys.length === 0 ? null : this.#draw.pick(keys);
  }

  /** A key that no row has; those that count up are far ahead of what the database would give. */
  #unknown(table: Table, mayMisfit = true): Value {
    const fresh = this.#number * 100 + this.#labels++;
    if (table.key.kind === 'none') return 'none';
    if (table.key.kind === 'several') {
      if (mayMisfit && this.#fault(10)) return this.#draw.pick(['misfit', '1~', '~~~', 'x~y', 'a\\', '']);
      return joinKey(table.parts.map((name) => this.#freshPart(columnOf(table, name)?.type ?? 'text', fresh)));
    }
    const type = keyTypeOf(table);
    if (this.#fault(5) && type !== 'text') return 'misfit';
    if (type === 'text') return `new ${fresh}`;
    if (type === 'uuid') return makeUuid(0x10000 + fresh);
    const keys = [...(this.#state.get(table.name)?.values() ?? [])].map((row) => Number(row[table.key.name]));
    return Math.max(0, ...keys) + 100 + this.#labels;
  }

  #freshPart(type: ColumnType, fresh: number): Value {
    const draw = this.#draw;
    if (type === 'integer') return draw.chance(50) ? 100_000 + fresh : draw.integer(1, 4);
    if (type === 'uuid') return makeUuid(0x10000 + fresh);
    return type === 'date' ? draw.pick(['2024-02-29', '2000-01-01']) : draw.pick([`new ~ ${fresh}`, 'a', '\\']);
  }

  #label(): string {
    return `${this.#number}.${this.#labels++}`;
  }

  #fault(percent: number): boolean {
    return this.#faulty && this.#draw.chance(percent);
  }
}

/** Whether the column holds a part of a reference of several columns. */
function isHeld({ relations }: Table, name: string): boolean {
  return relations.some(
    (each) => each.kind === 'one' && each.columns.length > 1 && each.columns.some(({ column }) => column === name),
  );
}

/** Whether the column says where a relation to several tables leads. */
function isAny({ relations }: Table, name: string): boolean {
  return relations.some((each) => each.kind === 'any' && [each.name, each.collectionField].includes(name));
}

/** The key of the row that a row of a list refers to. */
function referredBy({ columns }: Many, row: Row): string {
  const values = columns.map(({ column }) => row[column] ?? null);
  return values.length > 1 ? joinKey(values) : String(values[0]);
}
