-- PATCH /items/articles/8?fields=id {"title":"Matched","comments":{"create":[{"body":"Matched"}]}}
-- if-match: "1.a.b"

-- $1 = '[{"k":"8","c0":"Matched","c1":"draft"}]'
-- $2 = '[{"c0":"Matched","c1":"8"}]'
-- $3 = '{0}'
-- $4 = '{"1"}'
-- $5 = '{"00000000-0000-0000-0000-000000000002"}'
-- $6 = '{"user":"00000000-0000-0000-0000-000000000002","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0", "%x"."c1"
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."varchar",
    "c1" "pg_catalog"."varchar"))
    with ordinality as "%x" (k, "c0", "c1", n)
  order by "%x".n
), "%i1" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('comments_id_seq'::regclass)) as k, "%x"."c0", "%x"."c1"
  from rows from (pg_catalog.json_to_recordset($2::json) as ("c0" "pg_catalog"."text", "c1" "pg_catalog"."int4"))
    with ordinality as "%x" ("c0", "c1", n)
  order by "%x".n
), "%l0" as materialized (
  select "%s".*, "%s".n operator(pg_catalog.<>) all($3::int4[])
  or pg_catalog.textin(pg_catalog.xidout("%l".xmin)) operator(pg_catalog.=) any($4::text[]) as "%m"
  from "%i0" "%s"
  join "public"."articles" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
  left join "public"."authors" "%t1" on "%t1"."id" operator(pg_catalog.=) "%l"."author"
  where ("%t1"."name" operator(pg_catalog.=) any(array(
    select "%t2"."first_name"::text::"pg_catalog"."varchar"
    from "public"."service_users" "%t2"
    where "%t2"."id" operator(pg_catalog.=) any($5::uuid[])
  )))
  order by "%s".k for no key update of "%l"
), "%w0" as (
  update "public"."articles" "%t"
  set "title" = "%i"."c0", "status" = "%i"."c1"
  from "%l0" "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  and "%i"."%m"
  returning "%t"."id",
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
), "%w1" as (
  insert into "public"."comments" as "%t" ("id", "body", "article") overriding system value
  select "%i".k, "%i"."c0", "%i"."c1"
  from "%i1" "%i"
  order by "%i".n
  returning "%t"."id",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"body":'
      || coalesce(pg_catalog.to_json("%t"."body")::text, 'null'))
      || (coalesce(',"created":"' || case when pg_catalog.isfinite("%t"."created")
        then pg_catalog.to_char("%t"."created" at time zone 'UTC', case
          when "%t"."created" operator(pg_catalog.=) "%t"."created"::timestamptz(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
          else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
        || case when "%t"."created" operator(pg_catalog.<) '0001-01-01 00:00:00+00'::timestamptz then ' BC' else '' end
        else "%t"."created"::text end || '"', ',"created":null')))
      || (',"article":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."article")), 'null') || ',"author":'
        || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null') || '}'))::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($6::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'articles', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
    union all
    select 'create', 'comments', "id"::text, "%j", coalesce("%d", "%j")
    from "%w1"
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
select pg_catalog.json_build_array(null, (
  select pg_catalog.max("id")::text
  from "%w1"
))::text,
case
when exists (
  select
  from "%l0"
  where not "%m"
) then "public".service_refuse('changed')
end, (
  select "public".service_refuse('0 0 ' || "%i".n::text)
  from "%i0" "%i"
  where (("%i"."c0" is not null and "%i"."c0" operator(pg_catalog.<>) '')) is not true
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
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."id", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."articles" "%t1"
    where "%t1"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
