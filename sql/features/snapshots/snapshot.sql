-- What a snapshot of the schemas $1, a JSON list, needs beyond sql/introspect.sql, as one document: the types of columns with lengths and
-- precisions (per table, {column: type}), primary keys, plain indexes and foreign keys over several columns, and the values of enums by
-- their names. A type of the first schema is named without it, an enum of another one with it. Users may have added columns to the
-- service's tables, which are in the schema $2.
with tables as materialized (
  select class.oid, class.relname, namespace.nspname
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where (namespace.nspname = $2::text or namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))) and class.relkind in ('r', 'p')
),
enums as materialized (
  select type.oid, type.typarray, type.typname, case when namespace.nspname <> $3::text then namespace.nspname end as schema,
    case when namespace.nspname = $3::text then pg_catalog.quote_ident(type.typname)
      else pg_catalog.format('%I.%I', namespace.nspname, type.typname) end as display
  from pg_catalog.pg_type type
  join pg_catalog.pg_namespace namespace on namespace.oid = type.typnamespace
  where type.typtype = 'e' and namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
)
select pg_catalog.json_build_object(
  'types', (
    select coalesce(pg_catalog.json_agg(listed), '[]')
    from (
      select tables.nspname as schema, tables.relname as table, pg_catalog.json_object_agg(
        attribute.attname, coalesce(
          enums.display || case when enums.oid = attribute.atttypid then '' else '[]' end,
          pg_catalog.format_type(attribute.atttypid, attribute.atttypmod)
        )
      ) as types
      from tables
      join pg_catalog.pg_attribute attribute on attribute.attrelid = tables.oid
      left join enums on attribute.atttypid in (enums.oid, enums.typarray)
      where attribute.attnum > 0 and not attribute.attisdropped
      group by tables.nspname, tables.relname
    ) listed
  ),
  'primary_keys', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', tables.nspname,
      'table', tables.relname,
      'fields', (
        select pg_catalog.json_agg(attribute.attname order by key.position)
        from pg_catalog.unnest(index.indkey::int2[]) with ordinality key (number, position)
        join pg_catalog.pg_attribute attribute on attribute.attrelid = tables.oid and attribute.attnum = key.number
        where key.position <= index.indnkeyatts
      )
    )), '[]')
    from tables
    join pg_catalog.pg_index index on index.indrelid = tables.oid and index.indisprimary
  ),
  'foreign_keys', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', tables.nspname,
      'table', tables.relname,
      'name', reference.conname,
      'fields', columns.names,
      'target_schema', target_namespace.nspname,
      'target_table', target.relname,
      'related_fields', columns.referenced,
      'on_delete', reference.confdeltype,
      'on_update', reference.confupdtype,
      'full', reference.confmatchtype = 'f',
      'deferrable', case when reference.condeferrable then
        case when reference.condeferred then 'INITIALLY DEFERRED' else 'INITIALLY IMMEDIATE' end end,
      'some', reference.confdelsetcols is not null or (pg_catalog.to_jsonb(reference) ->> 'conenforced') = 'false'
        or (pg_catalog.to_jsonb(reference) ->> 'conperiod') = 'true'
    ) order by tables.nspname, tables.relname, columns.names::text, target_namespace.nspname, target.relname, reference.conname), '[]')
    from tables
    join pg_catalog.pg_constraint reference on reference.conrelid = tables.oid and reference.contype = 'f' and reference.conparentid = 0
    join pg_catalog.pg_class target on target.oid = reference.confrelid
    join pg_catalog.pg_namespace target_namespace on target_namespace.oid = target.relnamespace
    cross join lateral (
      select pg_catalog.json_agg(own.attname order by pair.position) as names,
        pg_catalog.json_agg(other.attname order by pair.position) as referenced
      from rows from (pg_catalog.unnest(reference.conkey), pg_catalog.unnest(reference.confkey)) with ordinality pair (number, referred, position)
      join pg_catalog.pg_attribute own on own.attrelid = tables.oid and own.attnum = pair.number
      join pg_catalog.pg_attribute other on other.attrelid = target.oid and other.attnum = pair.referred
    ) columns
    where pg_catalog.cardinality(reference.conkey) > 1
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
  -- Only of PostgreSQL 18 and later: older catalogs do not have these columns.
  'virtual', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', tables.nspname, 'table', tables.relname, 'name', attribute.attname)), '[]')
    from tables
    join pg_catalog.pg_attribute attribute on attribute.attrelid = tables.oid and attribute.attgenerated = 'v'
    where not attribute.attisdropped
  ),
  -- Columns whose default is that of their domain.
  'domain_defaults', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', tables.nspname, 'table', tables.relname, 'name', attribute.attname)), '[]')
    from tables
    join pg_catalog.pg_attribute attribute on attribute.attrelid = tables.oid and attribute.attnum > 0 and not attribute.atthasdef
    join pg_catalog.pg_type type on type.oid = attribute.atttypid and type.typtype = 'd' and type.typdefault is not null
    where not attribute.attisdropped
  ),
  'constraints', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', tables.nspname, 'table', tables.relname, 'name', owner.conname, 'type', owner.contype)
      order by tables.nspname, tables.relname, owner.conname), '[]')
    from tables
    join pg_catalog.pg_constraint owner on owner.conrelid = tables.oid and owner.conparentid = 0
    where (owner.contype in ('p', 'u') and (pg_catalog.to_jsonb(owner) ->> 'conperiod') = 'true')
      or (owner.contype = 'f' and (pg_catalog.to_jsonb(owner) ->> 'conenforced') = 'false')
  ),
  'enums', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('schema', enums.schema, 'name', enums.typname, 'values', (
      select pg_catalog.json_agg(label.enumlabel order by label.enumsortorder)
      from pg_catalog.pg_enum label where label.enumtypid = enums.oid
    ))), '[]')
    from enums
    where exists (select from pg_catalog.pg_enum label where label.enumtypid = enums.oid)
  )
)::text
