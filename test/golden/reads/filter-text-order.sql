-- /articles?fields=id&filter[slug][_between]=a,m&filter[title][_gt]=B
-- $1 = 'a'
-- $2 = 'm'
-- $3 = 'B'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where (("%t1"."slug" operator(pg_catalog.>=) $1::"pg_catalog"."varchar"
      and "%t1"."slug" operator(pg_catalog.<=) $2::"pg_catalog"."varchar")
      and "%t1"."title" operator(pg_catalog.>) $3::"pg_catalog"."varchar")
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
