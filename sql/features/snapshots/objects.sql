-- The objects of the schemas $1, a JSON list, in PostgreSQL's own words, and what snapshots leave out: one document. Names in the first
-- schema, $2, have no schema. $3: the names of the service's own tables, a JSON list, which are in the schema $4.
with recursive schemas as materialized (
  select namespace.oid, namespace.nspname, namespace.nspname in (select pg_catalog.json_array_elements_text($1::json)) as served,
    case when namespace.nspname = $2::text then '' else pg_catalog.quote_ident(namespace.nspname) || '.' end as prefix
  from pg_catalog.pg_namespace namespace
  where namespace.nspname !~ '^pg_' and namespace.nspname <> 'information_schema'
),
extended as materialized (
  select depend.classid, depend.objid from pg_catalog.pg_depend depend where depend.deptype = 'e'
),
own_tables as materialized (
  select class.oid from pg_catalog.pg_class class
  join schemas on schemas.oid = class.relnamespace and schemas.nspname = $4::text
  where class.relname in (select pg_catalog.json_array_elements_text($3::json))
),
relations as materialized (
  select class.*, schemas.nspname, schemas.prefix, schemas.prefix || pg_catalog.quote_ident(class.relname) as name
  from pg_catalog.pg_class class
  join schemas on schemas.oid = class.relnamespace and schemas.served
  where class.oid not in (select own_tables.oid from own_tables)
    and not (schemas.nspname = $4::text and class.relname ~ '^service_' and class.relkind <> 'r')
    and not exists (select from extended where extended.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and extended.objid = class.oid)
),
tables as materialized (
  select * from relations where relations.relkind in ('r', 'p') and not relations.relispartition
),
columns as materialized (
  select tables.oid, tables.nspname, tables.relname, tables.name as table_name, attribute.*,
    tables.name || '.' || pg_catalog.quote_ident(attribute.attname) as name
  from tables
  join pg_catalog.pg_attribute attribute on attribute.attrelid = tables.oid and attribute.attnum > 0 and not attribute.attisdropped
),
types as materialized (
  select type.*, schemas.nspname, schemas.prefix || pg_catalog.quote_ident(type.typname) as name
  from pg_catalog.pg_type type
  join schemas on schemas.oid = type.typnamespace and schemas.served
  left join pg_catalog.pg_class class on class.oid = type.typrelid
  where not (schemas.nspname = $4::text and type.typname ~ '^service_') and (type.typtype in ('e', 'd', 'r') or (type.typtype = 'c' and class.relkind = 'c'))
    and not exists (select from extended where extended.classid = 'pg_catalog.pg_type'::pg_catalog.regclass and extended.objid = type.oid)
),
-- Objects of users that no snapshot contains. Those of PostgreSQL itself have small numbers.
foreign_objects (classid, objid) as materialized (
  select 'pg_catalog.pg_proc'::pg_catalog.regclass::oid, routine.oid from pg_catalog.pg_proc routine where routine.oid >= 16384::oid
  union all
  select 'pg_catalog.pg_operator'::pg_catalog.regclass::oid, symbol.oid from pg_catalog.pg_operator symbol where symbol.oid >= 16384::oid
  union all
  select 'pg_catalog.pg_opclass'::pg_catalog.regclass::oid, class.oid from pg_catalog.pg_opclass class where class.oid >= 16384::oid
  union all
  select 'pg_catalog.pg_opfamily'::pg_catalog.regclass::oid, family.oid from pg_catalog.pg_opfamily family where family.oid >= 16384::oid
  union all
  select 'pg_catalog.pg_collation'::pg_catalog.regclass::oid, sorting.oid from pg_catalog.pg_collation sorting where sorting.oid >= 16384::oid
  union all
  select 'pg_catalog.pg_conversion'::pg_catalog.regclass::oid, conversion.oid from pg_catalog.pg_conversion conversion where conversion.oid >= 16384::oid
  union all
  select 'pg_catalog.pg_ts_config'::pg_catalog.regclass::oid, config.oid from pg_catalog.pg_ts_config config where config.oid >= 16384::oid
  union all
  select 'pg_catalog.pg_ts_dict'::pg_catalog.regclass::oid, dictionary.oid from pg_catalog.pg_ts_dict dictionary where dictionary.oid >= 16384::oid
  union all
  select 'pg_catalog.pg_cast'::pg_catalog.regclass::oid, conversion.oid from pg_catalog.pg_cast conversion where conversion.oid >= 16384::oid
  union all
  select 'pg_catalog.pg_statistic_ext'::pg_catalog.regclass::oid, statistics.oid from pg_catalog.pg_statistic_ext statistics
  union all
  select 'pg_catalog.pg_event_trigger'::pg_catalog.regclass::oid, trigger.oid from pg_catalog.pg_event_trigger trigger where trigger.evtname !~ '^service_'
  union all
  select 'pg_catalog.pg_publication'::pg_catalog.regclass::oid, publication.oid from pg_catalog.pg_publication publication
  union all
  select 'pg_catalog.pg_foreign_data_wrapper'::pg_catalog.regclass::oid, wrapper.oid from pg_catalog.pg_foreign_data_wrapper wrapper
  union all
  select 'pg_catalog.pg_foreign_server'::pg_catalog.regclass::oid, server.oid from pg_catalog.pg_foreign_server server
  union all
  select 'pg_catalog.pg_type'::pg_catalog.regclass::oid, type.oid from pg_catalog.pg_type type
  where type.oid >= 16384::oid and (type.typtype = 'r' or (type.typtype = 'b' and type.typelem = 0::oid))
  union all
  select 'pg_catalog.pg_class'::pg_catalog.regclass::oid, class.oid
  from pg_catalog.pg_class class
  join schemas on schemas.oid = class.relnamespace and not schemas.served and schemas.nspname <> $4::text
  where class.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
  union all
  select 'pg_catalog.pg_class'::pg_catalog.regclass::oid, class.oid from pg_catalog.pg_class class where class.relkind = 'f'
),
outside (classid, objid) as materialized (
  select foreign_objects.classid, foreign_objects.objid
  from foreign_objects
  where not exists (select from extended where extended.classid = foreign_objects.classid and extended.objid = foreign_objects.objid)
    -- Those of the service.
    and not exists (
      select from pg_catalog.pg_proc routine join schemas on schemas.oid = routine.pronamespace
      where foreign_objects.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and routine.oid = foreign_objects.objid
        and schemas.nspname = $4::text and routine.proname ~ '^service_'
    )
    and not exists (
      select from pg_catalog.pg_publication publication
      where foreign_objects.classid = 'pg_catalog.pg_publication'::pg_catalog.regclass and publication.oid = foreign_objects.objid
        and publication.pubname ~ '^service_'
    )
),
-- An object and what it uses. A view uses what its rule names.
uses as materialized (
  select case when rule.oid is null then depend.classid else 'pg_catalog.pg_class'::pg_catalog.regclass::oid end as classid,
    coalesce(rule.ev_class, depend.objid) as objid, depend.refclassid, depend.refobjid
  from pg_catalog.pg_depend depend
  left join pg_catalog.pg_rewrite rule on depend.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and rule.oid = depend.objid
    and rule.rulename = '_RETURN'
  where depend.deptype in ('n', 'a') and depend.refobjid >= 16384::oid and coalesce(rule.ev_class, depend.objid) <> depend.refobjid
    and not exists (
      select from pg_catalog.pg_class class
      where depend.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and class.oid = depend.objid and class.relkind in ('r', 'p', 'S', 't')
    )
  union all
  -- The checks of a domain, and an array's type for that of its elements.
  select 'pg_catalog.pg_type'::pg_catalog.regclass, owner.contypid, 'pg_catalog.pg_constraint'::pg_catalog.regclass, owner.oid
  from pg_catalog.pg_constraint owner where owner.contypid <> 0::oid
  union all
  select 'pg_catalog.pg_type'::pg_catalog.regclass, element.typarray, 'pg_catalog.pg_type'::pg_catalog.regclass, element.oid
  from pg_catalog.pg_type element where element.typarray >= 16384::oid
  union all
  select 'pg_catalog.pg_type'::pg_catalog.regclass, view.reltype, 'pg_catalog.pg_class'::pg_catalog.regclass, view.oid
  from pg_catalog.pg_class view where view.relkind in ('v', 'm', 'c')
),
needing (classid, objid, causeclass, cause) as (
  select outside.classid, outside.objid, outside.classid, outside.objid from outside
  union
  select uses.classid, uses.objid, needing.causeclass, needing.cause
  from needing
  join uses on uses.refclassid = needing.classid and uses.refobjid = needing.objid
),
obstacles as materialized (
  select needing.classid, needing.objid,
    pg_catalog.min(pg_catalog.pg_describe_object(needing.causeclass, needing.cause, 0)) as cause
  from needing group by needing.classid, needing.objid
),
column_uses as materialized (
  select case when rule.oid is null then depend.classid else 'pg_catalog.pg_class'::pg_catalog.regclass::oid end as classid,
    coalesce(rule.ev_class, depend.objid) as objid,
    pg_catalog.json_agg(distinct relations.name || '.' || pg_catalog.quote_ident(attribute.attname)) as columns
  from pg_catalog.pg_depend depend
  join relations on depend.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and relations.oid = depend.refobjid and relations.relkind in ('r', 'p')
  join pg_catalog.pg_attribute attribute on attribute.attrelid = depend.refobjid and attribute.attnum = depend.refobjsubid
  left join pg_catalog.pg_rewrite rule on depend.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and rule.oid = depend.objid
    and rule.rulename = '_RETURN'
  group by 1, 2
),
view_uses as materialized (
  select distinct uses.objid, uses.refobjid
  from uses
  join relations on relations.oid = uses.objid and relations.relkind in ('v', 'm')
  where uses.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and uses.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
),
depths (oid, depth) as (
  select relations.oid, 0 from relations where relations.relkind in ('v', 'm')
  union
  select view_uses.objid, depths.depth + 1 from depths join view_uses on view_uses.refobjid = depths.oid where depths.depth < 100
),
sequences as materialized (
  select relations.oid, relations.name, relations.nspname, settings.*, pg_catalog.format(
      'AS %s START WITH %s INCREMENT BY %s MINVALUE %s MAXVALUE %s CACHE %s %s', pg_catalog.format_type(settings.seqtypid, null),
      settings.seqstart, settings.seqincrement, settings.seqmin, settings.seqmax, settings.seqcache,
      case when settings.seqcycle then 'CYCLE' else 'NO CYCLE' end) as options,
    owner.deptype, owner.refobjid, owner.refobjsubid
  from relations
  join pg_catalog.pg_sequence settings on settings.seqrelid = relations.oid
  left join pg_catalog.pg_depend owner on owner.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and owner.objid = relations.oid
    and owner.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and owner.deptype in ('a', 'i') and owner.refobjsubid > 0
  where relations.relkind = 'S' and not exists (select from own_tables where own_tables.oid = owner.refobjid)
),
index_facts as materialized (
  select index.*, named.relname as index_name, named.reloptions as options,
    case when 0 <> all (index.indkey::int2[]) then (
      select pg_catalog.json_agg(attribute.attname order by key.position)
      from pg_catalog.unnest(index.indkey::int2[]) with ordinality key (number, position)
      join pg_catalog.pg_attribute attribute on attribute.attrelid = index.indrelid and attribute.attnum = key.number
      where key.position <= index.indnkeyatts
    ) end as fields,
    index.indpred is null and index.indexprs is null and index.indnatts = index.indnkeyatts and not index.indnullsnotdistinct
      and 0 = all (index.indoption::int2[]) and method.amname = 'btree' and named.reloptions is null
      and not exists (
        select from rows from (pg_catalog.unnest(index.indclass::oid[]), pg_catalog.unnest(index.indcollation::oid[]), pg_catalog.unnest(index.indkey::int2[])) key (class, sorting, number)
        join pg_catalog.pg_opclass operators on operators.oid = key.class
        join pg_catalog.pg_attribute attribute on attribute.attrelid = index.indrelid and attribute.attnum = key.number
        where not operators.opcdefault or key.sorting <> attribute.attcollation
      ) as plain
  from pg_catalog.pg_index index
  join pg_catalog.pg_class named on named.oid = index.indexrelid
  join pg_catalog.pg_am method on method.oid = named.relam
  where index.indisvalid
),
objects (rank, kind, name, definition, schema, relation, field, fields, plain, shape, classid, objid, needs) as (
  select 1, 'extension', pg_catalog.quote_ident(extension.extname),
    case when namespace.nspname in ($2::text, 'pg_catalog') then '' else pg_catalog.format('SCHEMA %I', namespace.nspname) end,
    null::text, null::text, null::text, null::json, false, null::text, 'pg_catalog.pg_extension'::pg_catalog.regclass::oid, extension.oid, null::json
  from pg_catalog.pg_extension extension
  join pg_catalog.pg_namespace namespace on namespace.oid = extension.extnamespace
  where extension.extname <> 'plpgsql'
  union all
  select case when types.typtype = 'e' then 2 when types.typtype = 'd' then 3 else 4 end,
    case when types.typtype = 'e' then 'enum' when types.typtype = 'd' then 'domain' else 'type' end, types.name,
    case
      when types.typtype = 'e' then pg_catalog.format('(%s)', (
        select pg_catalog.string_agg(pg_catalog.quote_literal(label.enumlabel), ', ' order by label.enumsortorder)
        from pg_catalog.pg_enum label where label.enumtypid = types.oid
      ))
      when types.typtype = 'd' then pg_catalog.concat(pg_catalog.format_type(types.typbasetype, types.typtypmod),
        case when types.typcollation <> base.typcollation then (
          select pg_catalog.format(' COLLATE %I.%I', namespace.nspname, sorting.collname) from pg_catalog.pg_collation sorting
          join pg_catalog.pg_namespace namespace on namespace.oid = sorting.collnamespace where sorting.oid = types.typcollation
        ) end,
        ' DEFAULT ' || types.typdefault, case when types.typnotnull then ' NOT NULL' end,
        (
          select pg_catalog.string_agg(pg_catalog.format(' CONSTRAINT %I %s', owner.conname, pg_catalog.pg_get_constraintdef(owner.oid)), '' order by owner.conname)
          from pg_catalog.pg_constraint owner where owner.contypid = types.oid and owner.contype = 'c'
        ))
      else pg_catalog.format('(%s)', (
        select pg_catalog.string_agg(pg_catalog.format('%I %s', attribute.attname, pg_catalog.format_type(attribute.atttypid, attribute.atttypmod)), ', ' order by attribute.attnum)
        from pg_catalog.pg_attribute attribute where attribute.attrelid = types.typrelid and attribute.attnum > 0 and not attribute.attisdropped
      )) end,
    types.nspname, null, null, null, false, null, 'pg_catalog.pg_type'::pg_catalog.regclass, types.oid, null
  from types
  left join pg_catalog.pg_type base on base.oid = types.typbasetype
  where types.typtype <> 'r'
  union all
  select 5, 'sequence', sequences.name,
    pg_catalog.concat(sequences.options, (
      select ' OWNED BY ' || columns.name from columns where columns.oid = sequences.refobjid and columns.attnum = sequences.refobjsubid
    )),
    null, null, null, null, false, null, 'pg_catalog.pg_class'::pg_catalog.regclass, sequences.oid, null
  from sequences where sequences.deptype is null or sequences.deptype <> 'i'
  union all
  select 6, case when columns.attgenerated = '' then 'default' else 'generated' end, columns.name,
    pg_catalog.btrim(pg_catalog.pg_get_expr(initial.adbin, initial.adrelid)), columns.nspname, columns.relname, columns.attname, null,
    -- A constant without a type reads as this text.
    pg_catalog.pg_get_expr(initial.adbin, initial.adrelid) ~ '^(true|false|NULL::.*)$'
      or pg_catalog.pg_get_expr(initial.adbin, initial.adrelid) like ('%::' || pg_catalog.format_type(columns.atttypid, -1)),
    null,
    'pg_catalog.pg_attrdef'::pg_catalog.regclass, initial.oid, null
  from columns
  join pg_catalog.pg_attrdef initial on initial.adrelid = columns.oid and initial.adnum = columns.attnum
  where columns.attgenerated <> 'v'
  union all
  select 7, 'identity', columns.name, pg_catalog.format('%s AS IDENTITY (SEQUENCE NAME %s %s)',
      case when columns.attidentity = 'a' then 'ALWAYS' else 'BY DEFAULT' end, sequences.name, pg_catalog.substr(sequences.options, pg_catalog.strpos(sequences.options, 'START'))),
    columns.nspname, columns.relname, columns.attname, null,
    columns.attidentity = 'd' and sequences.seqstart = 1 and sequences.seqincrement = 1 and sequences.seqmin = 1 and sequences.seqcache = 1
      and not sequences.seqcycle and sequences.seqtypid = columns.atttypid
      and sequences.seqmax = case when sequences.seqtypid = 'pg_catalog.int8'::pg_catalog.regtype then 9223372036854775807 when sequences.seqtypid = 'pg_catalog.int4'::pg_catalog.regtype then 2147483647 else 32767 end
      and (pg_catalog.length(columns.relname || columns.attname) > 58 or sequences.name = (columns.table_name || '_' || columns.attname || '_seq')
        or sequences.name ~ '"'),
    null, 'pg_catalog.pg_class'::pg_catalog.regclass, sequences.oid, null
  from columns
  join sequences on sequences.refobjid = columns.oid and sequences.refobjsubid = columns.attnum and sequences.deptype = 'i'
  where columns.attidentity <> ''
  union all
  select 8, 'collation', columns.name,
    pg_catalog.format('TYPE %s COLLATE %s', pg_catalog.format_type(columns.atttypid, columns.atttypmod),
      case when namespace.nspname = 'pg_catalog' then pg_catalog.quote_ident(sorting.collname) else pg_catalog.format('%I.%I', namespace.nspname, sorting.collname) end),
    columns.nspname, columns.relname, columns.attname, null, false, null, 'pg_catalog.pg_collation'::pg_catalog.regclass, sorting.oid, null
  from columns
  join pg_catalog.pg_type type on type.oid = columns.atttypid and type.typcollation <> columns.attcollation
  join pg_catalog.pg_collation sorting on sorting.oid = columns.attcollation
  join pg_catalog.pg_namespace namespace on namespace.oid = sorting.collnamespace
  union all
  select case when owner.contype = 'f' then 11 else 9 end, 'constraint', tables.name || '.' || pg_catalog.quote_ident(owner.conname),
    pg_catalog.pg_get_constraintdef(owner.oid), tables.nspname, tables.relname, null,
    case when owner.contype = 'f' then (
        select pg_catalog.json_agg(attribute.attname order by key.position)
        from pg_catalog.unnest(owner.conkey) with ordinality key (number, position)
        join pg_catalog.pg_attribute attribute on attribute.attrelid = tables.oid and attribute.attnum = key.number
      ) else index_facts.fields end,
    case
      when owner.contype = 'p' then index_facts.plain and not owner.condeferrable and (owner.conname = (tables.relname || '_pkey') or pg_catalog.length(tables.relname) > 58)
      when owner.contype = 'u' then index_facts.plain and not owner.condeferrable
      when owner.contype = 'f' then owner.convalidated and owner.confdelsetcols is null and owner.confmatchtype <> 'p'
      else false end,
    owner.contype::text, 'pg_catalog.pg_constraint'::pg_catalog.regclass, owner.oid, null
  from tables
  join pg_catalog.pg_constraint owner on owner.conrelid = tables.oid and owner.contype in ('p', 'u', 'x', 'c', 'f') and owner.conparentid = 0::oid
    and (owner.conislocal or owner.coninhcount = 0)
  left join index_facts on index_facts.indexrelid = owner.conindid and owner.contype in ('p', 'u')
  union all
  select case when owner.relkind = 'm' then 1000 else 10 end, 'index', owner.name || '.' || pg_catalog.quote_ident(index_facts.index_name),
    case when index_facts.indisunique then 'UNIQUE ' else '' end || pg_catalog.substr(pg_catalog.pg_get_indexdef(index_facts.indexrelid),
      pg_catalog.length(pg_catalog.format('CREATE %sINDEX %I ON %s%I.%I  ', case when index_facts.indisunique then 'UNIQUE ' else '' end,
        index_facts.index_name, case when owner.relkind = 'p' then 'ONLY ' else '' end, owner.nspname, owner.relname))),
    owner.nspname, owner.relname, null, index_facts.fields, index_facts.plain and not index_facts.indisunique and owner.relkind <> 'm', case when index_facts.indisunique then 'i' end,
    'pg_catalog.pg_class'::pg_catalog.regclass, index_facts.indexrelid, null
  from relations owner
  join index_facts on index_facts.indrelid = owner.oid
  where owner.relkind in ('r', 'p', 'm') and not owner.relispartition and not exists (
    select from pg_catalog.pg_constraint backed where backed.conindid = index_facts.indexrelid and backed.contype in ('p', 'u', 'x')
  )
  union all
  select 12 + depth.depth, case when relations.relkind = 'm' then 'materialized view' else 'view' end, relations.name,
    case when relations.reloptions is null then '' else pg_catalog.format('WITH (%s) ', pg_catalog.array_to_string(relations.reloptions, ', ')) end
      || 'AS ' || pg_catalog.btrim(pg_catalog.pg_get_viewdef(relations.oid), E' ;\n'),
    relations.nspname, relations.relname, null, null, false,
    case when relations.relacl is not null or relations.relhastriggers then 'kept' end, 'pg_catalog.pg_class'::pg_catalog.regclass, relations.oid,
    (select pg_catalog.json_agg(used.name order by used.name) from view_uses join relations used on used.oid = view_uses.refobjid where view_uses.objid = relations.oid)
  from relations
  cross join lateral (select pg_catalog.max(depths.depth) as depth from depths where depths.oid = relations.oid) depth
  where relations.relkind in ('v', 'm')
),
described as (
  select objects.*, case when objects.kind::text not in ('extension', 'default', 'generated', 'identity', 'collation')
      then pg_catalog.obj_description(objects.objid, objects.classid::pg_catalog.regclass::text) end as comment,
    obstacles.cause, column_uses.columns
  from objects
  left join column_uses on objects.kind::text in ('constraint', 'index', 'view', 'materialized view')
    and column_uses.classid = objects.classid and column_uses.objid = objects.objid
  left join obstacles on obstacles.classid = objects.classid and obstacles.objid = objects.objid
),
left_out (name, reason) as (
  select pg_catalog.pg_describe_object(outside.classid, outside.objid, 0), 'snapshots contain no such objects; create it there by SQL'
  from outside
  where not exists (
      -- Rows and arrays of what is listed itself, and tables, for which their schema is listed.
      select from pg_catalog.pg_class class where outside.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and class.oid = outside.objid
    )
    and not exists (
      select from pg_catalog.pg_depend depend
      where depend.classid = outside.classid and depend.objid = outside.objid and depend.deptype = 'i'
    )
  union all
  select pg_catalog.format('schema %I', schemas.nspname), 'is not in DATABASE_SCHEMAS'
  from schemas
  where not schemas.served and schemas.nspname <> $4::text
    and not exists (select from extended where extended.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass and extended.objid = schemas.oid)
  union all
  select pg_catalog.format('schema %I', schemas.nspname), 'its grants' from schemas join pg_catalog.pg_namespace namespace on namespace.oid = schemas.oid
  where schemas.served and namespace.nspacl is not null and schemas.nspname <> 'public'
  union all
  select relations.name, 'its grants' from relations
  where relations.relacl is not null or exists (
    select from pg_catalog.pg_attribute attribute where attribute.attrelid = relations.oid and attribute.attacl is not null
  )
  union all
  select types.name, 'its grants' from types where types.typacl is not null
  union all
  select relations.name, pg_catalog.format('its trigger %s', trigger.tgname)
  from relations join pg_catalog.pg_trigger trigger on trigger.tgrelid = relations.oid
  where not trigger.tgisinternal and trigger.tgname !~ '^service_' and trigger.tgparentid = 0::oid
  union all
  select relations.name, pg_catalog.format('its rule %s', rule.rulename)
  from relations join pg_catalog.pg_rewrite rule on rule.ev_class = relations.oid where rule.rulename <> '_RETURN'
  union all
  select relations.name, pg_catalog.format('its row-level security policy %s', policy.polname)
  from relations join pg_catalog.pg_policy policy on policy.polrelid = relations.oid
  union all
  select relations.name, 'row-level security is enabled' from relations where relations.relrowsecurity or relations.relforcerowsecurity
  union all
  select relations.name, 'its comments on columns' from relations
  where relations.relkind in ('v', 'm', 'c') and exists (
    select from pg_catalog.pg_description note
    where note.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass and note.objoid = relations.oid and note.objsubid > 0
  )
  union all
  select tables.name, 'is unlogged or temporary' from tables where tables.relpersistence <> 'p'
  union all
  select tables.name, pg_catalog.format('its storage parameters (%s)', pg_catalog.array_to_string(tables.reloptions, ', ')) from tables where tables.reloptions is not null
  union all
  select tables.name, 'its replica identity' from tables where tables.relreplident not in ('d', 'n') or (tables.relreplident = 'n' and tables.relkind = 'r')
  union all
  select relations.name, 'its tablespace' from relations where relations.reltablespace <> 0::oid
  union all
  select tables.name, pg_catalog.format('inherits from %s; in another database it has the columns itself', pg_catalog.string_agg(parent.relname, ', '))
  from tables
  join pg_catalog.pg_inherits inherits on inherits.inhrelid = tables.oid
  join pg_catalog.pg_class parent on parent.oid = inherits.inhparent
  group by tables.name
  union all
  select columns.name, 'its storage, compression or statistics target'
  from columns
  join pg_catalog.pg_type type on type.oid = columns.atttypid
  where columns.attstorage <> type.typstorage or columns.attcompression <> '' or columns.attoptions is not null or coalesce(columns.attstattarget, -1) <> -1
  union all
  select index.name || '.' || index.index_name, 'marks the order of the table (CLUSTER) or its replica identity'
  from (
    select owner.name, index_facts.index_name from relations owner join index_facts on index_facts.indrelid = owner.oid
    where index_facts.indisclustered or index_facts.indisreplident
  ) index
  union all
  select tables.name, pg_catalog.format('its index %s, which is invalid', named.relname)
  from tables
  join pg_catalog.pg_index index on index.indrelid = tables.oid and not index.indisvalid
  join pg_catalog.pg_class named on named.oid = index.indexrelid
  union all
  select tables.name, pg_catalog.format('the name of its NOT NULL constraint %s', owner.conname)
  from tables
  join pg_catalog.pg_constraint owner on owner.conrelid = tables.oid and owner.contype = 'n'
  join pg_catalog.pg_attribute attribute on attribute.attrelid = tables.oid and attribute.attnum = owner.conkey[1]
  where (owner.conname <> (tables.relname || '_' || attribute.attname || '_not_null') and pg_catalog.length(tables.relname || attribute.attname) < 53)
    or not owner.convalidated or owner.connoinherit
  union all
  select 'default privileges', pg_catalog.format('those for %s', case when privileges.defaclnamespace = 0::oid then 'all schemas' else (
    select schemas.nspname from schemas where schemas.oid = privileges.defaclnamespace) end)
  from pg_catalog.pg_default_acl privileges
)
select pg_catalog.json_build_object(
  'objects', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_strip_nulls(pg_catalog.json_build_object(
      'kind', described.kind, 'name', described.name, 'definition', described.definition, 'comment', described.comment,
      'schema', described.schema, 'relation', described.relation, 'field', described.field, 'fields', described.fields,
      'plain', described.plain, 'shape', described.shape, 'needs', described.needs, 'columns', described.columns, 'cause', described.cause
    )) order by described.rank, described.kind, described.name), '[]')
    from described
  ),
  'left_out', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', left_out.name, 'reason', left_out.reason) order by left_out.name, left_out.reason), '[]')
    from (select distinct left_out.name, left_out.reason from left_out) left_out
  )
)::text
