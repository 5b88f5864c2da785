/** Sends pending changes, and shows a refusal at the cell that it names. */
import { ApiError, call, itemsPath, messageOf } from '../api';
import type { Collection } from '../model';
import { toast } from '../state';
import type { Edits } from './edits';

/** Returns whether the changes were saved. */
export async function saveEdits(collection: Collection, edits: Edits): Promise<boolean> {
  edits.errors.value = new Map();
  const changes = edits.count;
  try {
    const payload = edits.payload();
    await (collection.singleton
      ? call('PATCH', itemsPath(collection.name), { body: payload[0] })
      : call('PATCH', `${itemsPath(collection.name)}?fields=${collection.keys.join(',')}`, { body: payload }));
    edits.clear();
    toast(changes === 1 ? 'One change saved' : `${changes} changes saved, in one statement`);
    return true;
  } catch (error) {
    if (!placed(error, edits)) toast(`Not saved: ${messageOf(error)}`, 'bad');
    return false;
  }
}

/** Whether the error could be shown at its cell. */
export function placed(error: unknown, edits: Edits): boolean {
  if (!(error instanceof ApiError)) return false;
  const results = error.failures.map(({ message, extensions }) => {
    const { path } = extensions;
    // If a type refuses a value, only the message names the field.
    const field = extensions['field'] ?? edits.fields.find((name) => message.includes(`"${name}"`));
    return typeof field === 'string' && edits.placeError(field, Array.isArray(path) ? path : [], message);
  });
  return results.length > 0 && results.every(Boolean);
}
