/**
 * The entries that depend on rows, by the tables that their statements read and by the values that a row must have to take part. Live
 * queries and the cache of reads find in it what a change concerns: a look-up for each kind of value, not for each entry.
 *
 * An entry is added before its answer, whose values are not known yet. Changes that arrive meanwhile are in a journal, with which the
 * values are compared when the entry is settled.
 */

import type { LinkedColumn, Place } from '../../compiler/plan/links.js';
import type { CompiledRead } from '../execute/reads/compiled-read.js';
import type { LoggedChange, LoggedTable, TableChanges } from './change-source.js';
import { type Dependencies, type LinkValue, linkValues, tableKey, tableOfPlace, valueIn } from './dependencies.js';
import { Journal, type JournalEntry } from './journal.js';

export interface Dependent {
  /** Differs between the entries of a statement. */
  readonly key: string;
  /** The values that rows of the first table must have to take part, or null if any row may. */
  readonly probe: LinkValue | null;
  /** The changes from this number on may not be in its answer. */
  since: number;
  /** The links of its answer, or null before the answer. */
  found: FoundLinks | null;
}

/** The values that came with an answer. */
export interface FoundLinks {
  /** As `compile/links.ts` makes them, null if there was no row, undefined if they are not known. */
  readonly links: string | null | undefined;
  /** Whether rows of the first table may be hidden from the caller. */
  readonly hidesRows: boolean;
}

/** All entries of one statement. */
export class DependentShape<Entry extends Dependent> {
  readonly entries = new Map<string, Entry>();

  constructor(
    readonly compiled: CompiledRead,
    readonly dependencies: Dependencies,
  ) {}
}

/** Entries by the values of some columns of a table. */
class Lookup<Entry> {
  readonly values = new Map<LinkValue, Entry | Set<Entry>>();
  /** Shapes that need it. */
  users = 0;
  #table: LoggedTable | null = null;
  #positions: readonly number[] = [];
  #isIdentity = false;

  constructor(
    readonly id: string,
    readonly columns: readonly LinkedColumn[],
    /** Whether the entries find rows that leave by their keys, so that former values need not be known. */
    readonly isCovered: boolean,
  ) {}

  add(value: LinkValue, entry: Entry): void {
    const known = this.values.get(value);
    if (known === undefined) this.values.set(value, entry);
    else if (known instanceof Set) known.add(entry);
    else if (known !== entry) this.values.set(value, new Set([known, entry]));
  }

  remove(value: LinkValue, entry: Entry): void {
    const known = this.values.get(value);
    if (known === entry) this.values.delete(value);
    else if (known instanceof Set && known.delete(entry) && known.size === 0) this.values.delete(value);
  }

  *of(value: LinkValue): Iterable<Entry> {
    const found = this.values.get(value);
    if (found instanceof Set) yield* found;
    else if (found !== undefined) yield found;
  }

  *all(): Iterable<Entry> {
    for (const value of this.values.keys()) yield* this.of(value);
  }

  /** The values of a changed row, before and after, as far as they matter; null if they are not known. */
  valuesOf({ table, action, before, after }: LoggedChange): readonly LinkValue[] | null {
    if (this.#table !== table) this.#locate(table);
    // PostgreSQL sends only the replica identity of the row before the change.
    if (action !== 'create' && !this.#isIdentity && !this.isCovered) return null;
    const values: LinkValue[] = [];
    for (const row of this.#isIdentity ? [before, after] : [after]) {
      if (row === null) continue;
      const value = valueIn(row, this.#positions, this.columns);
      if (value === null) return null;
      values.push(value);
    }
    return values.length > 0 || this.isCovered ? values : null;
  }

  #locate(table: LoggedTable): void {
    this.#table = table;
    this.#positions = this.columns.map(({ name }) => table.columns.findIndex((column) => column.name === name));
    this.#isIdentity = this.#positions.every((position) => table.isFull || table.columns[position]?.isKey === true);
  }
}

/** The entries that depend on one table. */
class TableIndex<Entry extends Dependent> {
  /** Shapes of which every entry depends on any row. */
  readonly whole = new Set<DependentShape<Entry>>();
  /** Other entries that do. */
  readonly wide = new Set<Entry>();
  readonly lookups = new Map<string, Lookup<Entry>>();
  /** Shapes that depend on it. */
  users = 0;
}

/** A look-up of a shape, and the set whose values are searched in it; null for the values of the request. */
interface Side<Entry> {
  readonly table: string;
  readonly lookup: Lookup<Entry>;
  readonly set: number | null;
}

/** The values and tables that an entry is registered for. */
interface Registration<Entry> {
  /** Tables of which any row matters. */
  readonly wide: ReadonlySet<string>;
  readonly values: readonly { readonly side: Side<Entry>; readonly value: LinkValue }[];
}

const NOTHING = { wide: new Set<string>(), values: [] };

export class DependencyIndex<Entry extends Dependent> {
  readonly #shapes = new Map<CompiledRead, DependentShape<Entry>>();
  readonly #sides = new Map<DependentShape<Entry>, readonly Side<Entry>[]>();
  readonly #tables = new Map<string, TableIndex<Entry>>();
  readonly journal = new Journal();
  /** The columns that are read of each table; cleared when shapes come or go. */
  #wanted = new WeakMap<LoggedTable, readonly boolean[] | null>();
  /** Changed rows, and look-ups for them. */
  rows = 0;
  lookups = 0;

  get shapes(): ReadonlyMap<CompiledRead, DependentShape<Entry>> {
    return this.#shapes;
  }

  get size(): number {
    let entries = 0;
    for (const shape of this.#shapes.values()) entries += shape.entries.size;
    return entries;
  }

  *all(): Iterable<Entry> {
    for (const shape of this.#shapes.values()) yield* shape.entries.values();
  }

  clear(): void {
    this.#shapes.clear();
    this.#sides.clear();
    this.#tables.clear();
    this.#wanted = new WeakMap();
  }

  /** Adds an entry before its answer. `since`: the number of the first change that its read may not see. */
  add(shape: DependentShape<Entry>, entry: Entry, since = this.journal.end): void {
    if (shape.entries.get(entry.key) === entry) return;
    entry.since = since;
    entry.found = null;
    shape.entries.set(entry.key, entry);
    if (this.#shapes.get(shape.compiled) !== shape) this.#addShape(shape);
  }

  remove(shape: DependentShape<Entry>, entry: Entry): void {
    if (shape.entries.get(entry.key) === entry) shape.entries.delete(entry.key);
    if (this.#shapes.get(shape.compiled) !== shape) return;
    this.#unregister(shape, entry);
    if (shape.entries.size === 0) this.#removeShape(shape);
  }

  /**
   * The answer of the entry has arrived. Returns the number of values that it is registered for, or null if a change that its read may not
   * have seen may concern it.
   */
  settle(shape: DependentShape<Entry>, entry: Entry, found: FoundLinks): number | null {
    if (this.#shapes.get(shape.compiled) !== shape) return null;
    const isSame = entry.found?.links === found.links && entry.found?.hidesRows === found.hidesRows;
    if (!isSame) this.#unregister(shape, entry);
    const registration = this.#registrationOf(shape, entry, found);
    if (!isSame) this.#register(entry, registration);
    entry.found = found;
    const missed = this.journal.since(entry.since);
    return missed === null || isConcerned(shape, registration, missed) ? null : registration.values.length;
  }

  /** Whether a table of the entry has changed since its read began. */
  hasChanged(shape: DependentShape<Entry>, { since }: Entry): boolean {
    const missed = this.journal.since(since);
    return missed === null || missed.some(({ table }) => shape.dependencies.tables.has(table));
  }

  /** Notes the change, and returns the entries that may differ after it. Some may come twice. */
  touchedBy(changes: TableChanges): Iterable<Entry> {
    this.journal.add(changes);
    const index = this.#tables.get(tableKey(changes.table));
    return index ? this.#touchedIn(index, changes.rows) : [];
  }

  *#touchedIn(index: TableIndex<Entry>, rows: TableChanges['rows']): Iterable<Entry> {
    for (const shape of index.whole) yield* shape.entries.values();
    yield* index.wide;
    this.rows += rows?.length ?? 0;
    for (const lookup of index.lookups.values()) {
      const values = new Set<LinkValue>();
      let isKnown = rows !== null;
      for (const row of rows ?? []) {
        const changed = lookup.valuesOf(row);
        if (changed === null) isKnown = false;
        for (const value of changed ?? []) values.add(value);
      }
      this.lookups += values.size;
      if (!isKnown) yield* lookup.all();
      else for (const value of values) yield* lookup.of(value);
    }
  }

  /** The columns of a table, by position, that decide which entries a change touches; null if no entry depends on the table. */
  wanted(table: LoggedTable): readonly boolean[] | null {
    const cached = this.#wanted.get(table);
    if (cached !== undefined) return cached;
    const index = this.#tables.get(tableKey(table));
    const names = new Set(
      [...(index?.lookups.values() ?? [])].flatMap(({ columns }) => columns.map(({ name }) => name)),
    );
    const wanted = index ? table.columns.map(({ name }) => names.has(name)) : null;
    this.#wanted.set(table, wanted);
    return wanted;
  }

  #addShape(shape: DependentShape<Entry>): void {
    const { dependencies } = shape;
    this.#shapes.set(shape.compiled, shape);
    this.#wanted = new WeakMap();
    for (const table of dependencies.tables) {
      const index = this.#tables.get(table) ?? new TableIndex<Entry>();
      this.#tables.set(table, index);
      index.users++;
      if (dependencies.whole.has(table)) index.whole.add(shape);
    }
    const { probe, places } = dependencies;
    const sides = places.flatMap((place) => this.#sidesOf(place));
    if (probe)
      sides.push(this.#side(tableKey({ schema: probe.schema, name: probe.table }), probe.columns, null, false));
    this.#sides.set(shape, sides);
  }

  #sidesOf(place: Place): Side<Entry>[] {
    const { link, keys } = place;
    const table = tableOfPlace(place);
    const sides = [this.#side(table, link.columns, link.set, keys !== null)];
    return keys ? [...sides, this.#side(table, keys.columns, keys.set, false)] : sides;
  }

  #side(table: string, columns: readonly LinkedColumn[], set: number | null, isCovered: boolean): Side<Entry> {
    const lookups = this.#tables.get(table)?.lookups;
    const id = JSON.stringify([isCovered, ...columns.map(({ name, kind }) => [name, kind])]);
    const lookup = lookups?.get(id) ?? new Lookup<Entry>(id, columns, isCovered);
    lookups?.set(id, lookup);
    lookup.users++;
    return { table, lookup, set };
  }

  #removeShape(shape: DependentShape<Entry>): void {
    this.#shapes.delete(shape.compiled);
    this.#wanted = new WeakMap();
    for (const { table, lookup } of this.#sides.get(shape) ?? [])
      if (--lookup.users === 0) this.#tables.get(table)?.lookups.delete(lookup.id);
    this.#sides.delete(shape);
    for (const table of shape.dependencies.tables) {
      const index = this.#tables.get(table);
      index?.whole.delete(shape);
      if (index && --index.users === 0) this.#tables.delete(table);
    }
  }

  #register(entry: Entry, { wide, values }: Registration<Entry>): void {
    for (const table of wide) this.#tables.get(table)?.wide.add(entry);
    for (const { side, value } of values) side.lookup.add(value, entry);
  }

  #unregister(shape: DependentShape<Entry>, entry: Entry): void {
    if (entry.found === null) return;
    const { wide, values } = this.#registrationOf(shape, entry, entry.found);
    for (const table of wide) this.#tables.get(table)?.wide.delete(entry);
    for (const { side, value } of values) side.lookup.remove(value, entry);
    entry.found = null;
  }

  #registrationOf(shape: DependentShape<Entry>, entry: Entry, { links, hidesRows }: FoundLinks): Registration<Entry> {
    const sides = this.#sides.get(shape) ?? [];
    if (sides.length === 0) return NOTHING;
    const sets = links === undefined ? [] : linkValues(links, shape.dependencies);
    const wide = new Set<string>();
    const valuesOf = ({ set }: Side<Entry>): readonly LinkValue[] | null => {
      if (set !== null) return sets[set] ?? null;
      return entry.probe === null || hidesRows ? null : [entry.probe];
    };
    for (const side of sides) if (valuesOf(side) === null) wide.add(side.table);
    const values = sides
      .filter(({ table }) => !wide.has(table))
      .flatMap((side) => (valuesOf(side) ?? []).map((value) => ({ side, value })));
    return { wide, values };
  }
}

/** Whether one of the changes may change the answer. */
function isConcerned<Entry extends Dependent>(
  { dependencies }: DependentShape<Entry>,
  { wide, values }: Registration<Entry>,
  changes: readonly JournalEntry[],
): boolean {
  const own = changes.filter(({ table }) => dependencies.tables.has(table));
  if (own.length === 0) return false;
  if (own.some(({ table }) => wide.has(table) || dependencies.whole.has(table))) return true;
  const shown = new Map<Lookup<Entry>, { readonly table: string; readonly values: Set<LinkValue> }>();
  for (const { side, value } of values) {
    const { table, lookup } = side;
    const known = shown.get(lookup);
    if (known) known.values.add(value);
    else shown.set(lookup, { table, values: new Set([value]) });
  }
  return [...shown].some(([lookup, side]) =>
    own.some(({ table, change }) => {
      if (table !== side.table) return false;
      const changed = change === null ? null : lookup.valuesOf(change);
      return changed === null || changed.some((value) => side.values.has(value));
    }),
  );
}
