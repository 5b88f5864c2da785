-- /authors?fields=id,articles&deep[articles][_aggregate][avg]=rating&deep[articles][_groupBy]=status
select '{"data":' || coalesce('[' || string_agg("%r1"."%j", ',') || ']', '[]') || '}'
from (
  select '{"id":' || coalesce("%p1"."id"::text, 'null') || ',"articles":' || coalesce("%l3"."%j", 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."authors" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce('[' || string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"status":' || coalesce(to_json("%p2"."%g0")::text, 'null') || ',"avg":' || coalesce(coalesce('{"rating":"' || "%p2"."%a0"::text || '"', '{"rating":null') || '}', 'null') || '}' as "%j"
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
  ) "%l3" on true
  order by "%p1"."id"
) "%r1"
