-- /samples?fields=id&filter[title][_similar]=tabels
-- $1 = 'tabels'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."samples" "%t1"
    where "%t1"."title" operator("ext".%) $1::text
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
