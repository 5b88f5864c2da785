-- Foreign keys of the schemas $1, a JSON list, whose columns no index begins with, in whatever order, as one document. Who deletes
-- what is referred to, or reads the list on the other side, has the whole table read for each of them.
select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
  'schema', namespace.nspname,
  'table', class.relname,
  'columns', named.columns,
  'partitioned', class.relkind = 'p'
) order by namespace.nspname, class.relname, named.columns::text), '[]')::text
from (
  select distinct conrelid, conkey from pg_catalog.pg_constraint where contype = 'f' and conparentid = 0
) reference
join pg_catalog.pg_class class on class.oid = reference.conrelid
join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
cross join lateral (
  select pg_catalog.json_agg(attribute.attname order by key.position) as columns
  from pg_catalog.unnest(reference.conkey) with ordinality key (number, position)
  join pg_catalog.pg_attribute attribute on attribute.attrelid = reference.conrelid and attribute.attnum = key.number
) named
where namespace.nspname in (select pg_catalog.json_array_elements_text($1::json)) and not class.relispartition
  and not exists (
    select from pg_catalog.pg_index index
    cross join lateral (
      select pg_catalog.array_agg(key.number) as columns
      from pg_catalog.unnest(index.indkey::int2[]) with ordinality key (number, position)
      where key.position <= pg_catalog.cardinality(reference.conkey) and key.position <= index.indnkeyatts
    ) first
    where index.indrelid = class.oid and index.indisvalid and index.indpred is null
      and first.columns @> reference.conkey and first.columns <@ reference.conkey
  )
