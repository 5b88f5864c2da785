/** The entry of a snapshot for a table as a whole: its name and schema, and keys and indexes over several columns. */
import { invalidPayload } from '../../base/errors.js';
import { isOneOf } from '../../base/narrow.js';
import {
  DEFERRABLE,
  FOREIGN_KEY_ACTIONS,
  type ForeignKeyAction,
  type ForeignKeyBehaviour,
} from '../../mirror/model.js';
import { requireObject } from '../../request/write.js';
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

export interface SnapshotForeignKey extends ForeignKeyBehaviour {
  readonly fields: readonly string[];
  readonly related_collection: string;
  /** In the same order. */
  readonly related_fields: readonly string[];
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
  const { fields, related_collection, related_fields, ...rest } = requireObject(value, `"${path}"`);
  const behaviour = readBehaviour(rest, path, 'fields, related_collection, related_fields');
  const names = readSeveral(fields, `${path}.fields`);
  const related = readSeveral(related_fields, `${path}.related_fields`);
  if (names.length !== related.length) throw invalidPayload(`"${path}" must name as many "related_fields" as "fields"`);
  return {
    fields: names,
    related_collection: readSnapshotName(related_collection, `${path}.related_collection`),
    related_fields: related,
    ...behaviour,
  };
}

/** `others`: what the entry takes beside it. */
export function readBehaviour(
  entry: Readonly<Record<string, unknown>>,
  path: string,
  others: string,
): ForeignKeyBehaviour {
  const { on_delete, on_update, match, deferrable, ...rest } = entry;
  refuseUnknown(rest, `"${path}"`, `${others}, on_delete, on_update, match, deferrable`);
  const actionOf = (action: unknown): ForeignKeyAction => {
    if (!isOneOf(FOREIGN_KEY_ACTIONS, action))
      throw invalidPayload(`"${path}" takes the actions ${FOREIGN_KEY_ACTIONS.join(', ')}`);
    return action;
  };
  if (match != null && match !== 'FULL') throw invalidPayload(`"${path}.match" must be "FULL", or left out`);
  if (deferrable != null && !isOneOf(DEFERRABLE, deferrable))
    throw invalidPayload(`"${path}.deferrable" must be one of ${DEFERRABLE.join(', ')}, or left out`);
  return {
    on_delete: actionOf(on_delete ?? 'NO ACTION'),
    on_update: actionOf(on_update ?? 'NO ACTION'),
    ...(match == null ? {} : { match }),
    ...(deferrable == null ? {} : { deferrable }),
  };
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
