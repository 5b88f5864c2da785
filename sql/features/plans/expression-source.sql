-- The expression that is the first key of the index $2 in the schema $1, if it reads one column of its table.
select source.attname as "column", pg_catalog.format_type(source.atttypid, null) as type,
  pg_catalog.pg_get_indexdef(index.indexrelid, 1, false) as expression, own.attname as attribute
from pg_catalog.pg_index index
join pg_catalog.pg_class class on class.oid = index.indexrelid and class.relname = $2::pg_catalog.text
join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace and namespace.nspname = $1::pg_catalog.text
join pg_catalog.pg_attribute own on own.attrelid = index.indexrelid and own.attnum = 1
join lateral (
  select distinct depend.refobjsubid as number
  from pg_catalog.pg_depend depend
  where depend.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and depend.objid = index.indexrelid
    and depend.refobjid = index.indrelid and depend.refobjsubid > 0
    and not depend.refobjsubid = any (index.indkey::int2[])
) read on true
join pg_catalog.pg_attribute source on source.attrelid = index.indrelid and source.attnum = read.number
where index.indkey[0] = 0 and pg_catalog.cardinality(pg_catalog.array_positions(index.indkey::int2[], 0::int2)) = 1
