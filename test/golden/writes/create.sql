-- POST /items/articles?fields=id,title {"title":"New","rating":"4.50"}

-- $1 = 'New'
-- $2 = '4.50'
-- $3 = '00000000-0000-0000-0000-000000000001'
-- $4 = '127.0.0.1'
-- $5 = null
-- $6 = null
with "%w" as (
  insert into "public"."articles" as "%t" ("title", "rating")
  values ($1::"pg_catalog"."varchar", $2::"pg_catalog"."numeric")
  returning "%t"."id", "%t"."title", "%t"."slug", "%t"."body", "%t"."status", "%t"."views", "%t"."rating",
    "%t"."published_at", "%t"."meta", "%t"."author", pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
    (((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"title":'
      || coalesce(pg_catalog.to_json("%t"."title")::text, 'null'))
      || (',"slug":' || coalesce(pg_catalog.to_json("%t"."slug")::text, 'null')))
      || (',"body":' || coalesce(pg_catalog.to_json("%t"."body")::text, 'null') || ',"status":'
        || coalesce(pg_catalog.to_json("%t"."status")::text, 'null')))
      || (((',"views":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."views")), 'null')
        || coalesce(',"rating":"' || pg_catalog.textin(pg_catalog.numeric_out("%t"."rating")) || '"', ',"rating":null'))
        || (coalesce(',"published_at":"' || case when pg_catalog.isfinite("%t"."published_at")
          then pg_catalog.to_char("%t"."published_at" at time zone 'UTC', case
            when "%t"."published_at" operator(pg_catalog.=) "%t"."published_at"::timestamptz(3)
            then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"' else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
          || case when "%t"."published_at" operator(pg_catalog.<) '0001-01-01 00:00:00+00'::timestamptz then ' BC'
          else '' end else "%t"."published_at"::text end || '"', ',"published_at":null')))
        || (',"meta":' || coalesce(pg_catalog.textin(pg_catalog.json_out("%t"."meta")), 'null') || ',"author":'
          || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null') || '}')))::json as "%j",
    null::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'create', 'articles', "%w"."id"::text, $3::uuid, $4::text, $5::text, $6::text
  from "%w"
  returning id, item
), "%r" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select "%a".id, 'articles', "%a".item, "%w"."%j", coalesce("%w"."%d", "%w"."%j")
  from "%a", "%w"
)
select coalesce((
  select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
  from (
    select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"title":'
      || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || '}' as "%j", "%p1"."%e"
    from (
      select "%t1"."id", "%t1"."title", "%t1"."%e"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w";
