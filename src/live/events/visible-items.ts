/** What a caller sees of a collection, and the items and keys in answers. */
import { unprocessable } from '../../base/errors.js';
import { showsKey } from '../../mirror/item-key.js';
import type { Collection } from '../../mirror/model.js';
import type { RestrictedCollection } from '../../plan/access.js';
import { isAlways } from '../../plan/plan.js';
import type { Source } from '../../postgres/changes/publication.js';
import { joinKey } from '../../sql/key-text.js';
import { tableKey } from '../dependencies.js';

/** Whether the caller whose collection this is sees all of its rows. */
export function showsAllRows(collection: Collection): boolean {
  return !isRestricted(collection) || isAlways(collection.restriction.rows);
}

/** Whether the caller sees the keys of all rows that they see. */
export function showsKeys(collection: Collection): boolean {
  if (!showsKey(collection)) return false;
  return !isRestricted(collection) || collection.key.every(({ name }) => !collection.restriction.masks.has(name));
}

function isRestricted(collection: Collection): collection is RestrictedCollection {
  return 'restriction' in collection;
}

const OPENING = Buffer.from('{"data":[');

/** The only item of the answer; null where there is none. */
export function itemIn(body: Buffer | null): Buffer | null {
  const item = body?.subarray(OPENING.length, body.length - 2) ?? null;
  return item === null || item.length === 0 ? null : Buffer.from(item);
}

export function keysIn(body: Buffer | null, names: readonly string[]): string[] {
  const { data = [] }: { data?: Record<string, unknown>[] } = body === null ? {} : JSON.parse(String(body));
  const [only] = names;
  return data.map((item) =>
    names.length === 1 && only ? String(item[only]) : joinKey(names.map((name) => item[name])),
  );
}

/** Of a view nobody says which of its rows have changed. `sources`: what is below each; null until that is known. */
export function checkTable(collection: Collection, sources: ReadonlyMap<string, readonly Source[]> | null): void {
  const { schema, table, name, key } = collection;
  if (key.length === 0) throw unprocessable(`There are no events of "${name}": its items have no key`);
  const own = tableKey({ schema, name: table });
  const source = sources?.get(own)?.find((each) => tableKey(each) === own);
  if (sources !== null && source === undefined)
    throw unprocessable(`There are no events of "${name}": it is not a table`);
  if (source && source.unseen !== null) throw unprocessable(`There are no events of "${name}": ${source.unseen}`);
}
