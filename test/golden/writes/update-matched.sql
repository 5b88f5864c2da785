-- PATCH /items/tags/2?fields=name {"name":"matched"}
-- if-match: "1.a.b", "2.a.b"

-- $1 = '{"1","2"}'
-- $2 = '2'
-- $3 = 'matched'
-- $4 = '00000000-0000-0000-0000-000000000001'
-- $5 = '127.0.0.1'
-- $6 = null
-- $7 = null
with "%l" as materialized (
  select pg_catalog.textin(pg_catalog.xidout("%t".xmin)) operator(pg_catalog.=) any($1::text[]) as "%m"
  from "public"."tags" "%t"
  where "%t"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4" for no key update of "%t"
), "%w" as (
  update "public"."tags" "%t"
  set "name" = $3::"pg_catalog"."varchar"
  from "%l"
  where "%t"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4"
  and "%l"."%m"
  returning "%t"."id", "%t"."name", pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    ('{"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'update', 'tags', "%w"."id"::text, $4::uuid, $5::text, $6::text, $7::text
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
    select '{"name":' || coalesce(pg_catalog.to_json("%p1"."name")::text, 'null') || '}' as "%j", "%p1"."%e"
    from (
      select "%t1"."name", "%t1"."%e"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w"
union all
select '!'
from "%l"
where not "%l"."%m";
