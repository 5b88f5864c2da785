-- The privileges of the roles that the service may become, as two lists. `tables`: the role, a table of the schemas $1 (a JSON list), whether
-- rows may be deleted, the columns that may be read, inserted and updated (null for all), and the columns whose sequence the role may not
-- use. Without an entry, a role may do everything. `functions`: the role and a function that it may call in no form.
with roles as materialized (
  select role.oid, role.rolname
  from pg_catalog.pg_roles role
  where pg_catalog.pg_has_role(role.oid, 'member') and role.rolname <> current_user
),
limited as materialized (
  select roles.oid as role, roles.rolname, class.oid,
    schema.usable and pg_catalog.has_table_privilege(roles.oid, class.oid, 'select') as may_select,
    schema.usable and pg_catalog.has_table_privilege(roles.oid, class.oid, 'insert') as may_insert,
    schema.usable and pg_catalog.has_table_privilege(roles.oid, class.oid, 'update') as may_update,
    schema.usable and pg_catalog.has_table_privilege(roles.oid, class.oid, 'delete') as may_delete,
    schema.usable,
    array(
      select attribute.attname::text
      from pg_catalog.pg_depend owned
      join pg_catalog.pg_class sequence on sequence.oid = owned.objid and sequence.relkind = 'S'
      join pg_catalog.pg_attribute attribute on attribute.attrelid = class.oid and attribute.attnum = owned.refobjsubid
      where owned.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and owned.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
        and owned.refobjid = class.oid and owned.deptype in ('a', 'i')
        and case when sequence.relkind = 'S' then not pg_catalog.has_sequence_privilege(roles.oid, sequence.oid, 'usage') end
      order by 1
    ) as unnumbered
  from roles
  cross join pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  cross join lateral (select pg_catalog.has_schema_privilege(roles.oid, namespace.oid, 'usage') as usable) schema
  where namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
    and class.relkind in ('r', 'p', 'v', 'm', 'f') and not class.relispartition
)
select pg_catalog.json_build_object(
  'tables', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(
      limited.rolname, limited.oid::int8, limited.may_delete,
      case when not limited.may_select then pg_catalog.array_to_json(array(
        select attribute.attname::text from pg_catalog.pg_attribute attribute
        where limited.usable and attribute.attrelid = limited.oid and attribute.attnum > 0 and not attribute.attisdropped
          and pg_catalog.has_column_privilege(limited.role, limited.oid, attribute.attnum, 'select')
      )) end,
      case when not limited.may_insert then pg_catalog.array_to_json(array(
        select attribute.attname::text from pg_catalog.pg_attribute attribute
        where limited.usable and attribute.attrelid = limited.oid and attribute.attnum > 0 and not attribute.attisdropped
          and pg_catalog.has_column_privilege(limited.role, limited.oid, attribute.attnum, 'insert')
      )) end,
      case when not limited.may_update then pg_catalog.array_to_json(array(
        select attribute.attname::text from pg_catalog.pg_attribute attribute
        where limited.usable and attribute.attrelid = limited.oid and attribute.attnum > 0 and not attribute.attisdropped
          and pg_catalog.has_column_privilege(limited.role, limited.oid, attribute.attnum, 'update')
      )) end,
      pg_catalog.array_to_json(limited.unnumbered)
    ) order by limited.rolname, limited.oid), '[]')
    from limited
    where not (limited.may_select and limited.may_insert and limited.may_update and limited.may_delete) or limited.unnumbered <> '{}'
  ),
  'functions', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(denied.rolname, denied.nspname, denied.proname)
      order by denied.rolname, denied.nspname, denied.proname), '[]')
    from (
      select roles.rolname, namespace.nspname, proc.proname
      from roles
      cross join pg_catalog.pg_proc proc
      join pg_catalog.pg_namespace namespace on namespace.oid = proc.pronamespace
      where namespace.nspname not in ('pg_catalog', 'information_schema')
        and not exists (
          select from pg_catalog.pg_depend owner
          where owner.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and owner.objid = proc.oid and owner.deptype = 'e'
        )
      group by roles.rolname, namespace.nspname, proc.proname
      having not pg_catalog.bool_or(pg_catalog.has_function_privilege(roles.oid, proc.oid, 'execute')
        and pg_catalog.has_schema_privilege(roles.oid, namespace.oid, 'usage'))
    ) denied
  )
)::text
