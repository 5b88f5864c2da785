/** Deletion of items by their keys: all of them, or none and an error. */
import type { Collection } from '../mirror/model.js';
import { alias, parameter, sql } from '../sql/fragment.js';
import { type Statement, statement } from '../sql/statement.js';
import { columnName, tableName, typeName } from './source.js';

export function compileDelete(collection: Collection): Statement {
  const key = collection.primaryKey;
  const keys = parameter({
    kind: 'list',
    slot: 0,
    codec: key.column?.base_type ?? 'text',
    field: key.name,
    use: 'key',
  });
  const wanted = sql`${alias('k')} as materialized (select distinct unnest(${keys}::${typeName(key)}[]) as k)`;
  const rows = sql`delete from ${tableName(collection)} ${alias('t')} using ${alias('k')} where ${alias('t')}.${columnName(key)} = ${alias('k')}.k returning ${alias('t')}.${columnName(key)}`;
  const missing = sql`(select count(*) from ${alias('w')}) < (select count(*) from ${alias('k')})`;
  return statement(
    sql`with ${wanted}, ${alias('w')} as (${rows}) select case when ${missing} then service_raise('missing') end`,
  );
}
