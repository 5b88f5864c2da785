/** What a snapshot says of a table as a whole: where it is, and what goes over several of its columns. */
import { invalidPayload } from '../errors.js';
import { FOREIGN_KEY_ACTIONS, type ForeignKeyAction } from '../mirror/model.js';
import { isOneOf } from '../narrow.js';
import { requireObject } from '../request/write.js';
import { readEntries, readSnapshotFlag, readSnapshotName, readSnapshotText, refuseUnknown } from './snapshot-values.js';

export interface SnapshotTable {
  /** Only where it is not the first one that is served. */
  readonly schema?: string;
  /** Its name in the schema, only where that need not be the collection's. */
  readonly name?: string;
  readonly comment: string | null;
  /** Only where it is not one field: several in the order of the key, or none. */
  readonly primary_key?: readonly string[];
  /** Plain ones over several columns; those over one are properties of its field. */
  readonly indexes: readonly SnapshotIndex[];
  /** Those over several columns, only where there are some; one over a single column belongs to its relation. */
  readonly foreign_keys?: readonly SnapshotForeignKey[];
}

export interface SnapshotIndex {
  readonly fields: readonly string[];
  readonly unique: boolean;
}

export interface SnapshotForeignKey {
  readonly fields: readonly string[];
  readonly related_collection: string;
  /** In the same order. */
  readonly related_fields: readonly string[];
  readonly on_delete: ForeignKeyAction;
  readonly on_update: ForeignKeyAction;
}

export function readTable(value: unknown, path: string): SnapshotTable | null {
  if (value === undefined || value === null) return null;
  const { schema, name, comment, primary_key, indexes, foreign_keys, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'schema, name, comment, primary_key, indexes, foreign_keys');
  const list = readEntries(indexes ?? [], `${path}.indexes`).map((each) => readIndex(each, `${path}.indexes`));
  const keys = readEntries(foreign_keys ?? [], `${path}.foreign_keys`).map((each, position) =>
    readForeignKey(each, `${path}.foreign_keys[${position}]`),
  );
  return {
    ...(schema == null ? {} : { schema: readSnapshotName(schema, `${path}.schema`) }),
    ...(name == null ? {} : { name: readSnapshotName(name, `${path}.name`) }),
    comment: readSnapshotText(comment, `${path}.comment`) || null,
    ...(primary_key == null ? {} : { primary_key: readNames(primary_key, `${path}.primary_key`) }),
    indexes: list,
    ...(keys.length === 0 ? {} : { foreign_keys: keys }),
  };
}

function readIndex(value: unknown, path: string): SnapshotIndex {
  const { fields, unique, ...rest } = requireObject(value, `"${path}"`);
  refuseUnknown(rest, `"${path}"`, 'fields, unique');
  return { fields: readSeveral(fields, `${path}.fields`), unique: readSnapshotFlag(unique, false, `${path}.unique`) };
}

function readForeignKey(value: unknown, path: string): SnapshotForeignKey {
  const { fields, related_collection, related_fields, on_delete, on_update, ...rest } = requireObject(
    value,
    `"${path}"`,
  );
  refuseUnknown(rest, `"${path}"`, 'fields, related_collection, related_fields, on_delete, on_update');
  const names = readSeveral(fields, `${path}.fields`);
  const related = readSeveral(related_fields, `${path}.related_fields`);
  if (names.length !== related.length) throw invalidPayload(`"${path}" must name as many "related_fields" as "fields"`);
  return {
    fields: names,
    related_collection: readSnapshotName(related_collection, `${path}.related_collection`),
    related_fields: related,
    ...readActions(on_delete, on_update, path),
  };
}

export interface SnapshotActions {
  readonly on_delete: ForeignKeyAction;
  readonly on_update: ForeignKeyAction;
}

export function readActions(onDelete: unknown, onUpdate: unknown, path: string): SnapshotActions {
  const actionOf = (action: unknown): ForeignKeyAction => {
    if (!isOneOf(FOREIGN_KEY_ACTIONS, action))
      throw invalidPayload(`"${path}" takes the actions ${FOREIGN_KEY_ACTIONS.join(', ')}`);
    return action;
  };
  return { on_delete: actionOf(onDelete ?? 'NO ACTION'), on_update: actionOf(onUpdate ?? 'NO ACTION') };
}

function readSeveral(value: unknown, path: string): readonly string[] {
  const names = readNames(value, path);
  if (names.length < 2) throw invalidPayload(`"${path}" must name several fields`);
  return names;
}

function readNames(value: unknown, path: string): readonly string[] {
  const names = readEntries(value, path).map((name) => readSnapshotName(name, path));
  if (new Set(names).size < names.length) throw invalidPayload(`"${path}" must name each field once`);
  return names;
}
