-- /sales_orders?fields=id,author.name&filter[author][born][_gt]=1900-01-01
-- $1 = '1900-01-01'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"author":'
    || coalesce("%l4"."%j", 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%t1"."author"
    from "sales"."orders" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    where "%t2"."born" operator(pg_catalog.>) $1::"pg_catalog"."date"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select '{"name":' || coalesce(pg_catalog.to_json("%p3"."name")::text, 'null') || '}' as "%j"
    from (
      select "%t3"."name"
      from "public"."authors" "%t3"
      where "%t3"."id" operator(pg_catalog.=) "%p1"."author"
      limit 1
    ) "%p3"
    offset 0
  ) "%l4" on true
  order by "%p1"."id"
) "%r1"
