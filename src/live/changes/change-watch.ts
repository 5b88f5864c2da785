/** Committed changes, for the program that the service runs in: which item of which collection, whatever program has written it. */
import type { TableChanges } from '../../engine/cache/dependency-index.js';
import type { ChangeEvent } from '../../engine/extensions/api.js';
import type { Collection } from '../../mirror/model.js';
import type { Mirror } from '../../mirror/watch.js';
import type { LoggedChange, LoggedTable } from '../../postgres/changes/pgoutput.js';
import { keyIn } from '../events/table-log.js';

export class ChangeWatch {
  #isSynced = false;

  constructor(
    private readonly mirror: Mirror,
    private readonly listener: (event: ChangeEvent) => void,
  ) {}

  /** The key columns of collections that are served. */
  wanted(table: LoggedTable): readonly boolean[] | null {
    const collection = this.#collectionOf(table);
    if (!collection) return null;
    const names = collection.key.map(({ column, name }) => column?.name ?? name);
    return table.columns.map(({ name }) => names.includes(name));
  }

  committed(changes: readonly TableChanges[]): void {
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
