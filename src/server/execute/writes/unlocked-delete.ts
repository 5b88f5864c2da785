/**
 * Deletes items of a query whose rows the caller may not lock, in a transaction that others have begun. A row that another transaction
 * changes between the selection and the delete is selected again, and deleted if it still matches.
 */
import { rowsOfAnswer } from '../../../base/exact-json.js';
import type { Tags } from '../../../compiler/compile/write/write-input.js';
import type { Collection } from '../../../compiler/model/model.js';
import { keyOfRow } from '../../../compiler/plan/write/key.js';
import type { Key } from '../../../compiler/request/write.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { SelectedItem } from './compiled-write.js';

/** Items that change again and again are left. */
const MAX_ROUNDS = 10;

interface UnlockedDelete {
  readonly session: Session;
  readonly collection: Collection;
  /** The items of the query, as they are now. */
  readonly select: () => Promise<readonly SelectedItem[]>;
  /** Deletes the items with these keys that have one of the tags. Returns the cell of the statement. */
  readonly remove: (keys: readonly Key[], tags: Tags) => Promise<Buffer | null>;
}

/** Returns the keys of the deleted items. */
export async function deleteUnlocked(
  selected: readonly SelectedItem[],
  { session, collection, select, remove }: UnlockedDelete,
): Promise<readonly Key[]> {
  const deleted: Key[] = [];
  let items = selected;
  for (let round = 1; items.length > 0; round++) {
    const tags = [...new Set(items.map(({ tag }) => tag ?? ''))];
    const cell = await remove(
      items.map(({ key }) => key),
      tags,
    );
    const keys = rowsOfAnswer(String(cell)).map((row) => keyOfRow(collection, row));
    deleted.push(...keys);
    if (keys.length === items.length || round === MAX_ROUNDS) break;
    items = await changedItems(items, session, select);
  }
  return deleted;
}

/** Items that other transactions have changed. A policy or a trigger keeps the unchanged ones. */
async function changedItems(
  items: readonly SelectedItem[],
  session: Session,
  select: UnlockedDelete['select'],
): Promise<readonly SelectedItem[]> {
  const tags = new Map(items.map(({ key, tag }) => [JSON.stringify(key), tag]));
  const own = String(await session.cell(OWN_TAG, []));
  return (await select()).filter(({ key, tag }) => {
    const known = tags.get(JSON.stringify(key));
    return known !== undefined && tag !== known && tag !== own;
  });
}

/** The tag of rows that this transaction has written, such as those that a trigger marks instead of deleting them. */
const OWN_TAG = 'select pg_catalog.pg_current_xact_id()::pg_catalog.xid::pg_catalog.text';
