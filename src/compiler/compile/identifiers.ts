/** Names of tables, columns and types as SQL. */
import type { Collection, Field } from '../model/model.js';
import { type Fragment, identifier } from '../sql/fragment.js';

export function tableName(collection: Collection): Fragment {
  return identifier(collection.schema, collection.table);
}

export function columnName(field: Field): Fragment {
  if (!field.column) throw new Error(`the field "${field.name}" of "${field.collection}" has no column`);
  return identifier(field.column.name);
}

/** The type below domains. Parameters are cast to it, so that an index on the column can serve them. */
export function typeName(field: Field): Fragment {
  if (!field.column) throw new Error(`the field "${field.name}" of "${field.collection}" has no column`);
  return identifier(field.column.base_schema, field.column.base_type);
}
