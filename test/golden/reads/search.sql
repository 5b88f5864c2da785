-- /articles?fields=id&search=hello
-- $1 = null
-- $2 = '%hello%'
-- $3 = null
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where ("%t1"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4" or "%t1"."title" operator(pg_catalog.~~*) $2
      or "%t1"."slug" operator(pg_catalog.~~*) $2 or "%t1"."body" operator(pg_catalog.~~*) $2
      or "%t1"."status" operator(pg_catalog.~~*) $2 or "%t1"."views" operator(pg_catalog.=) $1::"pg_catalog"."int4"
      or "%t1"."rating" operator(pg_catalog.=) $3::"pg_catalog"."numeric"
      or "%t1"."author" operator(pg_catalog.=) $1::"pg_catalog"."int4")
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
