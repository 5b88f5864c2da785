-- /articles?fields=id&filter[year(published_at)][_eq]=2023&filter[count(comments)][_gt]=1
-- $1 = '2023'
-- $2 = '1'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where (case when pg_catalog.isfinite("%t1"."published_at")
      then pg_catalog.floor(extract(year from ("%t1"."published_at" at time zone 'UTC')))::int4 end operator(pg_catalog.=) $1::int4
      and (
      select count(*)
      from "public"."comments" "%t2"
      where "%t2"."article" operator(pg_catalog.=) "%t1"."id"
    ) operator(pg_catalog.>) $2::int8)
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
