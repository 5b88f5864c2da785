-- /articles?fields=id&filter[comments][author][name][_icontains]=a
-- $1 = '%a%'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where exists (
      select
      from "public"."comments" "%t2"
      left join "public"."authors" "%t3" on "%t3"."id" operator(pg_catalog.=) "%t2"."author"
      where "%t2"."article" operator(pg_catalog.=) "%t1"."id"
      and "%t3"."name" operator(pg_catalog.~~*) $1
    )
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
