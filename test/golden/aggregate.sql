-- /articles?aggregate[count]=*&aggregate[sum]=views,rating&groupBy=status,year(published_at)&having[count][_gt]=1&sort=-count
-- $1 = '1'
select '{"data":' || coalesce(json_agg("%r1")::text, '[]') || '}'
from (
  select "%p1"."%g0" as "status", "%p1"."%g1" as "published_at_year", "%p1"."%a0" as "count", (
    select row_to_json("%f2")
    from (
      select "%p1"."%a1" as "views", "%p1"."%a2"::text as "rating"
    ) "%f2"
  ) as "sum"
  from (
    select "%t1"."status" as "%g0",
    case
    when isfinite("%t1"."published_at") then floor(extract(year from ("%t1"."published_at" at time zone 'UTC')))::int4
    end as "%g1", count(*) as "%a0", sum("%t1"."views") as "%a1", sum("%t1"."rating") as "%a2"
    from "public"."articles" "%t1"
    group by "%g0", "%g1"
    having count(*) > $1::numeric
    order by "%a0" desc, "%g0", "%g1"
    limit 100
  ) "%p1"
  order by "%p1"."%a0" desc, "%p1"."%g0", "%p1"."%g1"
) "%r1"
