-- Tables in the schema $1 whose names are in the JSON list $2, and triggers of other tables that use them, as one document.
with names as materialized (
  select class.oid, class.relname, class.relnamespace
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where namespace.nspname = $1 and class.relkind = 'r'
    and class.relname in (select pg_catalog.json_array_elements_text($2::json))
)
select pg_catalog.json_build_object(
  'tables', (select coalesce(pg_catalog.json_agg(names.relname order by names.relname), '[]') from names),
  'triggers', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', trigger.tgname,
      'table', pg_catalog.format('%I.%I', namespace.nspname, class.relname)) order by namespace.nspname, class.relname, trigger.tgname), '[]')
    from pg_catalog.pg_trigger trigger
    join pg_catalog.pg_proc proc on proc.oid = trigger.tgfoid
    join pg_catalog.pg_class class on class.oid = trigger.tgrelid
    join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
    where not trigger.tgisinternal and trigger.tgparentid = 0 and trigger.tgrelid not in (select names.oid from names)
      and exists (
        select from names where names.relnamespace = proc.pronamespace and proc.prosrc ~ pg_catalog.concat('\m', names.relname, '\M')
      )
  )
)::text
