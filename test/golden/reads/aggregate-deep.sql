-- /authors?fields=id,articles&deep[articles][_aggregate][avg]=rating&deep[articles][_groupBy]=status
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"articles":'
    || ("%l3"."%j") || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."authors" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"status":' || coalesce(pg_catalog.to_json("%p2"."%g0")::text, 'null') || ',"avg":'
        || (coalesce('{"rating":"' || "%p2"."%a0"::text || '"', '{"rating":null') || '}') || '}' as "%j"
      from (
        select "%t2"."status" as "%g0", pg_catalog.avg("%t2"."rating") as "%a0"
        from "public"."articles" "%t2"
        where "%t2"."author" operator(pg_catalog.=) "%p1"."id"
        group by "%g0"
        order by "%g0"
        limit 100
      ) "%p2"
      order by "%p2"."%g0"
    ) "%r2"
  ) "%l3" on true
  order by "%p1"."id"
) "%r1"
