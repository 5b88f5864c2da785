/**
 * What a write has to do, row by row on rows in memory. It knows nothing of statements: a payload is walked from its root,
 * each object is applied as it is met, and what leaves a relation leaves it at the end. Keys that the database makes are
 * stand-ins here. All that is wrong with a payload is collected, because which of it is reported is not settled.
 */
import {
  type Column,
  keyTypeOf,
  type Many,
  type Model,
  type One,
  type Row,
  relationNamed,
  type Table,
  tableNamed,
  type Value,
} from './model.js';
import { coerce, isObject, keyFits } from './oracle-values.js';
import type { Payload, WriteCase } from './requests.js';

/** Rows by the text of their key, by table. */
export type State = ReadonlyMap<string, Map<string, Row>>;

export interface Outcome {
  /** Statuses of which one has to be the answer; none where the write succeeds. */
  readonly errors: ReadonlySet<number>;
  /** The order in which PostgreSQL checks and acts decides whether it refuses this or does it. */
  readonly eitherWay: boolean;
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
  readonly parent: Value;
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
  #eitherWay = false;
  #made = 0;

  constructor(model: Model, before: State) {
    this.#model = model;
    this.#before = before;
    this.#after = new Map([...before].map(([name, rows]) => [name, copyRows(rows)]));
  }

  run(write: WriteCase): Outcome {
    const shown = this.#apply(write, tableNamed(this.#model, write.table));
    for (const release of this.#releases) this.#release(release);
    this.#followDeletions();
    this.#checkRows();
    return { errors: this.#errors, eitherWay: this.#eitherWay, after: this.#after, shown };
  }

  #apply(write: WriteCase, table: Table): Value[] | null {
    switch (write.kind) {
      case 'create':
        return write.items.map((item) => this.#create(table, item));
      case 'each':
        return write.items.map((item) => this.#update(table, item[table.key.name], item));
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
    const keys = rows.map((row) => row[table.key.name] ?? null);
    if (selected.limit === null) return keys;
    return keys.sort((one, other) => Number(one) - Number(other)).slice(0, selected.limit);
  }

  #create(table: Table, payload: Payload): Value {
    const given = payload[table.key.name] ?? null;
    if (given !== null && !keyFits(table, given))
      return this.#refuse(isObject(given) || Array.isArray(given) || typeof given === 'boolean' ? 400 : 403);
    if (given !== null && this.#rows(table).has(String(given))) this.#errors.add(400);
    if (given === null && table.key.kind === 'text') this.#errors.add(400);
    const key = given === null ? `made:${this.#made++}` : coerce(keyTypeOf(table), given);
    this.#insert(table, key);
    this.#walk(table, key, payload);
    return key;
  }

  /** The item has to be there. */
  #update(table: Table, given: unknown, payload: Payload, sharing: Payload | null = null): Value {
    if (typeof given !== 'string' && typeof given !== 'number') return this.#refuse(400);
    const key = keyFits(table, given) ? coerce(keyTypeOf(table), given) : `made:${this.#made++}`;
    if (!this.#rows(table).has(String(key))) {
      this.#errors.add(403);
      this.#missing.add(String(key));
    }
    this.#walk(table, key, payload, sharing);
    return key;
  }

  /** The item is changed, or made with its key. */
  #upsert(table: Table, given: unknown, payload: Payload): Value {
    if (typeof given !== 'string' && typeof given !== 'number') return this.#refuse(400);
    if (!keyFits(table, given)) return this.#refuse(403);
    const key = coerce(keyTypeOf(table), given);
    if (!this.#rows(table).has(String(key))) this.#insert(table, key);
    this.#walk(table, key, payload);
    return key;
  }

  #insert(table: Table, key: Value): void {
    const row: Row = { [table.key.name]: key };
    for (const column of table.columns) row[column.name] = column.initial;
    this.#rows(table).set(String(key), row);
  }

  #walk(table: Table, key: Value, payload: Payload, sharing: Payload | null = null): void {
    for (const [name, value] of Object.entries(payload)) {
      if (name === table.key.name) continue;
      const relation = relationNamed(table, name);
      const column = table.columns.find((each) => each.name === name);
      if (relation?.kind === 'many') this.#many(table, key, relation, value);
      else if (relation && isObject(value)) {
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
    const key = payload[table.key.name] ?? null;
    return key === null ? this.#create(table, payload) : this.#upsert(table, key, payload);
  }

  #many(parent: Table, key: Value, relation: Many, value: unknown): void {
    const table = tableNamed(this.#model, relation.target);
    const link = (child: Value): void => {
      if (child !== null) this.#assign(table, child, relation.foreignKey, key);
    };
    const isNew = !this.#before.get(parent.name)?.has(String(key));
    if (value === null || Array.isArray(value)) {
      for (const entry of (value ?? []) as unknown[]) link(this.#member(table, relation, entry));
      if (!isNew) this.#releases.push({ relation, parent: key, keys: null });
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
        const child = this.#create(table, without(entry, relation.foreignKey));
        link(child);
        if (child !== null && relation.sortField !== null && entry[relation.sortField] === undefined)
          this.#assign(table, child, relation.sortField, last + position + 1);
      }
    }
    for (const entry of update) {
      if (!isObject(entry) || (entry[table.key.name] ?? null) === null) this.#errors.add(400);
      else link(this.#update(table, entry[table.key.name], without(entry, relation.foreignKey)));
    }
    for (const entry of removed) if (!keyFits(table, entry)) this.#errors.add(403);
    const changed = new Set(update.map((entry) => String(isObject(entry) ? entry[table.key.name] : '').toLowerCase()));
    if (removed.some((entry) => changed.has(String(entry).toLowerCase()))) this.#errors.add(400);
    if (!isNew) this.#releases.push({ relation, parent: key, keys: new Set(removed.map(String)) });
  }

  #member(table: Table, relation: Many, entry: unknown): Value {
    if (!isObject(entry)) return this.#update(table, entry, {});
    const payload = without(entry, relation.foreignKey);
    const key = payload[table.key.name] ?? null;
    return key === null ? this.#create(table, payload) : this.#upsert(table, key, payload);
  }

  /** The highest position among the rows the parent had before. */
  #last(table: Table, { foreignKey, sortField }: Many, parent: Value): number {
    if (sortField === null) return 0;
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
    if (value === null && table.columns.find(({ name }) => name === field)?.nullable === false) this.#errors.add(400);
    const row = this.#rows(table).get(String(key));
    if (row) row[field] = value;
  }

  /** Where the payload says what a row refers to, that stands; whatever else is still there leaves. */
  #release({ relation, parent, keys }: Release): void {
    const table = tableNamed(this.#model, relation.target);
    for (const [text, row] of this.#rows(table)) {
      const isSettled = this.#assigned.has(JSON.stringify([table.name, row[table.key.name], relation.foreignKey]));
      if (isSettled || row[relation.foreignKey] !== parent || (keys && !keys.has(text))) continue;
      if (relation.deselect === 'delete') this.#delete(table, text);
      else row[relation.foreignKey] = null;
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
      for (const [table, relation, row] of this.#references()) {
        const isGone = this.#deleted.get(relation.target)?.has(String(row[relation.name]));
        if (!isGone) continue;
        const key = String(row[table.key.name]);
        const isWritten = [...this.#assigned.keys()].some((place) =>
          place.startsWith(JSON.stringify([table.name, row[table.key.name]]).slice(0, -1)),
        );
        if (isWritten || isStandIn(key)) this.#eitherWay = true;
        if (relation.onDelete === 'no action') continue;
        settled = false;
        if (relation.onDelete === 'cascade') this.#delete(table, key);
        else row[relation.name] = null;
      }
    }
  }

  *#references(): Generator<[Table, One, Row]> {
    for (const table of this.#model.tables) {
      for (const relation of table.relations) {
        if (relation.kind !== 'one' || !relation.constrained) continue;
        for (const row of [...this.#rows(table).values()])
          if (row[relation.name] !== null) yield [table, relation, row];
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
      const key = String(row[relation.name]);
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
function without(payload: Payload, name: string): Payload {
  const { [name]: _, ...rest } = payload;
  return rest;
}

function copyRows(rows: ReadonlyMap<string, Row>): Map<string, Row> {
  return new Map([...rows].map(([key, row]) => [key, { ...row }]));
}
