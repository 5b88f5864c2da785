/** Committed changes as a program learns them. */

import type { Collection } from '../../compiler/model/model.js';
import { joinKey } from '../../compiler/sql/key-text.js';
import type { LoggedChange, LoggedRow, LoggedTable, Transaction } from '../../server/changes/change-source.js';
import type { ChangeEvent, ChangeListener, Changes } from '../../server/changes/changes.js';
import type { Mirror } from '../../server/postgres/catalog/watch.js';

type EventListener = (event: ChangeEvent) => void;

/** Reports each change that is committed from now on. Rejects if PostgreSQL does not report changes. */
export async function watchChanges(changes: Changes, mirror: Mirror, listener: EventListener): Promise<void> {
  const watch = new ChangeWatch(mirror, listener);
  changes.add(watch);
  try {
    await changes.hold(watch);
    await changes.opened();
  } catch (error) {
    changes.remove(watch);
    throw error;
  }
}

class ChangeWatch implements ChangeListener {
  #isSynced = false;

  constructor(
    private readonly mirror: Mirror,
    private readonly listener: EventListener,
  ) {}

  /** The key columns of collections that are served. */
  wanted(table: LoggedTable): readonly boolean[] | null {
    const collection = this.#collectionOf(table);
    if (!collection) return null;
    const names = collection.key.map(({ column, name }) => column?.name ?? name);
    return table.columns.map(({ name }) => names.includes(name));
  }

  committed({ changes }: Transaction): void {
    for (const { table, rows } of changes) {
      const collection = this.#collectionOf(table);
      if (!collection) continue;
      if (rows === null) this.listener({ collection: collection.name, action: 'resync', key: null });
      for (const row of rows ?? []) this.listener(eventOf(collection, table, row));
    }
  }

  /** Changes may have been missed, except when the stream opens for the first time. */
  resynced(): void {
    if (this.#isSynced) this.listener({ collection: null, action: 'resync', key: null });
    this.#isSynced = true;
  }

  #collectionOf({ schema, name }: LoggedTable): Collection | undefined {
    const { collections } = this.mirror.model;
    const found = [...collections.values()].find((each) => each.schema === schema && each.table === name);
    return found?.system ? undefined : found;
  }
}

function eventOf({ name, key }: Collection, table: LoggedTable, { action, before, after }: LoggedChange): ChangeEvent {
  const columns = key.map((field) =>
    table.columns.findIndex((each) => each.name === (field.column?.name ?? field.name)),
  );
  const shown = keyIn(after ?? before, columns);
  return action === 'truncate' || shown === null
    ? { collection: name, action: 'resync', key: null }
    : { collection: name, action, key: shown };
}

/** The key in a row, as it stands in paths; null if a column of it is not known. */
export function keyIn(row: LoggedRow | null, columns: readonly number[]): string | null {
  const parts: string[] = [];
  for (const column of columns) {
    const part = row?.[column];
    if (part === undefined || part === null) return null;
    parts.push(part);
  }
  if (parts.length === 0) return null;
  return parts.length === 1 ? (parts[0] ?? null) : joinKey(parts);
}
