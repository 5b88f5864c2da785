-- /articles?fields=id&sort=-year(published_at),count(comments)
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id",
    case
    when pg_catalog.isfinite("%t1"."published_at")
      then pg_catalog.floor(extract(year from ("%t1"."published_at" at time zone 'UTC')))::int4
    end as "%s0", (
      select count(*)
      from "public"."comments" "%t2"
      where "%t2"."article" operator(pg_catalog.=) "%t1"."id"
    ) as "%s1"
    from "public"."articles" "%t1"
    order by
    case
    when pg_catalog.isfinite("%t1"."published_at")
      then pg_catalog.floor(extract(year from ("%t1"."published_at" at time zone 'UTC')))::int4
    end desc, (
      select count(*)
      from "public"."comments" "%t2"
      where "%t2"."article" operator(pg_catalog.=) "%t1"."id"
    ), "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."%s0" desc, "%p1"."%s1", "%p1"."id"
) "%r1"
