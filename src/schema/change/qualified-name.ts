/** In which schema the table of a new collection is made, and what the metadata has to say so that it gets its name. */
import { invalidPayload } from '../../base/errors.js';
import type { Model } from '../../mirror/model.js';
import type { QualifiedName } from './ddl-statement.js';
import type { Meta } from './parse-meta.js';
import { checkNewName } from './plan-names.js';

/** Null for the first schema and the collection's own name, where every table is made by default. */
export function qualifiedNameOf(
  collection: string,
  { schema, name }: { readonly schema?: string | undefined; readonly name?: string | undefined },
  model: Model,
): QualifiedName | null {
  const qualifiedName = {
    schema: schema ?? model.schema,
    name: name ?? tableNameIn(collection, schema ?? model.schema, model),
  };
  if (qualifiedName.schema === model.schema && qualifiedName.name === collection) return null;
  if (!model.schemas.includes(qualifiedName.schema))
    throw invalidPayload(
      `The table of "${collection}" is in schema "${qualifiedName.schema}", which is not in DATABASE_SCHEMAS`,
    );
  checkNewName(qualifiedName.name);
  for (const each of model.collections.values()) {
    if (each.schema === qualifiedName.schema && each.table === qualifiedName.name)
      throw invalidPayload(
        `The table "${qualifiedName.name}" of schema "${qualifiedName.schema}" is already the collection "${each.name}"`,
      );
  }
  return qualifiedName;
}

/** The row of service_collections for a table whose name differs from the collection's, or null if none is needed. */
export function namingMetaOf(collection: string, qualifiedName: QualifiedName | null, model: Model): Meta | null {
  if (
    qualifiedName === null ||
    (qualifiedName.schema !== model.schema && `${qualifiedName.schema}_${qualifiedName.name}` === collection)
  )
    return null;
  return { schema: qualifiedName.schema === model.schema ? null : qualifiedName.schema, table: qualifiedName.name };
}

function tableNameIn(collection: string, schema: string, model: Model): string {
  const prefix = `${schema}_`;
  return schema !== model.schema && collection.startsWith(prefix) ? collection.slice(prefix.length) : collection;
}
