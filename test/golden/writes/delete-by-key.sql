-- DELETE /items/comments/2

-- $1 = '2'
-- $2 = '00000000-0000-0000-0000-000000000001'
-- $3 = '127.0.0.1'
-- $4 = null
-- $5 = null
with "%w" as (
  delete from "public"."comments" "%t"
  where "%t"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
  returning "%t"."id"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'delete', 'comments', "%w"."id"::text, $2::uuid, $3::text, $4::text, $5::text
  from "%w"
  returning id, item
)
select ''
from "%w";
