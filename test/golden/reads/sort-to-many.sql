-- /articles?fields=id&sort=-comments.created
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id", (
      select "%t2"."created"
      from "public"."comments" "%t2"
      where "%t2"."article" operator(pg_catalog.=) "%t1"."id"
      order by "%t2"."created" desc
      limit 1
    ) as "%s0"
    from "public"."articles" "%t1"
    order by (
      select "%t2"."created"
      from "public"."comments" "%t2"
      where "%t2"."article" operator(pg_catalog.=) "%t1"."id"
      order by "%t2"."created" desc
      limit 1
    ) desc, "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."%s0" desc, "%p1"."id"
) "%r1"
