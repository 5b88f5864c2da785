/** Whether the names in a snapshot belong together. */
import { invalidPayload } from '../errors.js';
import type { Snapshot } from './parse-snapshot.js';

/** Every name a name of something: what is wrong shows before anything is changed. For whole snapshots, not for parts. */
export function checkNames(
  { collections, fields, relations }: Snapshot,
  isSystem: (collection: string) => boolean,
): void {
  const known = new Map(collections.map((entry) => [entry.collection, entry]));
  const columns = new Set<string>();
  const keys = new Map<string, number>();
  for (const { collection, field, schema } of fields) {
    if (!isSystem(collection) && !known.get(collection)?.schema)
      throw invalidPayload(`The field "${collection}.${field}" belongs to no table of the snapshot`);
    if (schema) columns.add(JSON.stringify([collection, field]));
    if (schema?.is_primary_key) keys.set(collection, (keys.get(collection) ?? 0) + 1);
  }
  for (const { collection, schema, meta } of collections) {
    if (isSystem(collection)) throw invalidPayload(`The collection "${collection}" is one of the service itself`);
    if (schema && keys.get(collection) !== 1)
      throw invalidPayload(`The collection "${collection}" needs exactly one field that is its primary key`);
    const stranger = schema?.indexes
      .flatMap(({ fields }) => fields)
      .find((name) => !columns.has(JSON.stringify([collection, name])));
    if (stranger !== undefined)
      throw invalidPayload(`An index of "${collection}" is over "${stranger}", which is no column of it`);
    if (!schema && meta === null)
      throw invalidPayload(`The collection "${collection}" has neither a table nor metadata`);
    const group = meta?.['group'] ?? null;
    if (typeof group === 'string' && !known.get(group)?.meta)
      throw invalidPayload(`The collection "${collection}" is in a group "${group}" that the snapshot does not have`);
  }
  for (const { collection, field, related_collection } of relations) {
    if (!isSystem(collection) && !columns.has(JSON.stringify([collection, field])))
      throw invalidPayload(`The relation "${collection}.${field}" belongs to no column of the snapshot`);
    if (related_collection !== null && !isSystem(related_collection) && !known.get(related_collection)?.schema)
      throw invalidPayload(`The relation "${collection}.${field}" leads to no table of the snapshot`);
  }
}
