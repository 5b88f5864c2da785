-- SEARCH /items/articles {"query":{"fields":["id","author.loud"],"sort":["author.loud"],"limit":5}}

select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"author":'
    || coalesce("%l4"."%j", 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%t1"."author",
    case
    when not ("%t2" is null) then "public"."loud"("%t2")
    end as "%s0"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    order by
    case
    when not ("%t2" is null) then "public"."loud"("%t2")
    end, "%t1"."id"
    limit 5
  ) "%p1"
  left join lateral (
    select '{"loud":' || coalesce(pg_catalog.to_json("%p3"."loud")::text, 'null') || '}' as "%j"
    from (
      select "public"."loud"("%t3") as "loud"
      from "public"."authors" "%t3"
      where "%t3"."id" operator(pg_catalog.=) "%p1"."author"
      limit 1
    ) "%p3"
    offset 0
  ) "%l4" on true
  order by "%p1"."%s0", "%p1"."id"
) "%r1";
