-- DELETE /items/comments/2
-- if-match: "1.a.b"

-- $1 = '{"1"}'
-- $2 = '2'
-- $3 = '00000000-0000-0000-0000-000000000001'
-- $4 = '127.0.0.1'
-- $5 = null
-- $6 = null
with "%l" as materialized (
  select pg_catalog.textin(pg_catalog.xidout("%t".xmin)) operator(pg_catalog.=) any($1::text[]) as "%m"
  from "public"."comments" "%t"
  where "%t"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4" for update of "%t"
), "%w" as (
  delete from "public"."comments" "%t"
  using "%l"
  where "%t"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4"
  and "%l"."%m"
  returning "%t"."id"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'delete', 'comments', "%w"."id"::text, $3::uuid, $4::text, $5::text, $6::text
  from "%w"
  returning id, item
)
select ''
from "%w"
union all
select '!'
from "%l"
where not "%l"."%m";
