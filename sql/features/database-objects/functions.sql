-- Functions of the schemas $1, a JSON list, that a row of service_functions can make callable: their arguments have names and types that
-- values of a request can have. Functions of extensions, and those of the service in its schema $2, are left out. The name of the first
-- schema is null, as in service_functions.
select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
  'name', proc.proname,
  'schema', case when namespace.nspname <> ($1::json ->> 0) then namespace.nspname end,
  'arguments', pg_catalog.pg_get_function_arguments(proc.oid),
  'returns', pg_catalog.pg_get_function_result(proc.oid),
  'writes', proc.provolatile = 'v',
  'note', pg_catalog.obj_description(proc.oid, 'pg_proc')
) order by proc.proname, namespace.nspname, proc.oid), '[]')::text
from pg_catalog.pg_proc proc
join pg_catalog.pg_namespace namespace on namespace.oid = proc.pronamespace
where namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
  and proc.prokind = 'f'
  and not (namespace.nspname = $2::text and pg_catalog.starts_with(proc.proname::text, 'service_'))
  and not exists (
    select from pg_catalog.generate_series(1, pg_catalog.cardinality(coalesce(proc.proallargtypes, proc.proargtypes::oid[]))) place
    where coalesce(proc.proargmodes[place], 'i') = any (array['i', 'b', 'v']::"char"[]) and coalesce(proc.proargnames[place], '') = ''
  )
  and not exists (
    select from pg_catalog.pg_type type
    where type.typtype = 'p' and (
        type.oid = any (proc.proargtypes::oid[])
        or type.oid = proc.prorettype and type.typname not in ('record', 'void')
      )
  )
  and not exists (
    select from pg_catalog.pg_depend owner
    where owner.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass and owner.objid = proc.oid and owner.deptype = 'e'
  )
