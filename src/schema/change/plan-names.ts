/** Names in changes of the schema: who is meant, whether it may be changed, and what new constraints are called. */
import { createHash } from 'node:crypto';
import { forbidden, forbiddenCollection, invalidPayload } from '../../base/errors.js';
import type { Collection, Field, Model } from '../../mirror/model.js';
import type { Protected } from '../../postgres/catalog/system-tables.js';

/** A collection with fields: folders have none. */
export function requireCollection(model: Model, name: string): Collection {
  const collection = model.collections.get(name);
  if (collection) return collection;
  if (model.folders.has(name)) throw invalidPayload(`The collection "${name}" is a folder`);
  const reason = model.refused.get(name);
  throw reason ? forbidden(`"${name}" cannot be served: it ${reason}.`) : forbiddenCollection(name);
}

export function requireField(collection: Collection, name: string): Field {
  const field = collection.fields.get(name);
  if (field) return field;
  throw forbidden(
    `You don't have permission to access field "${name}" in collection "${collection.name}" or it does not exist.`,
  );
}

/** Whether the field is part of the service itself. */
export function isProtected(collection: Collection, field: string, protectedTables: Protected): boolean {
  return collection.system && protectedTables.isSystemField(collection.name, field);
}

/** Names that the compilers and the metadata need for themselves, in whatever way they came here. */
export function checkNewName(name: string): void {
  if (name === '' || name.includes('\0') || Buffer.byteLength(name) > 63)
    throw invalidPayload('A name must have 1 to 63 bytes and no NUL character');
  if (name.startsWith('%')) throw invalidPayload('A name cannot begin with %');
}

const MAX_NAME_BYTES = 63;

/** `articles_slug_unique`. What is shortened or spelt otherwise gets a digest, so that two of them never meet. */
export function constraintName(table: string, column: string, suffix: 'unique' | 'index' | 'foreign'): string {
  const exact = `${table}_${column}_${suffix}`;
  const name = exact.toLowerCase().replace(/[^\w]/g, '_');
  if (name === exact && Buffer.byteLength(exact) <= MAX_NAME_BYTES) return name;
  const digest = createHash('sha256')
    .update(JSON.stringify([table, column]))
    .digest('hex')
    .slice(0, 8);
  return `${name.slice(0, MAX_NAME_BYTES - suffix.length - digest.length - 2)}_${digest}_${suffix}`;
}
