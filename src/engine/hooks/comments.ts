/**
 * Comments name an item by its collection and key, which no foreign key can express. The writer must be able to read that item:
 * otherwise the answer would reveal whether it exists, and readers of the item would find the comment.
 */
import { forbidden, invalidPayload } from '../../base/errors.js';
import { servedCollection } from '../../plan/read.js';
import { checkKey } from '../../plan/write/key.js';
import type { Parsed } from '../../request/ast.js';
import { parseCountOfKeys } from '../../request/rest.js';
import type { Key } from '../../request/write.js';
import { compileInSession, countInSession } from '../reads/session-reads.js';
import { bringsRows, type Change, type HookedWrite, type WriteHook } from './write-hook.js';

/** Each collection that is named takes a statement of its own. */
const MAX_COLLECTIONS = 20;

export const comments: WriteHook = {
  concerns: (change) => change.collection.name === 'service_comments' && bringsRows(change),
  open: (write) => ({ beforeWrite: () => checkNamedItems(write) }),
};

/** Administrators read everything, and may comment on items that do not exist yet. */
async function checkNamedItems(write: HookedWrite): Promise<void> {
  const { caller } = write.writer;
  if (caller.administrator) return;
  if (caller.user === null) throw forbidden();
  const named = namedItems(write.changes);
  if (named.size > MAX_COLLECTIONS)
    throw invalidPayload(`One request can name items of at most ${MAX_COLLECTIONS} collections`);
  for (const [name, items] of named) {
    const queryOf = (keys: readonly Key[]): Parsed => parseCountOfKeys(name, keys, write.parseLimits);
    // Permission to read the collection comes first: an error about a key would reveal that the collection exists.
    compileInSession(write, queryOf([...items]));
    const collection = servedCollection(write.model, name);
    // Two texts of one key are one item.
    const keys = [...new Set([...items].map((key) => checkKey(collection, key)))];
    if ((await countInSession(write, queryOf(keys))) !== keys.length) throw forbidden();
  }
}

/** Keys by collection. An update names an item with both fields or with none. */
function namedItems(changes: readonly Change[]): ReadonlyMap<string, ReadonlySet<string>> {
  const named = new Map<string, Set<string>>();
  for (const { action, columns, rows } of changes) {
    const indexes = (name: string): number[] =>
      columns.flatMap(({ field }, index) => (field.name === name ? index : []));
    const [collections, items] = [indexes('collection'), indexes('item')];
    for (const row of rows) {
      const isSet = [...collections, ...items].some((index) => `c${index}` in row || `v${index}` in row);
      if (action === 'update' && !isSet) continue;
      const valueIn = (of: readonly number[]): unknown =>
        of.map((index) => row[`c${index}`]).find((value) => value != null);
      const [name, key] = [valueIn(collections), valueIn(items)];
      if (typeof name !== 'string' || typeof key !== 'string') throw forbidden();
      named.set(name, (named.get(name) ?? new Set()).add(key));
    }
  }
  return named;
}
