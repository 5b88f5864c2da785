/** Keys of earlier operations that a transaction writes as values: the caller could read them there, so it must be allowed to read them. */
import { forbidden } from '../../../base/errors.js';
import type { Model } from '../../../compiler/model/model.js';
import type { Access } from '../../../compiler/plan/access.js';
import { servedCollection } from '../../../compiler/plan/read.js';
import { shownKey } from '../../../compiler/plan/write/key.js';
import { readableKeys, type ValueReference } from '../../../compiler/plan/write/reference-places.js';
import { parseCountOfKeys } from '../../../compiler/request/rest.js';
import type { Key } from '../../../compiler/request/write.js';
import { countInSession, type TransactionContext } from '../reads/session-reads.js';
import type { WrittenKeys } from './transaction.js';

interface ReadableKeys extends TransactionContext {
  readonly model: Model;
  readonly access: Access | null;
}

export async function checkDisclosure(
  values: readonly ValueReference[],
  written: WrittenKeys,
  context: ReadableKeys,
): Promise<void> {
  const { model, access, parseLimits } = context;
  const limited = new Map<string, { readonly first: ValueReference; readonly keys: Set<Key> }>();
  for (const value of values) {
    const { collection: name, reference } = value;
    const collection = servedCollection(model, name);
    const readable = readableKeys(collection, access, model);
    if (readable === 'none') throw undisclosed(value);
    const key = shownKey(collection, written.get(reference.operation)?.[reference.item ?? 0]);
    if (readable === 'all' || key === null) continue;
    const known = limited.get(name) ?? { first: value, keys: new Set() };
    limited.set(name, known);
    known.keys.add(key);
  }
  for (const [name, { first, keys }] of limited) {
    const count = await countInSession(context, parseCountOfKeys(name, [...keys], parseLimits));
    if (count !== keys.size) throw undisclosed(first);
  }
}

function undisclosed({ collection, reference }: ValueReference): Error {
  return forbidden(
    `"$ref": "${reference.text}" stands for a value here: this requires permission to read the key of the item in "${collection}"`,
  );
}
