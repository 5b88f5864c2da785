/** Whether the names in a snapshot belong together. */
import { invalidPayload } from '../../base/errors.js';
import type { Steps } from '../../base/time-slices.js';
import type { Snapshot } from './parse-snapshot.js';

/** Every name a name of something: what is wrong shows before anything is changed. For whole snapshots, not for parts. */
export function* checkNames(
  { collections, fields, relations }: Snapshot,
  isSystem: (collection: string) => boolean,
): Steps<void> {
  const known = new Map(collections.map((entry) => [entry.collection, entry]));
  const columns = new Set<string>();
  const aliases = new Set<string>();
  const keys = new Map<string, string[]>();
  for (const { collection, field, schema } of fields) {
    yield;
    if (!isSystem(collection) && !known.get(collection)?.schema)
      throw invalidPayload(`The field "${collection}.${field}" belongs to no table of the snapshot`);
    (schema ? columns : aliases).add(JSON.stringify([collection, field]));
    if (schema?.is_primary_key) keys.set(collection, [...(keys.get(collection) ?? []), field]);
  }
  for (const { collection, schema, meta } of collections) {
    yield;
    if (isSystem(collection)) throw invalidPayload(`The collection "${collection}" is one of the service itself`);
    if (schema) checkKey(collection, schema.primary_key ?? null, keys.get(collection) ?? []);
    const lists = [...(schema?.indexes ?? []), ...(schema?.foreign_keys ?? [])].map(({ fields }) => fields);
    const unknown = lists.flat().find((name) => !columns.has(JSON.stringify([collection, name])));
    if (unknown !== undefined)
      throw invalidPayload(
        `An index or foreign key of "${collection}" is over "${unknown}", which is not one of its columns`,
      );
    for (const { related_collection: related, related_fields } of schema?.foreign_keys ?? []) {
      const missing = related_fields.find((name) => !columns.has(JSON.stringify([related, name])));
      if (missing !== undefined)
        throw invalidPayload(
          `A foreign key of "${collection}" refers to "${related}.${missing}", which is not a column`,
        );
    }
    if (!schema && meta === null)
      throw invalidPayload(`The collection "${collection}" has neither a table nor metadata`);
    const group = meta?.['group'] ?? null;
    if (typeof group === 'string' && !known.get(group)?.meta)
      throw invalidPayload(`The collection "${collection}" is in the group "${group}", which is not in the snapshot`);
  }
  for (const { collection, field, related_collection, schema } of relations) {
    yield;
    // A composite reference is represented by an alias field.
    const isAlias = schema === null && aliases.has(JSON.stringify([collection, field]));
    if (!isSystem(collection) && !columns.has(JSON.stringify([collection, field])) && !isAlias)
      throw invalidPayload(`The relation "${collection}.${field}" belongs to no column of the snapshot`);
    if (related_collection !== null && !isSystem(related_collection) && !known.get(related_collection)?.schema)
      throw invalidPayload(`The relation "${collection}.${field}" refers to no table of the snapshot`);
  }
}

/** One of several fields, and the absence of any, is said at the table: a key that was forgotten is noticed. */
function checkKey(collection: string, declared: readonly string[] | null, marked: readonly string[]): void {
  if (declared === null) {
    if (marked.length === 1) return;
    throw invalidPayload(
      `The collection "${collection}" needs a field that is its primary key, or "schema.primary_key": [] for none`,
    );
  }
  const isSame = declared.length === marked.length && declared.every((name) => marked.includes(name));
  if (!isSame)
    throw invalidPayload(`"schema.primary_key" of "${collection}" must name the fields with "is_primary_key"`);
}
