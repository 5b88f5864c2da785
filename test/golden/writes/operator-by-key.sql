-- PATCH /items/articles/1?fields=views,meta {"views":{"_increment":1},"meta":{"_merge":{"seen":true}}}

-- $1 = '1'
-- $2 = '{"seen":true}'
-- $3 = '1'
-- $4 = '00000000-0000-0000-0000-000000000001'
-- $5 = '127.0.0.1'
-- $6 = null
-- $7 = null
with "%w" as (
  update "public"."articles" "%t"
  set "views" = coalesce("%t"."views", '0'::"pg_catalog"."int4") operator(pg_catalog.+) $1::"pg_catalog"."int4",
    "meta" =
  case
  when coalesce(pg_catalog.json_typeof("%t"."meta"), 'null') operator(pg_catalog.=) 'null' then $2::"pg_catalog"."json"
  when pg_catalog.json_typeof("%t"."meta") operator(pg_catalog.=) 'object'
    then ("%t"."meta"::jsonb operator(pg_catalog.||) $2::"pg_catalog"."json"::jsonb)::json
  when "public".service_refuse('0 operator 0 1') then null
  end
  where "%t"."id" operator(pg_catalog.=) $3::"pg_catalog"."int4"
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
    ('{"views":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."views")), 'null') || ',"meta":'
      || coalesce(pg_catalog.textin(pg_catalog.json_out("%t"."meta")), 'null') || '}')::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'update', 'articles', "%w"."id"::text, $4::uuid, $5::text, $6::text, $7::text
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
    select '{"views":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."views")), 'null') || ',"meta":'
      || coalesce(pg_catalog.textin(pg_catalog.json_out("%p1"."meta")), 'null') || '}' as "%j", "%p1"."%e"
    from (
      select "%t1"."views", "%t1"."meta", "%t1"."%e"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w";
