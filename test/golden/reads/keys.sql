-- SEARCH /articles {"keys":[1,2],"query":{"fields":["id"]}}
-- $1 = '{"1","2"}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where "%t1"."id" operator(pg_catalog.=) any($1::"pg_catalog"."int4"[])
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
