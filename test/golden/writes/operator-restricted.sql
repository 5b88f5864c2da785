-- PATCH /items/articles/8?fields=title {"title":{"_append":"!"}}

-- $1 = '[{"k":"8","c0":"!","c1":"draft"}]'
-- $2 = '{"00000000-0000-0000-0000-000000000002"}'
-- $3 = '{"user":"00000000-0000-0000-0000-000000000002","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0", "%x"."c1"
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."varchar",
    "c1" "pg_catalog"."varchar"))
    with ordinality as "%x" (k, "c0", "c1", n)
  order by "%x".n
), "%w0" as (
  update "public"."articles" "%t"
  set "title" = coalesce("%t"."title"::text, '') || "%i"."c0"::text, "status" = "%i"."c1"
  from (
    select "%s".*
    from "%i0" "%s"
    join "public"."articles" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    left join "public"."authors" "%t1" on "%t1"."id" operator(pg_catalog.=) "%l"."author"
    where ("%t1"."name" operator(pg_catalog.=) any(array(
      select "%t2"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t2"
      where "%t2"."id" operator(pg_catalog.=) any($2::uuid[])
    )))
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  returning "%t"."id", "%t"."title" as "%g0", "%i".n as "%n",
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
    ('{"title":' || coalesce(pg_catalog.to_json("%t"."title")::text, 'null') || ',"status":'
      || coalesce(pg_catalog.to_json("%t"."status")::text, 'null') || '}')::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($3::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'articles', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
  ) "%x"
), "%jb" as (
  insert into "public"."service_activity" (id, action, collection, item, "user", ip, user_agent, origin)
  select id, action, collection, item, "user", ip, user_agent, origin
  from "%ja", "%jd"
), "%jc" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select id, collection, item, data, delta
  from "%ja"
  where data is not null
)
select pg_catalog.json_build_array(null)::text, (
  select "public".service_refuse('0 0 ' || "%i".n::text)
  from "%i0" "%i"
  join "%w0" "%w" on "%w"."%n" operator(pg_catalog.=) "%i".n
  where (("%w"."%g0" is not null and "%w"."%g0" operator(pg_catalog.<>) '')) is not true
  order by "%i".n
  limit 1
),
case
when (
  select count(*)
  from "%w0"
) operator(pg_catalog.<) (
  select count(*)
  from "%i0"
) then "public".service_raise('missing')
end;

-- $1 = '8'
select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"title":' || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."title", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."articles" "%t1"
    where "%t1"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
