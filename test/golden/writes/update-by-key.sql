-- PATCH /items/articles/1?fields=title {"title":"Changed","author":null}

-- $1 = '[{"k":"1","c0":"Changed","c1":null}]'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n - 1 as n, "%x".k as k, "%x"."c0", "%x"."c1"
  from rows
  from (json_to_recordset($1::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."varchar", "c1" "pg_catalog"."int4"))
  with ordinality as "%x" (k, "c0", "c1", n)
  order by "%x".n
), "%w0" as (update "public"."articles" "%t" set "title" = "%i"."c0", "author" = "%i"."c1" from (
  select "%s".*
  from "%i0" "%s" join "public"."articles" "%l" on "%l"."id" = "%s".k
  order by "%s".k for no key update of "%l"
) "%i" where "%t"."id" = "%i".k returning "%t"."id", (((('{"id":' || coalesce(textin(int4out("%t"."id")), 'null') || ',"title":' || coalesce(pg_catalog.to_json("%t"."title")::text, 'null')) || (',"slug":' || coalesce(pg_catalog.to_json("%t"."slug")::text, 'null'))) || (',"body":' || coalesce(pg_catalog.to_json("%t"."body")::text, 'null') || ',"status":' || coalesce(pg_catalog.to_json("%t"."status")::text, 'null'))) || (((',"views":' || coalesce(textin(int4out("%t"."views")), 'null') || coalesce(',"rating":"' || textin(numeric_out("%t"."rating")) || '"', ',"rating":null')) || (coalesce(',"published_at":"' || case when isfinite("%t"."published_at") then to_char("%t"."published_at" at time zone 'UTC', case when "%t"."published_at" = "%t"."published_at"::timestamptz(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"' else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end) || case when "%t"."published_at" < '0001-01-01 00:00:00+00'::timestamptz then ' BC' else '' end else "%t"."published_at"::text end || '"', ',"published_at":null'))) || (',"meta":' || coalesce(textin(json_out("%t"."meta")), 'null') || ',"author":' || coalesce(textin(int4out("%t"."author")), 'null') || '}')))::json as "%j", ('{"title":' || coalesce(pg_catalog.to_json("%t"."title")::text, 'null') || ',"author":' || coalesce(textin(int4out("%t"."author")), 'null') || '}')::json as "%d"), "%jd" as materialized (
  select *
  from json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'articles', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
  ) "%x"
), "%jb" as (insert into "public"."service_activity" (id, action, collection, item, "user", ip, user_agent, origin) select id, action, collection, item, "user", ip, user_agent, origin from "%ja", "%jd"), "%jc" as (insert into "public"."service_revisions" (activity, collection, item, data, delta) select id, collection, item, data, delta from "%ja" where data is not null)
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
  select '{"title":' || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || '}' as "%j"
  from (
    select "%t1"."title"
    from "public"."articles" "%t1"
    where "%t1"."id" = $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
