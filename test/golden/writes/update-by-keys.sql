-- PATCH /items/tags?fields=id {"keys":[1,2],"data":{"name":"same"}}

begin;

-- $1 = '[{"k":"1","c0":"same"},{"k":"2","c0":"same"}]'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."varchar"))
    with ordinality as "%x" (k, "c0", n)
  order by "%x".n
), "%w0" as (
  update "public"."tags" "%t"
  set "name" = "%i"."c0"
  from (
    select "%s".*
    from "%i0" "%s"
    join "public"."tags" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    ('{"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'tags', "id"::text, "%j", coalesce("%d", "%j")
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

-- $1 = '{"1","2"}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%o2".n as "%s0"
    from "public"."tags" "%t1"
    join pg_catalog.unnest($1::"pg_catalog"."int4"[]) with ordinality as "%o2" (k, n)
      on "%o2".k operator(pg_catalog.=) "%t1"."id"
    where "%t1"."id" operator(pg_catalog.=) any($1::"pg_catalog"."int4"[])
    order by "%o2".n
  ) "%p1"
  order by "%p1"."%s0"
) "%r1";

commit;
