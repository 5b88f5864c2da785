-- POST /items/authors?fields=id [{"name":"One"},{"name":"Two","born":"1912-06-23"}]

-- $1 = '[{"c0":"One"},{"c0":"Two","p1":true,"c1":"1912-06-23"}]'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
-- $3 = '{0,1}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('authors_id_seq'::regclass)) as k, "%x"."c0", "%x"."c1",
    "%x"."p1"
  from rows from (pg_catalog.json_to_recordset($1::json) as ("c0" "pg_catalog"."varchar", "c1" "pg_catalog"."date",
    "p1" bool))
    with ordinality as "%x" ("c0", "c1", "p1", n)
  order by "%x".n
), "%w0" as (
  insert into "public"."authors" as "%t" ("id", "name", "born") overriding system value
  select "%i".k, "%i"."c0",
  case
  when "%i"."p1" then "%i"."c1"
  else null
  end
  from "%i0" "%i"
  order by "%i".n
  returning "%t"."id",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null'))
      || (',"email":' || coalesce(pg_catalog.to_json("%t"."email")::text, 'null')))
      || ((',"bio":' || coalesce(pg_catalog.to_json("%t"."bio")::text, 'null') || ',"born":'
        || coalesce(pg_catalog.to_json("%t"."born")::text, 'null'))
        || (',"score":' || coalesce(pg_catalog.to_json("%t"."score")::text, 'null') || '}')))::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'create', 'authors', "id"::text, "%j", coalesce("%d", "%j")
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
select pg_catalog.json_build_array((
  select pg_catalog.max("id")::text
  from "%w0"
))::text, pg_catalog.set_config('lateral.keys', (
  select pg_catalog.array_agg("%i".k::text order by "%o".place)::text
  from pg_catalog.unnest($3::int4[]) with ordinality as "%o" (n, place)
  join "%i0" "%i" on "%i".n operator(pg_catalog.=) "%o".n
), true);

select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%o2".n as "%s0"
    from "public"."authors" "%t1"
    join pg_catalog.unnest((
      select pg_catalog.current_setting('lateral.keys')::"pg_catalog"."int4"[]
    )::"pg_catalog"."int4"[]) with ordinality as "%o2" (k, n) on "%o2".k operator(pg_catalog.=) "%t1"."id"
    where "%t1"."id" operator(pg_catalog.=) any((
      select pg_catalog.current_setting('lateral.keys')::"pg_catalog"."int4"[]
    )::"pg_catalog"."int4"[])
    order by "%o2".n
  ) "%p1"
  order by "%p1"."%s0"
) "%r1";
