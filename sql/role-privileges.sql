-- The privileges of the roles that the service may become, on the tables of the schemas $1, a JSON list: the role, the table, whether rows
-- may be deleted, and the columns that may be read, inserted and updated, or null for all. Without an entry, a role may do everything.
select coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(
  limited.rolname, limited.oid::int8, limited.may_delete,
  case when not limited.may_select then pg_catalog.array_to_json(limited.selected) end,
  case when not limited.may_insert then pg_catalog.array_to_json(limited.inserted) end,
  case when not limited.may_update then pg_catalog.array_to_json(limited.updated) end
) order by limited.rolname, limited.oid), '[]')::text
from (
  select role.rolname, class.oid,
    pg_catalog.has_table_privilege(role.oid, class.oid, 'select') as may_select,
    pg_catalog.has_table_privilege(role.oid, class.oid, 'insert') as may_insert,
    pg_catalog.has_table_privilege(role.oid, class.oid, 'update') as may_update,
    pg_catalog.has_table_privilege(role.oid, class.oid, 'delete') as may_delete,
    array(
      select attribute.attname::text from pg_catalog.pg_attribute attribute
      where attribute.attrelid = class.oid and attribute.attnum > 0 and not attribute.attisdropped
        and pg_catalog.has_column_privilege(role.oid, class.oid, attribute.attnum, 'select')
    ) as selected,
    array(
      select attribute.attname::text from pg_catalog.pg_attribute attribute
      where attribute.attrelid = class.oid and attribute.attnum > 0 and not attribute.attisdropped
        and pg_catalog.has_column_privilege(role.oid, class.oid, attribute.attnum, 'insert')
    ) as inserted,
    array(
      select attribute.attname::text from pg_catalog.pg_attribute attribute
      where attribute.attrelid = class.oid and attribute.attnum > 0 and not attribute.attisdropped
        and pg_catalog.has_column_privilege(role.oid, class.oid, attribute.attnum, 'update')
    ) as updated
  from pg_catalog.pg_roles role
  cross join pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where pg_catalog.pg_has_role(role.oid, 'member') and role.rolname <> current_user
    and namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
    and class.relkind in ('r', 'p', 'v', 'm', 'f') and not class.relispartition
) limited
where not (limited.may_select and limited.may_insert and limited.may_update and limited.may_delete)
