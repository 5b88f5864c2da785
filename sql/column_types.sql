-- The types of all columns of the schema $1 with their lengths and precisions, as {table: {column: type}}. Apart from
-- sql/introspect.sql, since only snapshots need them.
select coalesce(pg_catalog.json_object_agg(tables.relname, tables.types), '{}')::text as types
from (
  select class.relname, pg_catalog.json_object_agg(
    attribute.attname, pg_catalog.format_type(attribute.atttypid, attribute.atttypmod)
  ) as types
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  join pg_catalog.pg_attribute attribute on attribute.attrelid = class.oid
  where namespace.nspname = $1::text
    and class.relkind in ('r', 'p')
    and attribute.attnum > 0
    and not attribute.attisdropped
  group by class.oid
) tables
