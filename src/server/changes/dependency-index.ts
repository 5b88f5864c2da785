/**
 * The entries of each statement that depend on rows, by the tables that it reads and, if it reads only rows with certain
 * values, by these values. Live queries and the cache of reads find in it what a change concerns.
 */

import type { CompiledRead } from '../execute/reads/compiled-read.js';
import type { LoggedTable, TableChanges } from './change-source.js';
import { changedKeys, type Dependencies, tableKey, wantedColumns } from './dependencies.js';

export interface Dependent {
  /** Differs between the entries of a statement. */
  readonly key: string;
  /** The values that rows must have to take part, or null if any row may. */
  readonly probe: string | null;
}

/** All entries of one statement. */
export class DependentShape<Entry extends Dependent> {
  readonly entries = new Map<string, Entry>();
  readonly #byProbe = new Map<string, Set<Entry>>();
  readonly #unprobed = new Set<Entry>();
  /** How often one of its tables has changed. */
  changes = 0;

  constructor(
    readonly compiled: CompiledRead,
    readonly dependencies: Dependencies,
  ) {}

  add(entry: Entry): void {
    this.entries.set(entry.key, entry);
    if (entry.probe === null) this.#unprobed.add(entry);
    else addTo(this.#byProbe, entry.probe, entry);
  }

  remove(entry: Entry): void {
    this.entries.delete(entry.key);
    this.#unprobed.delete(entry);
    if (entry.probe !== null) removeFrom(this.#byProbe, entry.probe, entry);
  }

  /** From now on any row may matter to the entry. */
  widen(entry: Entry): void {
    if (entry.probe !== null) removeFrom(this.#byProbe, entry.probe, entry);
    this.#unprobed.add(entry);
  }

  /** The entries that may differ after the change of a table that they depend on. */
  *touchedBy({ table, rows }: TableChanges): Iterable<Entry> {
    this.changes++;
    const { probe } = this.dependencies;
    if (probe === null || rows === null || probe.table !== table.name || probe.schema !== table.schema) {
      yield* this.entries.values();
      return;
    }
    const keys = new Set<string>();
    for (const row of rows) {
      const changed = changedKeys(probe, row);
      if (changed === null) {
        yield* this.entries.values();
        return;
      }
      for (const key of changed) keys.add(key);
    }
    yield* this.#unprobed;
    for (const key of keys) yield* this.#byProbe.get(key) ?? [];
  }
}

export class DependencyIndex<Entry extends Dependent> {
  readonly #shapes = new Map<CompiledRead, DependentShape<Entry>>();
  readonly #byTable = new Map<string, Set<DependentShape<Entry>>>();
  /** The columns that are read of each table; cleared when shapes come or go. */
  #wanted = new WeakMap<LoggedTable, readonly boolean[] | null>();

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
    this.#byTable.clear();
    this.#wanted = new WeakMap();
  }

  add(shape: DependentShape<Entry>, entry: Entry): void {
    shape.add(entry);
    if (this.#shapes.get(shape.compiled) === shape) return;
    this.#shapes.set(shape.compiled, shape);
    this.#wanted = new WeakMap();
    for (const table of shape.dependencies.tables) addTo(this.#byTable, table, shape);
  }

  remove(shape: DependentShape<Entry>, entry: Entry): void {
    shape.remove(entry);
    if (shape.entries.size > 0 || this.#shapes.get(shape.compiled) !== shape) return;
    this.#shapes.delete(shape.compiled);
    this.#wanted = new WeakMap();
    for (const table of shape.dependencies.tables) removeFrom(this.#byTable, table, shape);
  }

  /** The entries that may differ after the change. */
  *touchedBy(change: TableChanges): Iterable<Entry> {
    for (const shape of this.#byTable.get(tableKey(change.table)) ?? []) yield* shape.touchedBy(change);
  }

  /** The columns of a table, by position, that decide which entries a change touches; null if no entry depends on the table. */
  wanted(table: LoggedTable): readonly boolean[] | null {
    const cached = this.#wanted.get(table);
    if (cached !== undefined) return cached;
    const shapes = this.#byTable.get(tableKey(table));
    const probes = [...(shapes ?? [])].flatMap(({ dependencies: { probe } }) => probe ?? []);
    const wanted = shapes ? wantedColumns(table, probes) : null;
    this.#wanted.set(table, wanted);
    return wanted;
  }
}

function addTo<Key, Value>(sets: Map<Key, Set<Value>>, key: Key, value: Value): void {
  const set = sets.get(key);
  if (set) set.add(value);
  else sets.set(key, new Set([value]));
}

function removeFrom<Key, Value>(sets: Map<Key, Set<Value>>, key: Key, value: Value): void {
  const set = sets.get(key);
  set?.delete(value);
  if (set?.size === 0) sets.delete(key);
}
