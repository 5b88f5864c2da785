-- PATCH /items/articles?fields=id {"query":{"filter":{"author":{"name":{"_eq":"Alan Turing"}}}},"data":{"views":0}}

begin;

-- $1 = 'force_custom_plan'
select pg_catalog.set_config('plan_cache_mode', $1, true);

-- $1 = 'Alan Turing'
-- $2 = '100001'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    where "%t2"."name" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
    order by "%t1"."id"
    limit $2::bigint for update of "%t1"
  ) "%p1"
  order by "%p1"."id"
) "%r1";

-- $1 = 'force_generic_plan'
select pg_catalog.set_config('plan_cache_mode', $1, true);

-- $1 = '[{"k":"3","c0":"0"},{"k":"4","c0":"0"},{"k":"9","c0":"0"}]'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."int4"))
    with ordinality as "%x" (k, "c0", n)
  order by "%x".n
), "%w0" as (
  update "public"."articles" "%t"
  set "views" = "%i"."c0"
  from (
    select "%s".*
    from "%i0" "%s"
    join "public"."articles" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
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
    ('{"views":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."views")), 'null') || '}')::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
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

-- $1 = '{"3","4","9"}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%o2".n as "%s0"
    from "public"."articles" "%t1"
    join pg_catalog.unnest($1::"pg_catalog"."int4"[]) with ordinality as "%o2" (k, n)
      on "%o2".k operator(pg_catalog.=) "%t1"."id"
    where "%t1"."id" operator(pg_catalog.=) any($1::"pg_catalog"."int4"[])
    order by "%o2".n
  ) "%p1"
  order by "%p1"."%s0"
) "%r1";

commit;
