-- /articles?fields=id&sort=-year(published_at),count(comments)
select coalesce('{"data":[' || string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(textin(int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id",
    case
    when isfinite("%t1"."published_at") then floor(extract(year from ("%t1"."published_at" at time zone 'UTC')))::int4
    end as "%s0", (
      select count(*)
      from "public"."comments" "%t2"
      where "%t2"."article" = "%t1"."id"
    ) as "%s1"
    from "public"."articles" "%t1"
    order by
    case
    when isfinite("%t1"."published_at") then floor(extract(year from ("%t1"."published_at" at time zone 'UTC')))::int4
    end desc, (
      select count(*)
      from "public"."comments" "%t2"
      where "%t2"."article" = "%t1"."id"
    ), "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."%s0" desc, "%p1"."%s1", "%p1"."id"
) "%r1"
