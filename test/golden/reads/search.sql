-- /articles?fields=id&search=hello
-- $1 = null
-- $2 = '%hello%'
-- $3 = null
select coalesce('{"data":[' || string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(textin(int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where ("%t1"."id" = $1::"pg_catalog"."int4" or "%t1"."title" ilike $2 or "%t1"."slug" ilike $2 or "%t1"."body" ilike $2 or "%t1"."status" ilike $2 or "%t1"."views" = $1::"pg_catalog"."int4" or "%t1"."rating" = $3::"pg_catalog"."numeric" or "%t1"."author" = $1::"pg_catalog"."int4")
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
