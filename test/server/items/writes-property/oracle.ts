/**
 * What a write has to do, row by row on rows in memory. It knows nothing of statements: a payload is walked from its root,
 * each object is applied as it is met, and what leaves a relation leaves it at the end. Keys that the database makes are
 * stand-ins here. All that is wrong with a payload is collected, because which of it is reported is not settled.
 */
import {
  type Column,
  columnOf,
  isPart,
  joinKey,
  keyOf,
  type Many,
  type Model,
  type One,
  ownColumns,
  type Row,
  relationNamed,
  splitKey,
  type Table,
  tableNamed,
  type Value,
} from './model.js';
import { coerce, isObject, keyFits, readKey, readParts } from './oracle-values.js';
import type { Payload, WriteCase } from './requests.js';

/** Rows by the text of their key, by table. */
export type State = ReadonlyMap<string, Map<string, Row>>;

export interface Outcome {
  /** Statuses of which one has to be the answer; none where the write succeeds. */
  readonly errors: ReadonlySet<number>;
  /** The order in which PostgreSQL checks and acts decides whether it refuses this or does it. */
  readonly eitherWay: boolean;
  /** A new item has the key of one that a list deletes: 400, unless PostgreSQL deletes the old one first. */
  readonly replaces: boolean;
  readonly after: State;
  /** Keys of the items the answer shows, in its order; null where nothing is shown or the order is open. */
  readonly shown: readonly Value[] | null;
}

export function isStandIn(value: Value | undefined): boolean {
  return typeof value === 'string' && value.startsWith('made:');
}

export function applyWrite(model: Model, before: State, write: WriteCase): Outcome {
  const oracle = new Oracle(model, before);
  return oracle.run(write);
}

interface Release {
  readonly relation: Many;
  /** What the columns hold that refer to the parent. */
  readonly held: Row;
  /** Null for all that the list does not name. */
  readonly keys: ReadonlySet<string> | null;
}

class Oracle {
  readonly #model: Model;
  readonly #before: State;
  readonly #after: State;
  readonly #errors = new Set<number>();
  readonly #assigned = new Map<string, Value>();
  readonly #releases: Release[] = [];
  readonly #deleted = new Map<string, Set<string>>();
  /** Related objects that a change of several items makes only once. */
  readonly #shared = new Map<object, Value>();
  /** Keys of items that are not there: what would refer to them is not wrong for a reason of its own. */
  readonly #missing = new Set<string>();
  /** Rows with a key of several columns that are new: what refers to them waits for them. */
  readonly #created = new Set<string>();
  readonly #upserted = new Set<string>();
  /** New items, and those that lists delete by their keys: none may be both. */
  readonly #newItems = new Set<string>();
  readonly #removed = new Set<string>();
  /** Tables whose sequence fills a part of a new key, and those whose part the payload says: the one may come upon the other. */
  readonly #countedParts = new Set<string>();
  readonly #statedParts = new Set<string>();
  #eitherWay = false;
  #replaces = false;
  /** Keys of new items that other items have. */
  readonly #taken = new Set<string>();
  #made = 0;

  constructor(model: Model, before: State) {
    this.#model = model;
    this.#before = before;
    this.#after = new Map([...before].map(([name, rows]) => [name, copyRows(rows)]));
  }

  run(write: WriteCase): Outcome {
    const shown = this.#apply(write, tableNamed(this.#model, write.table));
    if ([...this.#newItems].some((item) => this.#removed.has(item))) this.#errors.add(400);
    if ([...this.#countedParts].some((name) => this.#statedParts.has(name))) this.#eitherWay = true;
    for (const release of this.#releases) this.#release(release);
    this.#followDeletions();
    this.#checkRows();
    return { errors: this.#errors, eitherWay: this.#eitherWay, replaces: this.#replaces, after: this.#after, shown };
  }

  #apply(write: WriteCase, table: Table): Value[] | null {
    if (table.key.kind === 'none') {
      this.#refuseKeyless();
      return null;
    }
    switch (write.kind) {
      case 'conflict':
        return this.#meet(table, write);
      case 'create':
        return write.items.map((item) => this.#create(table, item));
      case 'each':
        return write.items.map((item) => this.#update(table, this.#named(table, item, {}), item));
      case 'same': {
        for (const key of this.#selected(write, table)) this.#update(table, key, write.data, write.data);
        return null;
      }
      case 'one':
        return [this.#update(table, write.key, write.data)];
      case 'delete':
        for (const key of this.#selected(write, table)) {
          const found = keyFits(table, key) ? this.#rows(table).get(String(key)) : undefined;
          if (found) this.#delete(table, String(key));
          else this.#errors.add(403);
        }
        return null;
    }
  }

  #selected(write: Extract<WriteCase, { kind: 'same' | 'delete' }>, table: Table): readonly unknown[] {
    const { selected } = write;
    if (selected.kind === 'keys') return [...new Set(selected.keys)];
    const rows = [...this.#rows(table).values()].filter((row) => {
      const number = row['number'] ?? null;
      return typeof number === 'number' && number > selected.above;
    });
    const keys = rows.map((row) => keyOf(table, row));
    if (selected.limit === null) return keys;
    return keys.sort((one, other) => Number(one) - Number(other)).slice(0, selected.limit);
  }

  /** Items that exist are found by their key, and changed or left alone. */
  #meet(table: Table, { items, resolution }: Extract<WriteCase, { kind: 'conflict' }>): Value[] {
    const met = new Set<string>();
    return items.flatMap((item): Value[] => {
      const named = this.#named(table, item, {});
      if (named === null) {
        if (table.key.kind !== 'several') return [this.#create(table, item)];
        this.#errors.add(400);
        return [];
      }
      if (!keyFits(table, named)) {
        this.#errors.add(403);
        return [];
      }
      const key = readKey(table, named);
      if (met.has(String(key))) this.#errors.add(400);
      met.add(String(key));
      const exists = this.#rows(table).has(String(key));
      if (exists && resolution === 'ignore') {
        this.#checkOnly(table, item);
        return [];
      }
      if (!exists) this.#insert(table, key);
      this.#walk(table, key, item);
      return [key];
    });
  }

  /** What is left alone in the end has to be right all the same. */
  #checkOnly(table: Table, item: Payload): void {
    for (const { name, type, nullable, initial } of table.columns) {
      const value = item[name];
      if (!nullable && (value === null || (value === undefined && initial === null))) this.#errors.add(400);
      try {
        if (value !== undefined) coerce(type, value);
      } catch {
        this.#errors.add(400);
      }
    }
    for (const name of Object.keys(item)) if (name !== table.key.name && !columnOf(table, name)) this.#errors.add(400);
  }

  #refuseKeyless(): null {
    this.#errors.add(400);
    return this.#refuse(403);
  }

  /** The key of the item that a payload names; `implied` is what its place says of it. */
  #named(table: Table, payload: Payload, implied: Row): unknown {
    if (table.key.kind !== 'several') return payload[table.key.name] ?? null;
    const values = table.parts.map((name) => implied[name] ?? this.#partNamed(table, name, payload[name], payload));
    return values.some((value) => value === null || value === undefined) ? null : joinKey(values as Value[]);
  }

  #partNamed(table: Table, name: string, value: unknown, payload: Payload): unknown {
    if (value === undefined) return this.#partReferred(table, name, payload);
    if (value === null || typeof value !== 'object') return value;
    const relation = relationNamed(table, name);
    const found = relation?.kind === 'one' ? (value as Payload)[relation.columns[0]?.referenced ?? ''] : null;
    return found !== null && typeof found === 'object' ? null : found;
  }

  /** By the field of a reference that several columns hold. */
  #partReferred(table: Table, name: string, payload: Payload): unknown {
    for (const relation of table.relations) {
      const columns = relation.kind === 'one' && relation.columns.length > 1 ? relation.columns : [];
      const position = columns.findIndex(({ column }) => column === name);
      const value = position < 0 ? null : (payload[relation.name] ?? null);
      if (relation.kind !== 'one' || value === null) continue;
      const found = isObject(value)
        ? value[columns[position]?.referenced ?? '']
        : splitKey(tableNamed(this.#model, relation.target), value)?.[position];
      return found !== null && typeof found === 'object' ? null : found;
    }
    return null;
  }

  #create(table: Table, payload: Payload, implied: Row = {}): Value {
    if (table.key.kind === 'several') return this.#createByParts(table, payload, implied);
    const given = payload[table.key.name] ?? null;
    if (given !== null && !keyFits(table, given))
      return this.#refuse(isObject(given) || Array.isArray(given) || typeof given === 'boolean' ? 400 : 403);
    if (given !== null && this.#rows(table).has(String(given))) this.#refuseTaken(table, String(given));
    if (given === null && table.key.kind === 'text') this.#errors.add(400);
    const key = given === null ? `made:${this.#made++}` : readKey(table, given);
    this.#newItems.add(`${table.name}/${key}`);
    this.#insert(table, key);
    this.#walk(table, key, payload);
    return key;
  }

  #refuseTaken(table: Table, key: string): void {
    this.#errors.add(400);
    this.#taken.add(`${table.name}/${key}`);
  }

  /** The parts are columns like others: what they refer to comes first. */
  #createByParts(table: Table, payload: Payload, implied: Row): Value {
    const values: Row = { ...implied };
    const done = new Set(Object.keys(implied));
    for (const relation of table.relations) {
      const isGiven = relation.kind === 'one' && relation.columns.length > 1 && payload[relation.name] !== undefined;
      if (!isGiven || !relation.columns.some(({ column }) => isPart(table, column))) continue;
      const held = this.#composed(relation, payload[relation.name]);
      for (const [position, { column }] of relation.columns.entries()) values[column] = held[position] ?? null;
      done.add(relation.name);
    }
    for (const name of table.parts) {
      const given = payload[name];
      if (values[name] === undefined && given !== undefined) values[name] = this.#partValue(table, name, given);
      if (columnOf(table, name)?.counts) {
        (values[name] === undefined ? this.#countedParts : this.#statedParts).add(table.name);
        values[name] ??= `made:${this.#made++}`;
      }
      if ((values[name] ?? null) === null) {
        this.#errors.add(400);
        values[name] = `made:${this.#made++}`;
      }
      done.add(name);
    }
    const key = joinKey(table.parts.map((name) => values[name] ?? null));
    // One that the payload has named before, as an item that exists, cannot be new.
    if (this.#rows(table).has(key) || this.#missing.has(key)) this.#refuseTaken(table, key);
    else this.#rows(table).set(key, { ...blankRow(table), ...values });
    this.#created.add(`${table.name}/${key}`);
    this.#newItems.add(`${table.name}/${key}`);
    for (const name of Object.keys(values))
      this.#assigned.set(JSON.stringify([table.name, key, name]), values[name] ?? null);
    this.#walk(table, key, without(payload, [...done]));
    return key;
  }

  #partValue(table: Table, name: string, value: unknown): Value {
    const relation = relationNamed(table, name);
    if (relation?.kind === 'one' && isObject(value)) return this.#related(relation.target, value);
    try {
      return coerce(columnOf(table, name)?.type ?? 'text', value);
    } catch {
      return this.#refuse(400);
    }
  }

  /** What a reference of several columns puts into them. */
  #composed(relation: One, value: unknown): Value[] {
    const target = tableNamed(this.#model, relation.target);
    const nothing = relation.columns.map(() => null);
    if (value === null) return nothing;
    if (isObject(value)) {
      const key = this.#shared.get(value) ?? this.#related(relation.target, value);
      this.#shared.set(value, key);
      const row = key === null ? undefined : this.#rows(target).get(String(key));
      return relation.columns.map(({ referenced }) => row?.[referenced] ?? null);
    }
    if (keyFits(target, value)) return readParts(target, value);
    this.#errors.add(400);
    return nothing;
  }

  /** A part of the key of a row cannot become another; of one that is not there, the key says what it would be. */
  #checkPart(table: Table, key: Value, name: string, value: Value): void {
    const row = this.#rows(table).get(String(key));
    const stated = keyFits(table, key) ? readParts(table, key)[table.parts.indexOf(name)] : undefined;
    const part = row ? row[name] : stated;
    if (part !== undefined && String(part) !== String(value)) this.#errors.add(400);
  }

  /** The item has to be there. */
  #update(table: Table, given: unknown, payload: Payload, sharing: Payload | null = null): Value {
    if (typeof given !== 'string' && typeof given !== 'number') return this.#refuse(400);
    const key = keyFits(table, given) ? readKey(table, given) : `made:${this.#made++}`;
    if (!this.#rows(table).has(String(key))) {
      this.#errors.add(403);
      this.#missing.add(String(key));
    }
    this.#refuseNew(table, key);
    this.#settleParts(table, key);
    this.#walk(table, key, payload, sharing);
    return key;
  }

  /** The item is changed, or made with its key. */
  #upsert(table: Table, given: unknown, payload: Payload): Value {
    if (typeof given !== 'string' && typeof given !== 'number') return this.#refuse(400);
    if (!keyFits(table, given)) return this.#refuse(403);
    const key = readKey(table, given);
    if (!this.#rows(table).has(String(key))) this.#insert(table, key);
    this.#upserted.add(`${table.name}/${key}`);
    this.#refuseNew(table, key);
    this.#settleParts(table, key);
    this.#walk(table, key, payload);
    return key;
  }

  /** Who names a row by its key says what the parts of it refer to. */
  #settleParts(table: Table, key: Value): void {
    for (const name of table.parts)
      this.#assigned.set(JSON.stringify([table.name, key, name]), this.#rows(table).get(String(key))?.[name] ?? null);
  }

  /** An item cannot be new in one place of the payload and exist in another. */
  #refuseNew(table: Table, key: Value): void {
    if (!this.#created.has(`${table.name}/${key}`)) return;
    this.#errors.add(400);
    this.#errors.add(403);
  }

  #insert(table: Table, key: Value): void {
    const row = blankRow(table);
    if (table.key.kind !== 'several') row[table.key.name] = key;
    else for (const [position, part] of readParts(table, key).entries()) row[table.parts[position] ?? ''] = part;
    this.#rows(table).set(String(key), row);
  }

  #walk(table: Table, key: Value, payload: Payload, sharing: Payload | null = null): void {
    for (const [name, value] of Object.entries(payload)) {
      if (name === table.key.name) continue;
      const relation = relationNamed(table, name);
      const column = columnOf(table, name);
      if (isPart(table, name)) this.#checkPart(table, key, name, this.#partValue(table, name, value));
      else if (relation?.kind === 'many') this.#many(table, key, relation, value);
      else if (relation?.kind === 'one' && relation.columns.length > 1) {
        const held = this.#composed(relation, value);
        const written = value === null ? ownColumns(table, relation) : relation.columns;
        for (const [position, pair] of relation.columns.entries()) {
          if (!written.includes(pair)) continue;
          const part = held[position] ?? null;
          if (isPart(table, pair.column)) this.#checkPart(table, key, pair.column, part);
          else this.#assign(table, key, pair.column, part);
        }
      } else if (relation && isObject(value)) {
        const known = sharing ? this.#shared.get(value) : undefined;
        const related =
          known ?? this.#related(relation.kind === 'one' ? relation.target : this.#anyTarget(relation, payload), value);
        if (sharing) this.#shared.set(value, related);
        this.#assign(table, key, name, relation.kind === 'one' || related === null ? related : String(related));
      } else if (column) this.#assignScalar(table, key, column, value);
      else this.#errors.add(400);
    }
  }

  #anyTarget(relation: Extract<Table['relations'][number], { kind: 'any' }>, payload: Payload): string | null {
    const name = payload[relation.collectionField];
    return typeof name === 'string' && relation.targets.includes(name) ? name : null;
  }

  #related(target: string | null, payload: Payload): Value {
    if (target === null) return this.#refuse(400);
    const table = tableNamed(this.#model, target);
    const key = this.#named(table, payload, {});
    return key === null ? this.#create(table, payload) : this.#upsert(table, key, payload);
  }

  /** What the columns of a child hold that refers to the row. */
  #held(parent: Table, key: Value, { columns }: Many): Row {
    const row = this.#rows(parent).get(String(key));
    // Of a row that is not there, what its key says.
    const said = !row && parent.parts.length > 0 && keyFits(parent, key) ? readParts(parent, key) : [];
    const partOf = (name: string): Value => row?.[name] ?? said[parent.parts.indexOf(name)] ?? key;
    return Object.fromEntries(
      columns.map(({ column, referenced }) => [column, parent.key.kind === 'several' ? partOf(referenced) : key]),
    );
  }

  #many(parent: Table, key: Value, relation: Many, value: unknown): void {
    const table = tableNamed(this.#model, relation.target);
    if (table.key.kind === 'none') return void this.#refuseKeyless();
    const held = this.#held(parent, key, relation);
    const isKnown = !this.#created.has(`${parent.name}/${key}`) && !Object.values(held).some(isStandIn);
    const implied = isKnown ? held : {};
    const link = (child: Value): void => {
      for (const [column, reference] of child === null ? [] : Object.entries(held)) {
        if (isPart(table, column)) this.#checkPart(table, child, column, reference);
        // It stays, even where there is nothing to write.
        if (isPart(table, column)) this.#assigned.set(JSON.stringify([table.name, child, column]), reference);
        else this.#assign(table, child, column, reference);
      }
    };
    // Rows may refer to a key that nobody has: whoever makes the item with it by an upsert says what is in its lists.
    const place = `${parent.name}/${key}`;
    const isNew = !this.#before.get(parent.name)?.has(String(key)) && !this.#upserted.has(place);
    if (value === null || Array.isArray(value)) {
      for (const entry of (value ?? []) as unknown[]) link(this.#member(table, relation, entry, held, implied));
      if (!isNew) this.#releases.push({ relation, held, keys: null });
      return;
    }
    if (!isObject(value)) return void this.#errors.add(400);
    const { create = [], update = [], delete: removed = [], ...rest } = value;
    if (!Array.isArray(create) || !Array.isArray(update) || !Array.isArray(removed) || Object.keys(rest).length > 0)
      return void this.#errors.add(400);
    const last = this.#last(table, relation, key);
    for (const [position, entry] of create.entries()) {
      if (!isObject(entry)) this.#errors.add(400);
      else {
        const child = this.#create(table, withoutReference(entry, relation), partsOf(table, held));
        link(child);
        const isSorted = relation.sortField !== null && relation.columns.length === 1;
        if (child !== null && isSorted && entry[relation.sortField] === undefined)
          this.#assign(table, child, relation.sortField, last + position + 1);
      }
    }
    for (const entry of update) {
      const named = isObject(entry) ? this.#named(table, entry, partsOf(table, implied)) : null;
      if (!isObject(entry) || named === null) this.#errors.add(400);
      else link(this.#update(table, named, withoutReference(entry, relation)));
    }
    for (const entry of removed) {
      if (!keyFits(table, entry)) this.#errors.add(403);
      else if (relation.deselect === 'delete' && !isNew) this.#removed.add(`${table.name}/${readKey(table, entry)}`);
    }
    const changed = new Set(
      update.map((entry) =>
        String(isObject(entry) ? this.#named(table, entry, partsOf(table, implied)) : '').toLowerCase(),
      ),
    );
    if (removed.some((entry) => changed.has(String(entry).toLowerCase()))) this.#errors.add(400);
    if (!isNew) this.#releases.push({ relation, held, keys: new Set(removed.map(String)) });
  }

  #member(table: Table, relation: Many, entry: unknown, held: Row, implied: Row): Value {
    if (!isObject(entry)) return this.#update(table, entry, {});
    const payload = withoutReference(entry, relation);
    const key = this.#named(table, payload, partsOf(table, implied));
    return key === null ? this.#create(table, payload, partsOf(table, held)) : this.#upsert(table, key, payload);
  }

  /** The highest position among the rows the parent had before. */
  #last(table: Table, { foreignKey, sortField, columns }: Many, parent: Value): number {
    if (sortField === null || columns.length > 1) return 0;
    const rows = [...(this.#before.get(table.name)?.values() ?? [])].filter((row) => row[foreignKey] === parent);
    const places = rows.flatMap((row) => (typeof row[sortField] === 'number' ? [row[sortField]] : []));
    return places.length === 0 ? 0 : Math.max(...places);
  }

  #assignScalar(table: Table, key: Value, column: Column, value: unknown): void {
    try {
      this.#assign(table, key, column.name, coerce(column.type, value));
    } catch {
      this.#errors.add(400);
    }
  }

  #assign(table: Table, key: Value, field: string, value: Value): void {
    const place = JSON.stringify([table.name, key, field]);
    const earlier = this.#assigned.get(place);
    if (earlier !== undefined && earlier !== value) this.#errors.add(400);
    this.#assigned.set(place, value);
    if (value === null && columnOf(table, field)?.nullable === false) this.#errors.add(400);
    const row = this.#rows(table).get(String(key));
    if (row) row[field] = value;
  }

  /** Where the payload says what a row refers to, that stands; whatever else is still there leaves. */
  #release({ relation, held, keys }: Release): void {
    const table = tableNamed(this.#model, relation.target);
    const own = ownColumns(table, relation);
    const [first] = own;
    for (const [text, row] of this.#rows(table)) {
      const isSettled = this.#assigned.has(JSON.stringify([table.name, keyOf(table, row), first?.column]));
      // As it was: the payload may have given a column that it shares with another reference to that one.
      const was = this.#before.get(table.name)?.get(text) ?? row;
      const isHeld = Object.entries(held).every(([column, value]) => was[column] === value);
      if (isHeld && relation.deselect === 'delete' && this.#taken.has(`${table.name}/${text}`)) this.#replaces = true;
      if (isSettled || !isHeld || (keys && !keys.has(text))) continue;
      if (relation.deselect === 'delete') this.#delete(table, text);
      else for (const { column } of own) row[column] = null;
    }
  }

  #delete(table: Table, key: string): void {
    this.#rows(table).delete(key);
    this.#deleted.set(table.name, (this.#deleted.get(table.name) ?? new Set()).add(key));
  }

  /** What foreign keys do about deleted rows, until nothing more follows. */
  #followDeletions(): void {
    for (let settled = false; !settled; ) {
      settled = true;
      // Before anything follows: what one reference clears, another may hold as well.
      const isBroken = ([, relation, row]: [Table, One, Row]): boolean =>
        this.#deleted.get(relation.target)?.has(referredBy(relation, row)) === true;
      const broken = [...this.#references()].filter(isBroken);
      for (const [table, relation, row] of broken) {
        const key = textOf(this.#rows(table), row);
        const isWritten = [...this.#assigned.keys()].some((place) =>
          place.startsWith(JSON.stringify([table.name, keyOf(table, row)]).slice(0, -1)),
        );
        // What refuses a deletion may be deleted by another reference, before or after it is looked at.
        if (isWritten || key.includes('made:') || relation.onDelete === 'no action') this.#eitherWay = true;
        if (relation.onDelete === 'no action' || key === '' || !isBroken([table, relation, row])) continue;
        settled = false;
        if (relation.onDelete === 'cascade') this.#delete(table, key);
        else for (const { column } of relation.columns) row[column] = null;
      }
    }
  }

  *#references(): Generator<[Table, One, Row]> {
    for (const table of this.#model.tables) {
      for (const relation of table.relations) {
        if (relation.kind !== 'one' || !relation.constrained) continue;
        for (const row of [...this.#rows(table).values()])
          if (relation.columns.every(({ column }) => row[column] !== null)) yield [table, relation, row];
      }
    }
  }

  #checkRows(): void {
    for (const table of this.#model.tables) {
      const required = table.columns.filter((column) => !column.nullable);
      for (const row of this.#rows(table).values())
        if (required.some(({ name }) => row[name] === null)) this.#errors.add(400);
    }
    for (const [, relation, row] of this.#references()) {
      const target = tableNamed(this.#model, relation.target);
      const key = referredBy(relation, row);
      if (!this.#rows(target).has(key) && !this.#missing.has(key)) this.#errors.add(400);
    }
  }

  #rows(table: Table): Map<string, Row> {
    const rows = this.#after.get(table.name);
    if (!rows) throw new Error(`there are no rows of "${table.name}"`);
    return rows;
  }

  #refuse(status: number): null {
    this.#errors.add(status);
    return null;
  }
}

/** The parent decides the reference, whatever the child says of it. */
function withoutReference(payload: Payload, { foreignKey, columns }: Many): Payload {
  return without(payload, [foreignKey, ...columns.map(({ column }) => column)]);
}

function without(payload: Payload, names: readonly string[]): Payload {
  return Object.fromEntries(Object.entries(payload).filter(([name]) => !names.includes(name)));
}

/** Those that are parts of the key. */
function partsOf(table: Table, values: Row): Row {
  return Object.fromEntries(Object.entries(values).filter(([name]) => isPart(table, name)));
}

function blankRow({ columns }: Table): Row {
  return Object.fromEntries(columns.map(({ name, initial }) => [name, initial]));
}

/** The key of the row that a row refers to. */
function referredBy({ columns }: One, row: Row): string {
  const values = columns.map(({ column }) => row[column] ?? null);
  return values.length > 1 ? joinKey(values) : String(values[0]);
}

function textOf(rows: ReadonlyMap<string, Row>, row: Row): string {
  return [...rows].find(([, each]) => each === row)?.[0] ?? '';
}

function copyRows(rows: ReadonlyMap<string, Row>): Map<string, Row> {
  return new Map([...rows].map(([key, row]) => [key, { ...row }]));
}
