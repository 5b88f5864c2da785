-- /articles?aggregate[count]=*&aggregate[sum]=views,rating&groupBy=status,year(published_at)&having[count][_gt]=1&sort=-count
-- $1 = '1'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select ('{"status":' || coalesce(pg_catalog.to_json("%p1"."%g0")::text, 'null') || ',"published_at_year":'
    || coalesce("%p1"."%g1"::text, 'null'))
    || (',"count":' || ("%p1"."%a0"::text) || ',"sum":'
      || ('{"views":' || coalesce(pg_catalog.to_json("%p1"."%a1")::text, 'null')
        || coalesce(',"rating":"' || "%p1"."%a2"::text || '"', ',"rating":null') || '}')
      || '}') as "%j"
  from (
    select "%t1"."status" as "%g0",
    case
    when pg_catalog.isfinite("%t1"."published_at")
      then pg_catalog.floor(extract(year from ("%t1"."published_at" at time zone 'UTC')))::int4
    end as "%g1", count(*) as "%a0", pg_catalog.sum("%t1"."views") as "%a1", pg_catalog.sum("%t1"."rating") as "%a2"
    from "public"."articles" "%t1"
    group by "%g0", "%g1"
    having count(*) operator(pg_catalog.>) $1::numeric
    order by "%a0" desc, "%g0", "%g1"
    limit 100
  ) "%p1"
  order by "%p1"."%a0" desc, "%p1"."%g0", "%p1"."%g1"
) "%r1"
