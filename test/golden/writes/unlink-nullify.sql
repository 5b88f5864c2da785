-- PATCH /items/articles/1?fields=id {"comments":{"delete":[1]}}

-- $1 = '[{"k":"1"}]'
-- $2 = '[{"parent":"1","child":"1"}]'
-- $3 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4")) with ordinality as "%x" (k, n)
  order by "%x".n
), "%x0" as materialized (
  select "%x".parent, "%x".child
  from pg_catalog.json_to_recordset($2::json) as "%x" (parent "pg_catalog"."int4", child "pg_catalog"."int4")
), "%w0" as (
  select "%t"."id"
  from "%i0" "%i"
  join "public"."articles" "%t" on "%t"."id" operator(pg_catalog.=) "%i".k
  order by "%i".k for no key update of "%t"
), "%u0" as (
  update "public"."comments" "%t"
  set "article" =
  case
  when exists (
    select
    from "%x0" "%y"
    where "%y".parent operator(pg_catalog.=) "%t"."article"
    and ("%y".child is null or "%y".child operator(pg_catalog.=) "%t"."id")
  ) then null
  else "%t"."article"
  end
  where "%t"."id" operator(pg_catalog.=) any (
    select "%c"."id"
    from "public"."comments" "%c"
    where "%c"."article" operator(pg_catalog.=) any (
      select parent
      from "%x0"
    )
  )
  and (exists (
    select
    from "%x0" "%y"
    where "%y".parent operator(pg_catalog.=) "%t"."article"
    and ("%y".child is null or "%y".child operator(pg_catalog.=) "%t"."id")
  ))
  returning "%t"."id"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($3::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'comments', "id"::text, null::json, null::json
    from "%u0"
  ) "%x"
), "%jb" as (
  insert into "public"."service_activity" (id, action, collection, item, "user", ip, user_agent, origin)
  select id, action, collection, item, "user", ip, user_agent, origin
  from "%ja", "%jd"
)
select pg_catalog.json_build_array(null)::text,
case
when (
  select count(*)
  from "%w0"
) operator(pg_catalog.<) (
  select count(*)
  from "%i0"
) then "public".service_raise('missing')
end;

-- $1 = '1'
select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."id", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."articles" "%t1"
    where "%t1"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
