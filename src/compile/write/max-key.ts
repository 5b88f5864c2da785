/** The highest value in the column of a key that a sequence fills, as a string; null where the collection has no items. */
import type { Collection, Field } from '../../mirror/model.js';
import { type Statement, sql, statement } from '../../sql/fragment.js';
import { columnName, tableName } from '../identifiers.js';

export function compileMaxKey(collection: Collection, counted: Field): Statement {
  return statement(sql`select max(${columnName(counted)})::text from ${tableName(collection)}`);
}
