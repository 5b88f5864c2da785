-- The indexes of a twin, with what their size is estimated from, as one JSON list. $1: the schemas, a JSON list.
select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
  'schema', namespace.nspname,
  'name', class.relname,
  'table', owner.relname,
  'method', method.amname,
  'rows', owner.reltuples,
  'unique', index.indisunique,
  'definition', pg_catalog.pg_get_indexdef(index.indexrelid),
  'predicate', pg_catalog.pg_get_expr(index.indpred, index.indrelid),
  'constraint', exists (
    select from pg_catalog.pg_constraint constrained where constrained.conindid = index.indexrelid and constrained.contype in ('p', 'u', 'x')
  ) or exists (select from pg_catalog.pg_inherits attached where attached.inhrelid = index.indexrelid),
  -- The columns and expressions that it is searched by, with their operator classes, collations and order.
  'keys', (
    select pg_catalog.json_agg(pg_catalog.concat_ws(' ', pg_catalog.pg_get_indexdef(index.indexrelid, key::int4, true),
      index.indclass[key::int4 - 1], index.indcollation[key::int4 - 1], index.indoption[key::int4 - 1]) order by key)
    from pg_catalog.generate_series(1, index.indnkeyatts::int4) key
  ),
  -- All columns and expressions in order, then the included columns.
  'columns', (
    select pg_catalog.json_agg(pg_catalog.pg_get_indexdef(index.indexrelid, key::int4, true) order by key)
    from pg_catalog.generate_series(1, index.indnatts::int4) key
  ),
  -- The widths of its columns; null for an expression, and for a column without statistics.
  'widths', (
    select coalesce(pg_catalog.json_agg(found.avg_width order by key.position), '[]')
    from pg_catalog.unnest(index.indkey::int2[]) with ordinality key (number, position)
    left join pg_catalog.pg_attribute attribute on attribute.attrelid = index.indrelid and attribute.attnum = key.number and key.number > 0
    left join lateral (
      select stats.avg_width from pg_catalog.pg_stats stats
      where stats.schemaname = namespace.nspname and stats.tablename = owner.relname and stats.attname = attribute.attname
      order by stats.inherited desc limit 1
    ) found on true
  )
) order by namespace.nspname, class.relname), '[]')::text
from pg_catalog.pg_index index
join pg_catalog.pg_class class on class.oid = index.indexrelid
join pg_catalog.pg_class owner on owner.oid = index.indrelid
join pg_catalog.pg_namespace namespace on namespace.oid = owner.relnamespace
join pg_catalog.pg_am method on method.oid = class.relam
where namespace.nspname in (select pg_catalog.json_array_elements_text($1::json)) and class.relkind = 'i'
