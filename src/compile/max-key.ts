/** The highest key of a collection, as a string; null where it has no items. */
import { requireSingleKey } from '../mirror/item-key.js';
import type { Collection } from '../mirror/model.js';
import { type Statement, sql, statement } from '../sql/fragment.js';
import { columnName, tableName } from './identifiers.js';

export function compileMaxKey(collection: Collection): Statement {
  return statement(sql`select max(${columnName(requireSingleKey(collection))})::text from ${tableName(collection)}`);
}
