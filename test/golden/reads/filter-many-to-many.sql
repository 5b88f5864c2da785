-- /articles?fields=id&filter[tags][tags_id][name][_in]=news,tech
-- $1 = '{"news","tech"}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where exists (
      select
      from "public"."articles_tags" "%t2"
      left join "public"."tags" "%t3" on "%t3"."id" operator(pg_catalog.=) "%t2"."tags_id"
      where "%t2"."articles_id" operator(pg_catalog.=) "%t1"."id"
      and "%t3"."name" operator(pg_catalog.=) any($1::"pg_catalog"."varchar"[])
    )
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
