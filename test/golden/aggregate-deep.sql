-- /authors?fields=id,articles&deep[articles][_aggregate][avg]=rating&deep[articles][_groupBy]=status
select '{"data":' || coalesce(json_agg("%r1")::text, '[]') || '}'
from (
  select "%p1"."id" as "id", "%l4"."%j" as "articles"
  from (
    select "%t1"."id"
    from "public"."authors" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce(json_agg("%r2"), '[]') as "%j"
    from (
      select "%p2"."%g0" as "status", (
        select row_to_json("%f3")
        from (
          select "%p2"."%a0"::text as "rating"
        ) "%f3"
      ) as "avg"
      from (
        select "%t2"."status" as "%g0", avg("%t2"."rating") as "%a0"
        from "public"."articles" "%t2"
        where "%t2"."author" = "%p1"."id"
        group by "%g0"
        order by "%g0"
        limit 100
      ) "%p2"
      order by "%p2"."%g0"
    ) "%r2"
  ) "%l4" on true
  order by "%p1"."id"
) "%r1"
