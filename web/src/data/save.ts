/** Sends pending changes, and shows a refusal at the cell that it names. */
import { ApiError, call, itemsPath, messageOf } from '../api';
import type { Collection } from '../model';
import { toast } from '../state';
import { markConflicts } from './conflicts';
import type { Edits } from './edits';

/** A second click may arrive before the button is disabled. */
const saving = new WeakSet<Edits>();

/** Returns whether the changes were saved. */
export async function saveEdits(collection: Collection, edits: Edits): Promise<boolean> {
  if (saving.has(edits)) return false;
  saving.add(edits);
  try {
    return await send(collection, edits);
  } finally {
    saving.delete(edits);
  }
}

async function send(collection: Collection, edits: Edits): Promise<boolean> {
  edits.errors.value = new Map();
  const changes = edits.count;
  const sent = edits.all.value;
  try {
    const payload = edits.payload();
    if ((await markConflicts(collection, edits)) > 0) return false;
    await (collection.singleton
      ? call('PATCH', itemsPath(collection.name), { body: payload[0] })
      : call('PATCH', `${itemsPath(collection.name)}?fields=${collection.keys.join(',')}`, {
          body: payload,
          headers: attemptOf(edits, payload),
        }));
    forgetAttempt(edits);
    edits.forgetSaved(sent);
    toast(changes === 1 ? 'One change saved' : `${changes} changes saved, in one statement`);
    return true;
  } catch (error) {
    if (!placed(error, edits)) toast(`Not saved: ${messageOf(error)}`, 'bad');
    return false;
  }
}

const attempts = new WeakMap<Edits, { readonly text: string; readonly key: string }>();

/** The header with which the service executes a repeated attempt once: the response of the first may have been lost. */
export function attemptOf(edits: Edits, payload: unknown): Readonly<Record<string, string>> {
  const text = JSON.stringify(payload);
  const known = attempts.get(edits);
  const random = (): string => [...crypto.getRandomValues(new Uint32Array(4))].join('-');
  const attempt = known?.text === text ? known : { text, key: `explorer-${random()}` };
  attempts.set(edits, attempt);
  return { 'Idempotency-Key': attempt.key };
}

/** Changes that are saved have no further attempts: the same change may be made again later. */
export function forgetAttempt(edits: Edits): void {
  attempts.delete(edits);
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
