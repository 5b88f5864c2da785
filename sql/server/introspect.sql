-- The structure of the schemas $1, a JSON list, and the metadata about it, as one JSON document of one snapshot. The service's own tables, whose
-- names are the JSON list $3, are in the schema $2, which may be the same: they are known by where they are, not by how they begin.
-- Each catalog is read once and gives its own list of compact arrays, keyed by the table's oid and the column's number;
-- the lists are joined by the reader. Joining them here would let a wrong row estimate turn into a nested loop over
-- tens of thousands of columns.
with recursive
tables as materialized (
  select class.oid, class.relname, class.relkind, namespace.nspname, ours.name is not null as system,
    -- Of a view, the extension that it is a part of.
    case when class.relkind in ('v', 'm') then (
      select extension.extname
      from pg_catalog.pg_depend owner
      join pg_catalog.pg_extension extension on extension.oid = owner.refobjid
      where owner.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and owner.objid = class.oid and owner.deptype = 'e'
    ) end as extension
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  left join pg_catalog.json_array_elements_text($3::json) ours (name)
    on ours.name = class.relname and namespace.nspname = $2::text
  where (namespace.nspname in (select pg_catalog.json_array_elements_text($1::json)) or ours.name is not null)
    and class.relkind in ('r', 'p', 'v', 'm', 'f')
    and not class.relispartition
),
columns as materialized (
  select attribute.attrelid, attribute.attnum, attribute.attname, attribute.atttypid, attribute.atttypmod,
    attribute.attnotnull, attribute.attidentity, attribute.attgenerated, attribute.xmin::text::bigint as defined
  from tables
  -- By the index: most rows of the catalog belong to tables of PostgreSQL itself.
  cross join lateral (
    select own.xmin, own.* from pg_catalog.pg_attribute own
    where own.attrelid = tables.oid and own.attnum > 0 and not own.attisdropped offset 0
  ) attribute
),
-- Functions that may be called. Those of PostgreSQL itself and of extensions reach further than a caller may.
functions as materialized (
  select entry.name, namespace.nspname, proc.oid, proc.proname, proc.provolatile, proc.proretset, proc.prorettype,
    proc.proargnames, coalesce(proc.proallargtypes, proc.proargtypes::oid[]) as types, proc.proargmodes, proc.pronargdefaults,
    result.typrelid
  from service_functions entry
  join pg_catalog.pg_namespace namespace on namespace.nspname = coalesce(entry.schema, $1::json ->> 0)
  join pg_catalog.pg_proc proc on proc.pronamespace = namespace.oid and proc.proname = coalesce(entry.function, entry.name)
  join pg_catalog.pg_type result on result.oid = proc.prorettype
  where proc.prokind = 'f'
    and namespace.nspname not in ('pg_catalog', 'information_schema')
    and not exists (
      select from pg_catalog.pg_depend owner
      where owner.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and owner.objid = proc.oid and owner.deptype = 'e'
    )
),
-- Functions of a row that fields are computed by.
computed as materialized (
  select tables.oid, proc.proname, namespace.nspname, proc.prorettype
  from (
    select distinct coalesce(case when pg_catalog.json_typeof(entry.options) = 'object' then entry.options ->> 'function' end,
      entry.field) as name
    from service_fields entry
    where 'computed' = any(pg_catalog.string_to_array(pg_catalog.replace(entry.special, ' ', ''), ','))
  ) wanted
  join pg_catalog.pg_proc proc on proc.proname = wanted.name
  join pg_catalog.pg_type argument on argument.oid = proc.proargtypes[0]
  join tables on tables.oid = argument.typrelid
  join pg_catalog.pg_namespace namespace on namespace.oid = proc.pronamespace
  where proc.prokind = 'f' and proc.pronargs = 1 and not proc.proretset and proc.provolatile <> 'v'
),
-- What functions take and return.
called_types as materialized (
  select computed.prorettype as oid from computed
  union
  select type.oid from functions cross join lateral pg_catalog.unnest(functions.types) type (oid)
  union
  select functions.prorettype from functions
  union
  select attribute.atttypid
  from functions
  join pg_catalog.pg_attribute attribute on attribute.attrelid = functions.typrelid
  where functions.typrelid <> 0 and attribute.attnum > 0 and not attribute.attisdropped
),
-- A list, as the planner expects ten elements of one. It expects a thousand times more rows of the union, and would make tables of their size.
used_types as materialized (
  select pg_catalog.unnest(array(
    select columns.atttypid from columns
    union
    select called_types.oid from called_types
  )) as oid
),
-- From a domain down to the type below it. The modifier (a length, a precision) is that of the innermost domain.
layers as (
  select type.oid as used, type.oid as base, type.typtype, type.typbasetype, type.typtypmod, -1 as modifier,
    type.typtype = 'd' and type.typnotnull as refuses_null
  from used_types
  join pg_catalog.pg_type type on type.oid = used_types.oid
  union all
  select layers.used, type.oid, type.typtype, type.typbasetype, type.typtypmod, layers.typtypmod,
    layers.refuses_null or (type.typtype = 'd' and type.typnotnull)
  from layers
  join pg_catalog.pg_type type on type.oid = layers.typbasetype
  where layers.typtype = 'd'
),
-- The types of the columns and, repeatedly, what is inside of them: below a domain, the elements of an array, the attributes
-- of a composite type.
inner_types as (
  select used_types.oid from used_types
  union
  select inside.oid
  from inner_types
  join pg_catalog.pg_type type on type.oid = inner_types.oid
  cross join lateral (
    select type.typbasetype as oid where type.typtype = 'd'
    union all
    select type.typelem where type.typtype <> 'd' and type.typcategory = 'A'
    union all
    select attribute.atttypid
    from pg_catalog.pg_attribute attribute
    where type.typtype = 'c' and attribute.attrelid = type.typrelid and attribute.attnum > 0 and not attribute.attisdropped
  ) inside
),
-- What a function returns, and all that is inside of it, down to rows of tables.
returned_types as (
  select called_types.oid as used, called_types.oid as inside from called_types
  union
  select returned_types.used, inside.oid
  from returned_types
  join pg_catalog.pg_type type on type.oid = returned_types.inside
  left join pg_catalog.pg_class class on class.oid = type.typrelid
  cross join lateral (
    select type.typbasetype as oid where type.typtype = 'd'
    union all
    select type.typelem where type.typtype <> 'd' and type.typcategory = 'A'
    union all
    select range.rngsubtype from pg_catalog.pg_range range
    where type.typtype in ('r', 'm') and (type.oid = range.rngtypid or type.oid = range.rngmultitypid)
    union all
    select attribute.atttypid
    from pg_catalog.pg_attribute attribute
    where class.relkind = 'c' and attribute.attrelid = class.oid and attribute.attnum > 0 and not attribute.attisdropped
  ) inside
)
select pg_catalog.json_build_object(
  'version', (select version from service_schema),
  -- Changes when a column is defined again or a partition comes or goes: the rows of a table may be others then, although none was written.
  'stored', (
    select pg_catalog.concat_ws('/',
      (select pg_catalog.sum(columns.defined) from columns),
      (select pg_catalog.sum(inherited.xmin::text::bigint) from pg_catalog.pg_inherits inherited)
    )
  ),
  'tables', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(oid::int8, relname, relkind, nspname, system, extension) order by relname, nspname) from tables
  ),
  'columns', (
    select pg_catalog.json_agg(
      pg_catalog.json_build_array(
        attrelid::int8, attnum, attname, atttypid::int8, atttypmod, attnotnull, attidentity, attgenerated
      )
      order by attrelid, attnum
    )
    from columns
  ),
  'types', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(
      layers.used::int8,
      pg_catalog.format_type(layers.used, null),
      base.typname,
      namespace.nspname,
      base.typcategory = 'A',
      layers.modifier,
      layers.refuses_null,
      (
        select pg_catalog.pg_get_expr(used.typdefaultbin, 'pg_catalog.pg_type'::pg_catalog.regclass)
        from pg_catalog.pg_type used
        where used.oid = layers.used and used.typtype = 'd'
      ),
      (
        select pg_catalog.json_agg(label.enumlabel order by label.enumsortorder)
        from pg_catalog.pg_enum label
        where label.enumtypid = layers.base
      ),
      (
        select pg_catalog.json_build_array(
          case when base.typcategory = 'A' then 'array' when base.typtype = 'm' then 'multirange' else 'range' end,
          inside.typname, place.nspname
        )
        from pg_catalog.pg_type inside
        join pg_catalog.pg_namespace place on place.oid = inside.typnamespace
        where inside.oid = case when base.typcategory = 'A' then base.typelem
          when base.typtype in ('r', 'm')
            then (select range.rngsubtype from pg_catalog.pg_range range where base.oid in (range.rngtypid, range.rngmultitypid))
        end
      )
    ))
    from layers
    join pg_catalog.pg_type base on base.oid = layers.base
    join pg_catalog.pg_namespace namespace on namespace.oid = base.typnamespace
    where layers.typtype <> 'd'
  ),
  -- Composite types with their attributes, and the types whose values or elements may be composite.
  'composites', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(
      type.oid::int8,
      pg_catalog.format_type(type.oid, null),
      case when type.typtype = 'd' then type.typbasetype when type.typtype <> 'c' then type.typelem end::int8,
      (
        select pg_catalog.json_agg(
          pg_catalog.json_build_array(attribute.attname, attribute.atttypid::int8) order by attribute.attnum
        )
        from pg_catalog.pg_attribute attribute
        where type.typtype = 'c' and attribute.attrelid = type.typrelid and attribute.attnum > 0 and not attribute.attisdropped
      )
    ))
    from inner_types
    join pg_catalog.pg_type type on type.oid = inner_types.oid
    where type.typtype in ('c', 'd') or type.typcategory = 'A'
  ),
  -- Types of what functions return that are or hold rows of a table, and whether these are read as rows of another one, or are the service's.
  'row_types', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(
      returned_types.used::int8,
      pg_catalog.format_type(type.oid, null),
      exists (select from pg_catalog.pg_inherits parent where parent.inhrelid = class.oid)
        or (namespace.nspname = $2::text and class.relname in (select pg_catalog.json_array_elements_text($3::json)))
    ) order by type.oid)
    from returned_types
    join pg_catalog.pg_type type on type.oid = returned_types.inside
    join pg_catalog.pg_class class on class.oid = type.typrelid and class.relkind <> 'c'
    join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  ),
  'defaults', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(
      initial.adrelid::int8, initial.adnum, pg_catalog.pg_get_expr(initial.adbin, initial.adrelid)
    ))
    from tables
    join pg_catalog.pg_attrdef initial on initial.adrelid = tables.oid
  ),
  -- Over plain columns and all rows: those over one column, and of those over several the unique ones.
  'indexes', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(
      index.indrelid::int8,
      case when index.indisprimary then 'primary' when index.indisunique then 'unique' else 'index' end,
      (select pg_catalog.array_agg(key.number order by key.position)
        from pg_catalog.unnest(index.indkey::int2[]) with ordinality key (number, position)
        where key.position <= index.indnkeyatts),
      named.relname,
      owner.oid is not null,
      method.amname,
      index.indimmediate,
      index.indnullsnotdistinct
    ) order by named.relname)
    from tables
    join pg_catalog.pg_index index on index.indrelid = tables.oid
    join pg_catalog.pg_class named on named.oid = index.indexrelid
    join pg_catalog.pg_am method on method.oid = named.relam
    left join pg_catalog.pg_constraint owner on owner.conindid = index.indexrelid
      and owner.conrelid = index.indrelid and owner.contype in ('p', 'u', 'x')
    where index.indisvalid
      and index.indpred is null
      and ((index.indnkeyatts = 1 and index.indkey[0] <> 0) or (index.indisunique and 0 <> all (index.indkey::int2[])))
  ),
  -- Checks of one column: some list the values that it may have.
  'checks', (
    select pg_catalog.json_agg(
      pg_catalog.json_build_array(rule.conrelid::int8, rule.conkey[1], pg_catalog.pg_get_expr(rule.conbin, rule.conrelid))
      order by rule.oid
    )
    from tables
    join pg_catalog.pg_constraint rule on rule.conrelid = tables.oid
    where rule.contype = 'c' and pg_catalog.cardinality(rule.conkey) = 1
  ),
  -- Over one column. The rows PostgreSQL adds for each partition of the target have a parent.
  'foreign_keys', (
    select pg_catalog.json_agg(
      pg_catalog.json_build_array(reference.conrelid::int8, reference.conkey[1], namespace.nspname, target.relname, key.attname,
        reference.conname, reference.confdeltype, reference.confupdtype, reference.confrelid::int8,
        reference.confmatchtype = 'f',
        case when reference.condeferrable then
          case when reference.condeferred then 'INITIALLY DEFERRED' else 'INITIALLY IMMEDIATE' end end)
      order by reference.oid
    )
    from tables
    join pg_catalog.pg_constraint reference on reference.conrelid = tables.oid
    join pg_catalog.pg_class target on target.oid = reference.confrelid
    join pg_catalog.pg_namespace namespace on namespace.oid = target.relnamespace
    join pg_catalog.pg_attribute key on key.attrelid = reference.confrelid and key.attnum = reference.confkey[1]
    where reference.contype = 'f' and reference.conparentid = 0 and pg_catalog.cardinality(reference.conkey) = 1
  ),
  -- Over several columns, in the order of the constraint.
  'composite_references', (
    select pg_catalog.json_agg(
      pg_catalog.json_build_array(
        reference.conrelid::int8,
        (select pg_catalog.array_agg(own.attname order by pair.position)
          from pg_catalog.unnest(reference.conkey) with ordinality pair (number, position)
          join pg_catalog.pg_attribute own on own.attrelid = reference.conrelid and own.attnum = pair.number),
        reference.confrelid::int8,
        (select pg_catalog.array_agg(key.attname order by pair.position)
          from pg_catalog.unnest(reference.confkey) with ordinality pair (number, position)
          join pg_catalog.pg_attribute key on key.attrelid = reference.confrelid and key.attnum = pair.number),
        reference.conname, reference.confdeltype, reference.confupdtype,
        reference.confmatchtype = 'f',
        case when reference.condeferrable then
          case when reference.condeferred then 'INITIALLY DEFERRED' else 'INITIALLY IMMEDIATE' end end
      )
      order by reference.oid
    )
    from tables
    join pg_catalog.pg_constraint reference on reference.conrelid = tables.oid
    -- A period refers to whatever covers it: such a reference leads to no one row.
    where reference.contype = 'f' and reference.conparentid = 0 and pg_catalog.cardinality(reference.conkey) > 1
      and coalesce(pg_catalog.to_jsonb(reference) ->> 'conperiod', 'false') = 'false'
  ),
  -- Partitioned tables, by one column, with partitions that are tables of other servers.
  'shards', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(tables.oid::int8, part.attname) order by tables.oid)
    from tables
    join pg_catalog.pg_partitioned_table partitioned on partitioned.partrelid = tables.oid and partitioned.partnatts = 1
    join pg_catalog.pg_attribute part on part.attrelid = tables.oid and part.attnum = partitioned.partattrs[0]
    where tables.relkind = 'p' and exists (
      select from pg_catalog.pg_inherits child
      join pg_catalog.pg_class class on class.oid = child.inhrelid
      where child.inhparent = tables.oid and class.relkind = 'f'
    )
  ),
  -- Views, and tables with rows whose xmin is unknown: those of other servers and of other access methods, and tables that inherit from them.
  -- Whether rows of them can be changed or deleted.
  'digested', (
    with recursive foreign_rows (oid) as (
      select class.oid
      from pg_catalog.pg_class class
      left join pg_catalog.pg_am method on method.oid = class.relam
      where class.relkind = 'f' or (class.relkind = 'r' and method.amname <> 'heap')
      union
      select child.inhparent
      from foreign_rows
      join pg_catalog.pg_inherits child on child.inhrelid = foreign_rows.oid
    )
    select pg_catalog.json_agg(
      pg_catalog.json_build_array(tables.oid::int8, (pg_catalog.pg_relation_is_updatable(tables.oid, true) & 20) <> 0) order by tables.oid
    )
    from tables
    where tables.relkind in ('v', 'm') or tables.oid in (select oid from foreign_rows)
  ),
  'sequences', (
    select pg_catalog.json_agg(
      pg_catalog.json_build_array(
        owner.refobjid::int8, owner.refobjsubid,
        pg_catalog.quote_ident(namespace.nspname) || '.' || pg_catalog.quote_ident(sequence.relname)
      )
      order by sequence.oid
    )
    from tables
    join pg_catalog.pg_depend owner on owner.refobjid = tables.oid
      and owner.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
      and owner.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
      and owner.refobjsubid > 0
      and owner.deptype in ('a', 'i')
    join pg_catalog.pg_class sequence on sequence.oid = owner.objid and sequence.relkind = 'S'
    join pg_catalog.pg_namespace namespace on namespace.oid = sequence.relnamespace
  ),
  -- Triggers, by the bits of the catalog: each row (1), before (2), insert (4), delete (8), update (16), truncate (32), instead of (64).
  -- Those that partitions have of their own count for the table that is partitioned.
  'triggers', (
    select pg_catalog.json_agg(distinct pg_catalog.jsonb_build_array(tables.oid::int8, trigger.tgname, trigger.tgtype))
    from pg_catalog.pg_trigger trigger
    join pg_catalog.pg_class class on class.oid = trigger.tgrelid
    join tables on tables.oid = case when class.relispartition then pg_catalog.pg_partition_root(class.oid) else class.oid end
    where not trigger.tgisinternal and trigger.tgenabled in ('O', 'A')
  ),
  -- Rules of writes: update (2), insert (3), delete (4).
  'rules', (
    select pg_catalog.json_agg(
      pg_catalog.json_build_array(tables.oid::int8, rule.rulename, rule.ev_type, rule.is_instead) order by rule.rulename
    )
    from tables
    join pg_catalog.pg_rewrite rule on rule.ev_class = tables.oid
    where rule.ev_type in ('2', '3', '4') and rule.ev_enabled in ('O', 'A')
  ),
  -- Tables whose writes may be refused for reasons that are known late or to the server alone: row security and constraints that can be
  -- deferred.
  'unbatched', (
    select pg_catalog.json_agg(tables.oid::int8)
    from tables
    join pg_catalog.pg_class class on class.oid = tables.oid
    where class.relrowsecurity
      or tables.oid in (
        select pg_catalog.unnest(array["constraint".conrelid, "constraint".confrelid])
        from pg_catalog.pg_constraint "constraint"
        where "constraint".condeferrable
      )
  ),
  'row_security', (
    select pg_catalog.json_agg(tables.oid::int8)
    from tables
    join pg_catalog.pg_class class on class.oid = tables.oid
    where class.relrowsecurity
  ),
  -- Tables that others inherit from: a read of one also returns rows of the others.
  'inherited', (
    select pg_catalog.json_agg(tables.oid::int8)
    from tables
    join pg_catalog.pg_class class on class.oid = tables.oid
    where class.relkind = 'r' and class.relhassubclass
  ),
  -- Columns whose values foreign keys follow when they change.
  'followed', (
    select pg_catalog.json_agg(distinct pg_catalog.jsonb_build_array(tables.oid::int8, followed.attname))
    from tables
    join pg_catalog.pg_constraint reference on reference.confrelid = tables.oid
    join pg_catalog.pg_attribute followed on followed.attrelid = tables.oid and followed.attnum = any (reference.confkey)
    where reference.contype = 'f' and reference.confupdtype in ('c', 'n', 'd')
  ),
  -- Tables whose rows exclude others by more than the unique indexes above that are checked at once.
  'exclusive', (
    select pg_catalog.json_agg(distinct index.indrelid::int8)
    from tables
    join pg_catalog.pg_index index on index.indrelid = tables.oid
    where index.indisexclusion
      or (index.indisunique and (index.indpred is not null or index.indexprs is not null or index.indnullsnotdistinct or not index.indimmediate))
  ),
  -- Views that triggers or rules write, and whose rows PostgreSQL cannot lock: a row of them is no single row of each table below.
  'unlockable', (
    with recursive parts (written, oid, relkind) as (
      select tables.oid, tables.oid, tables.relkind
      from tables
      where tables.relkind = 'v' and (
        exists (select from pg_catalog.pg_trigger trigger where trigger.tgrelid = tables.oid)
        or exists (select from pg_catalog.pg_rewrite rule where rule.ev_class = tables.oid and rule.ev_type <> '1')
      )
      union
      select parts.written, class.oid, class.relkind
      from parts
      join pg_catalog.pg_rewrite rule on rule.ev_class = parts.oid and rule.ev_type = '1' and parts.relkind = 'v'
      join pg_catalog.pg_depend used on used.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass and used.objid = rule.oid
        and used.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
      join pg_catalog.pg_class class on class.oid = used.refobjid and class.relkind in ('v', 'm')
    )
    select pg_catalog.json_agg(distinct parts.written::int8)
    from parts
    join pg_catalog.pg_rewrite rule on rule.ev_class = parts.oid and rule.ev_type = '1'
    where parts.relkind = 'm'
      or rule.ev_action::text operator(pg_catalog.~)
        ':(hasAggs|hasWindowFuncs|hasTargetSRFs) true|:(groupClause|groupingSets|distinctClause) \(|:(havingQual|setOperations) \{|:jointype [1-9]'
  ),
  -- Of the role of the service, where it may not do everything: for the table, then for each column.
  'privileges', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(
      limited.oid::int8, limited.may_select, limited.may_insert, limited.may_update, limited.may_delete,
      (
        select pg_catalog.json_agg(pg_catalog.json_build_array(
          columns.attnum,
          limited.may_select or pg_catalog.has_column_privilege(limited.oid, columns.attnum, 'select'),
          limited.may_insert or pg_catalog.has_column_privilege(limited.oid, columns.attnum, 'insert'),
          limited.may_update or pg_catalog.has_column_privilege(limited.oid, columns.attnum, 'update')
        ))
        from columns
        where columns.attrelid = limited.oid
      )
    ))
    from (
      select tables.oid,
        pg_catalog.has_table_privilege(tables.oid, 'select') as may_select,
        pg_catalog.has_table_privilege(tables.oid, 'insert') as may_insert,
        pg_catalog.has_table_privilege(tables.oid, 'update') as may_update,
        pg_catalog.has_table_privilege(tables.oid, 'delete') as may_delete
      from tables
      offset 0
    ) limited
    where not (limited.may_select and limited.may_insert and limited.may_update and limited.may_delete)
  ),
  -- Number 0 is the table itself.
  'comments', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(remark.objoid::int8, remark.objsubid, remark.description))
    from tables
    join pg_catalog.pg_description remark on remark.objoid = tables.oid
      and remark.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass
  ),
  -- With all arguments, also those that are columns of the result.
  'functions', (
    select pg_catalog.json_agg(
      pg_catalog.json_build_array(
        name, nspname, proname, provolatile, proretset, prorettype::int8, typrelid::int8, types::int8[], proargnames, proargmodes,
        pronargdefaults, pg_catalog.obj_description(oid, 'pg_proc'),
        case when 'v' operator(pg_catalog.=) any (proargmodes) then (
          select pg_catalog.json_agg(pg_catalog.pg_get_function_arg_default(oid, place::int4) order by place)
          from pg_catalog.unnest(types) with ordinality argument (type, place)
        ) end
      )
      order by name, oid
    )
    from functions
  ),
  -- Declared routines that are not functions: procedures (p), aggregates (a) and window functions (w).
  'routines', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(entry.name, proc.prokind) order by entry.name, proc.oid)
    from service_functions entry
    join pg_catalog.pg_namespace namespace on namespace.nspname = coalesce(entry.schema, $1::json ->> 0)
    join pg_catalog.pg_proc proc on proc.pronamespace = namespace.oid and proc.proname = coalesce(entry.function, entry.name)
    where proc.prokind <> 'f' and namespace.nspname not in ('pg_catalog', 'information_schema')
  ),
  'computed', (
    select pg_catalog.json_agg(pg_catalog.json_build_array(oid::int8, proname, nspname, prorettype::int8) order by oid, proname, nspname)
    from computed
  ),
  'function_rows', (
    select pg_catalog.json_agg(pg_catalog.row_to_json(entry) order by name) from service_functions entry
  ),
  -- By name, with the schema in which their functions and operators are.
  'extensions', (
    select pg_catalog.json_object_agg(extension.extname, namespace.nspname)
    from pg_catalog.pg_extension extension
    join pg_catalog.pg_namespace namespace on namespace.oid = extension.extnamespace
  ),
  'text_search', (
    select pg_catalog.json_agg(
      pg_catalog.json_build_array(namespace.nspname, configuration.cfgname, configuration.oid = pg_catalog.get_current_ts_config()::pg_catalog.oid)
      order by namespace.nspname <> 'pg_catalog', namespace.nspname, configuration.cfgname
    )
    from pg_catalog.pg_ts_config configuration
    join pg_catalog.pg_namespace namespace on namespace.oid = configuration.cfgnamespace
  ),
  'collection_rows', (
    select pg_catalog.json_agg(pg_catalog.row_to_json(entry)) from service_collections entry
  ),
  'field_rows', (
    select pg_catalog.json_agg(pg_catalog.row_to_json(entry) order by sort nulls last, id) from service_fields entry
  ),
  'relation_rows', (
    select pg_catalog.json_agg(pg_catalog.row_to_json(entry) order by id) from service_relations entry
  )
)::text as document;
