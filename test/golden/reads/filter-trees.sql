-- /samples?fields=id&filter[tree][_descendant_of]=top.sql
-- $1 = 'top.sql'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."samples" "%t1"
    where "%t1"."tree" operator("ext".<@) $1::"ext"."ltree"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
