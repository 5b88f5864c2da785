/** Names in schema changes: the collection or field that is meant, new names of constraints, and where a new table goes. */
import { forbidden, forbiddenCollection, invalidPayload } from '../../../base/errors.js';
import type { Meta } from '../../../compiler/model/metadata.js';
import type { Collection, Field, Model } from '../../../compiler/model/model.js';
import { isSystemField } from '../../postgres/catalog/system-tables.js';
import type { QualifiedName } from './ddl-statement.js';

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
export function isProtected(collection: Collection, field: string): boolean {
  return collection.system && isSystemField(collection.name, field);
}

/** Names that the compilers and the metadata need for themselves, in whatever way they came here. */
export function checkNewName(name: string): void {
  if (name === '' || name.includes('\0') || Buffer.byteLength(name) > 63)
    throw invalidPayload('A name must have 1 to 63 bytes and no NUL character');
  if (name.startsWith('%')) throw invalidPayload('A name cannot begin with %');
}

/** The schema and name of a new table, or null for the defaults: the first schema and the collection's name. */
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
