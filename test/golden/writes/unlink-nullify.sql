-- PATCH /items/articles/1?fields=id {"comments":{"delete":[1]}}

-- $1 = '[{"k":"1"}]'
-- $2 = '[{"parent":"1","child":"1"}]'
-- $3 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n - 1 as n, "%x".k as k
  from rows
  from (json_to_recordset($1::json) as (k "pg_catalog"."int4"))
  with ordinality as "%x" (k, n)
  order by "%x".n
), "%x0" as materialized (
  select "%x".parent, "%x".child
  from json_to_recordset($2::json) as "%x" (parent "pg_catalog"."int4", child "pg_catalog"."int4")
), "%w0" as (
  select "%t"."id"
  from "%i0" "%i" join "public"."articles" "%t" on "%t"."id" = "%i".k
  order by "%i".k for no key update of "%t"
), "%u0" as (update "public"."comments" "%t" set "article" = case when exists (
  select
  from "%x0" "%y"
  where "%y".parent = "%t"."article"
  and ("%y".child is null or "%y".child = "%t"."id")
) then null else "%t"."article" end where "%t"."id" in (
  select "%c"."id"
  from "public"."comments" "%c"
  where "%c"."article" in (
    select parent
    from "%x0"
  )
) and (exists (
  select
  from "%x0" "%y"
  where "%y".parent = "%t"."article"
  and ("%y".child is null or "%y".child = "%t"."id")
)) returning "%t"."id"), "%jd" as materialized (
  select *
  from json_to_record($3::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'comments', "id"::text, null::json, null::json
    from "%u0"
  ) "%x"
), "%jb" as (insert into "public"."service_activity" (id, action, collection, item, "user", ip, user_agent, origin) select id, action, collection, item, "user", ip, user_agent, origin from "%ja", "%jd")
select json_build_array(null)::text,
case
when (
  select count(*)
  from "%w0"
) < (
  select count(*)
  from "%i0"
) then "public".service_raise('missing')
end;

-- $1 = '1'
select '{"data":' || "%r1"."%j" || '}'
from (
  select '{"id":' || coalesce(textin(int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where "%t1"."id" = $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
