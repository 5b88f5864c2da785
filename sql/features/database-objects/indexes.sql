-- Indexes of the tables of the schemas $1, a JSON list, with their size and how often PostgreSQL scanned them, as one document. Scans
-- count since the last reset of the statistics.
select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
  'schema', namespace.nspname,
  'table', class.relname,
  'name', relation.relname,
  'columns', named.columns,
  'method', method.amname,
  'definition', pg_catalog.pg_get_indexdef(index.indexrelid),
  'unique', index.indisunique,
  'primary', index.indisprimary,
  'constraint', (
    select reference.contype from pg_catalog.pg_constraint reference
    where reference.conindid = index.indexrelid and reference.conrelid = class.oid and reference.contype in ('p', 'u', 'x')
  ),
  'valid', index.indisvalid,
  'bytes', case when relation.relkind = 'i' then pg_catalog.pg_relation_size(index.indexrelid) end,
  'scans', coalesce(pg_catalog.pg_stat_get_numscans(index.indexrelid), 0)
) order by namespace.nspname, class.relname, relation.relname), '[]')::text
from pg_catalog.pg_index index
join pg_catalog.pg_class class on class.oid = index.indrelid
join pg_catalog.pg_class relation on relation.oid = index.indexrelid
join pg_catalog.pg_am method on method.oid = relation.relam
join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
cross join lateral (
  select pg_catalog.json_agg(attribute.attname order by key.position) as columns
  from pg_catalog.unnest(index.indkey::int2[]) with ordinality key (number, position)
  left join pg_catalog.pg_attribute attribute on attribute.attrelid = class.oid and attribute.attnum = key.number and key.number > 0
  where key.position <= index.indnkeyatts
) named
where namespace.nspname in (select pg_catalog.json_array_elements_text($1::json)) and not class.relispartition
