-- What a snapshot of the schemas $1, a JSON list, needs beyond sql/introspect.sql, as one document: the types of columns with lengths and
-- precisions (per table, {column: type}), plain indexes over several columns, and the values of enums of the schema $3 by their names. Users may
-- have added columns to the service's tables, which are in the schema $2.
with tables as materialized (
  select class.oid, class.relname, namespace.nspname
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where (namespace.nspname = $2::text or namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))) and class.relkind in ('r', 'p')
)
select pg_catalog.json_build_object(
  'types', (
    select coalesce(pg_catalog.json_agg(listed), '[]')
    from (
      select tables.nspname as schema, tables.relname as table, pg_catalog.json_object_agg(
        attribute.attname, pg_catalog.format_type(attribute.atttypid, attribute.atttypmod)
      ) as types
      from tables
      join pg_catalog.pg_attribute attribute on attribute.attrelid = tables.oid
      where attribute.attnum > 0 and not attribute.attisdropped
      group by tables.nspname, tables.relname
    ) listed
  ),
  'indexes', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', tables.nspname,
      'table', tables.relname,
      'name', named.relname,
      'fields', columns.names,
      'unique', index.indisunique,
      'constraint', exists (
        select from pg_catalog.pg_constraint owner where owner.conindid = index.indexrelid and owner.contype = 'u'
      )
    ) order by tables.nspname, tables.relname, columns.names::text, index.indisunique, named.relname), '[]')
    from tables
    join pg_catalog.pg_index index on index.indrelid = tables.oid
    join pg_catalog.pg_class named on named.oid = index.indexrelid
    join pg_catalog.pg_am method on method.oid = named.relam
    cross join lateral (
      select pg_catalog.json_agg(attribute.attname order by key.position) as names
      from pg_catalog.unnest(index.indkey::int2[]) with ordinality key (number, position)
      join pg_catalog.pg_attribute attribute on attribute.attrelid = tables.oid and attribute.attnum = key.number
    ) columns
    where index.indisvalid and not index.indisprimary and not index.indisexclusion
      and index.indnkeyatts > 1 and index.indnatts = index.indnkeyatts
      and index.indexprs is null and index.indpred is null and not index.indnullsnotdistinct
      and method.amname = 'btree' and 0 = all (index.indoption::int2[])
  ),
  'enums', (
    select coalesce(pg_catalog.json_object_agg(listed.typname, listed.labels), '{}')
    from (
      select type.typname, pg_catalog.json_agg(label.enumlabel order by label.enumsortorder) as labels
      from pg_catalog.pg_type type
      join pg_catalog.pg_namespace namespace on namespace.oid = type.typnamespace
      join pg_catalog.pg_enum label on label.enumtypid = type.oid
      where namespace.nspname = $3::text
      group by type.typname
    ) listed
  )
)::text
