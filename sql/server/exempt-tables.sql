-- Tables of the schemas $1, a JSON list, with row-level security from which the role of the service is exempt.
select coalesce(pg_catalog.json_agg(class.oid::int8 order by class.oid), '[]')::text
from pg_catalog.pg_class class
join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
join pg_catalog.pg_roles login on login.rolname = current_user
where class.relrowsecurity and namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
  and (login.rolsuper or login.rolbypassrls
    or (not class.relforcerowsecurity and pg_catalog.pg_has_role(class.relowner, 'usage')))
