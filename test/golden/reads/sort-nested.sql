-- /articles?fields=id&sort=-author.name,title
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%t2"."name" as "%s0", "%t1"."title"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    order by "%t2"."name" desc, "%t1"."title", "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."%s0" desc, "%p1"."title", "%p1"."id"
) "%r1"
