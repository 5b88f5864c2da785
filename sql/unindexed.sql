-- Foreign keys over one column of the schemas $1, a JSON list, that no index begins with, as one document. Who deletes what is referred to, or reads
-- the list on the other side, has the whole table read for each of them.
select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
  'schema', namespace.nspname,
  'table', class.relname,
  'column', attribute.attname,
  'partitioned', class.relkind = 'p'
) order by namespace.nspname, class.relname, attribute.attname), '[]')::text
from pg_catalog.pg_constraint reference
join pg_catalog.pg_class class on class.oid = reference.conrelid
join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
join pg_catalog.pg_attribute attribute on attribute.attrelid = class.oid and attribute.attnum = reference.conkey[1]
where namespace.nspname in (select pg_catalog.json_array_elements_text($1::json)) and reference.contype = 'f' and reference.conparentid = 0
  and pg_catalog.cardinality(reference.conkey) = 1 and not class.relispartition
  and not exists (
    select from pg_catalog.pg_index index
    where index.indrelid = class.oid and index.indisvalid and index.indkey[0] = reference.conkey[1] and index.indpred is null
  )
