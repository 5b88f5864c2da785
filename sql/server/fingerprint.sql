-- Changes whenever a table, column, type, constraint, index, default or comment of the schemas $1, a JSON list, does, or a function that is
-- served. Null where the event
-- trigger of the service's tables, which are in the schema $2, tells us, and $3 says that it can be heard.
select case
  when $3::boolean and exists (select from pg_catalog.pg_event_trigger where evtname = ('service_watch_' || $2) and evtenabled in ('O', 'A')) then null
  else (
    select pg_catalog.string_agg(pg_catalog.concat_ws(':',
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(c.xmin::text::bigint)
       from pg_catalog.pg_class c where c.relnamespace = n.oid),
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(a.xmin::text::bigint)
       from pg_catalog.pg_attribute a join pg_catalog.pg_class c on c.oid = a.attrelid
       where c.relnamespace = n.oid and a.attnum > 0),
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(k.xmin::text::bigint)
       from pg_catalog.pg_constraint k where k.connamespace = n.oid),
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(d.xmin::text::bigint)
       from pg_catalog.pg_attrdef d join pg_catalog.pg_class c on c.oid = d.adrelid where c.relnamespace = n.oid),
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(g.xmin::text::bigint)
       from pg_catalog.pg_trigger g join pg_catalog.pg_class c on c.oid = g.tgrelid
       where c.relnamespace = n.oid and not g.tgisinternal),
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(t.xmin::text::bigint)
       from pg_catalog.pg_type t where t.typnamespace = n.oid),
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(e.xmin::text::bigint) from pg_catalog.pg_enum e),
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(i.xmin::text::bigint)
       from pg_catalog.pg_index i join pg_catalog.pg_class c on c.oid = i.indrelid where c.relnamespace = n.oid),
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(m.xmin::text::bigint)
       from pg_catalog.pg_description m join pg_catalog.pg_class c on c.oid = m.objoid
       where m.classoid = 'pg_catalog.pg_class'::regclass and c.relnamespace = n.oid),
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(p.xmin::text::bigint)
       from pg_catalog.pg_proc p join pg_catalog.pg_namespace o on o.oid = p.pronamespace
       where o.oid = n.oid or o.nspname in (select schema from service_functions)),
      (select pg_catalog.count(*) || '/' || pg_catalog.sum(x.xmin::text::bigint) from pg_catalog.pg_extension x),
      (select version from service_schema)), ' ' order by n.nspname)
    from pg_catalog.pg_namespace n where n.nspname in (select pg_catalog.json_array_elements_text($1::json)))
end as fingerprint
