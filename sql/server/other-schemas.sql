-- Schemas beside those that are served ($1, a JSON list) that hold tables, with how many, as one document. What extensions bring
-- along does not count, nor do the service's own tables, whose names are the JSON list $2.
select coalesce(pg_catalog.json_agg(found order by found.schema), '[]')::text
from (
  select namespace.nspname as schema, pg_catalog.count(*)::int as tables
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where class.relkind in ('r', 'p', 'v', 'm', 'f') and not class.relispartition
    and namespace.nspname !~ '^pg_' and namespace.nspname <> 'information_schema'
    and namespace.nspname not in (select pg_catalog.json_array_elements_text($1::json))
    and class.relname not in (select pg_catalog.json_array_elements_text($2::json))
    and not exists (
      select from pg_catalog.pg_depend part
      where part.objid in (class.oid, namespace.oid) and part.deptype = 'e'
        and (part.classid = 'pg_catalog.pg_class'::pg_catalog.regclass or part.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass)
    )
  group by namespace.nspname
) found
