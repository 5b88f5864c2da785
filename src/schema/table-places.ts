/** In which schema the table of a new collection is made, and what the metadata has to say so that it gets its name. */
import { invalidPayload } from '../errors.js';
import type { Model } from '../mirror/model.js';
import type { TablePlace } from './ddl-statement.js';
import type { Meta } from './parse-meta.js';
import { checkNewName } from './plan-names.js';

/** Null for the first schema and the collection's own name, where every table is made by default. */
export function placeOf(
  collection: string,
  { schema, name }: { readonly schema?: string | undefined; readonly name?: string | undefined },
  model: Model,
): TablePlace | null {
  const place = { schema: schema ?? model.schema, name: name ?? nameIn(collection, schema ?? model.schema, model) };
  if (place.schema === model.schema && place.name === collection) return null;
  if (!model.schemas.includes(place.schema))
    throw invalidPayload(
      `The table of "${collection}" is in schema "${place.schema}", which DATABASE_SCHEMAS does not name`,
    );
  checkNewName(place.name);
  for (const each of model.collections.values()) {
    if (each.schema === place.schema && each.table === place.name)
      throw invalidPayload(
        `The table "${place.name}" of schema "${place.schema}" is the collection "${each.name}" already`,
      );
  }
  return place;
}

/** What a row of service_collections says of a table whose own name is not the collection's; null where none is needed. */
export function namingOf(collection: string, place: TablePlace | null, model: Model): Meta | null {
  if (place === null || (place.schema !== model.schema && `${place.schema}_${place.name}` === collection)) return null;
  return { schema: place.schema === model.schema ? null : place.schema, table: place.name };
}

function nameIn(collection: string, schema: string, model: Model): string {
  const prefix = `${schema}_`;
  return schema !== model.schema && collection.startsWith(prefix) ? collection.slice(prefix.length) : collection;
}
