-- DELETE /items/comments {"query":{"filter":{"article":{"title":{"_eq":"Beta"}}}}}

begin;

-- $1 = 'force_custom_plan'
select pg_catalog.set_config('plan_cache_mode', $1, true);

-- $1 = 'Beta'
-- $2 = '100001'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."comments" "%t1"
    left join "public"."articles" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."article"
    where "%t2"."title" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
    order by "%t1"."id"
    limit $2::bigint for update of "%t1"
  ) "%p1"
  order by "%p1"."id"
) "%r1";

-- $1 = 'force_generic_plan'
select pg_catalog.set_config('plan_cache_mode', $1, true);

-- $1 = '{}'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%k" as materialized (
  select distinct pg_catalog.unnest($1::"pg_catalog"."int4"[]) as k
), "%w" as (
  delete from "public"."comments" "%t"
  using "%k"
  where "%t"."id" operator(pg_catalog.=) "%k".k
  returning "%t"."id"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'delete', 'comments', "id"::text, null::json, null::json
    from "%w"
  ) "%x"
), "%jb" as (
  insert into "public"."service_activity" (id, action, collection, item, "user", ip, user_agent, origin)
  select id, action, collection, item, "user", ip, user_agent, origin
  from "%ja", "%jd"
)
select
case
when (
  select count(*)
  from "%w"
) operator(pg_catalog.<) (
  select count(*)
  from "%k"
) then "public".service_raise('missing')
end;

commit;
