-- PATCH /items/preferences?fields=title {"title":"Titled"}

begin;

-- $1 = 'public.preferences'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral ' operator(pg_catalog.||) $1::text, 0));

select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."preferences" "%t1"
    order by "%t1"."id"
    limit 1 for update of "%t1"
  ) "%p1"
  order by "%p1"."id"
) "%r1";

-- $1 = '[{"c0":"Titled"}]'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
-- $3 = '{0}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('preferences_id_seq'::regclass)) as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($1::json) as ("c0" "pg_catalog"."text"))
    with ordinality as "%x" ("c0", n)
  order by "%x".n
), "%w0" as (
  insert into "public"."preferences" as "%t" ("id", "title") overriding system value
  select "%i".k, "%i"."c0"
  from "%i0" "%i"
  order by "%i".n
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"title":'
      || coalesce(pg_catalog.to_json("%t"."title")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'create', 'preferences', "id"::text, "%j", coalesce("%d", "%j")
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

select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"title":' || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."title", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."preferences" "%t1"
    where "%t1"."id" operator(pg_catalog.=) (
      select (pg_catalog.current_setting('lateral.keys')::"pg_catalog"."int4"[])[1]
    )::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";

commit;
