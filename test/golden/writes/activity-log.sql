-- PATCH /items/tags/1?fields=id {"name":"recorded"}
-- user-agent: Browser/1.0
-- origin: https://example.com

-- $1 = 'recorded'
-- $2 = '1'
-- $3 = '00000000-0000-0000-0000-000000000001'
-- $4 = '127.0.0.1'
-- $5 = 'Browser/1.0'
-- $6 = 'https://example.com'
with "%w" as (
  update "public"."tags" "%t"
  set "name" = $1::"pg_catalog"."varchar"
  where "%t"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4"
  returning "%t"."id", "%t"."name", pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    ('{"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'update', 'tags', "%w"."id"::text, $3::uuid, $4::text, $5::text, $6::text
  from "%w"
  returning id, item
), "%r" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select "%a".id, 'tags', "%a".item, "%w"."%j", coalesce("%w"."%d", "%w"."%j")
  from "%a", "%w"
)
select coalesce((
  select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
  from (
    select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j", "%p1"."%e"
    from (
      select "%t1"."id", "%t1"."%e"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w";
