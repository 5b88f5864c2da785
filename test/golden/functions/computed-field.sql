-- SEARCH /items/authors {"query":{"fields":["id","loud"],"filter":{"loud":{"_starts_with":"A"}},"sort":["-loud"],"limit":5}}

-- $1 = 'A%'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"loud":'
    || coalesce(pg_catalog.to_json("%p1"."loud")::text, 'null') || '}' as "%j"
  from (
    select "%t1"."id", "public"."loud"("%t1") as "loud"
    from "public"."authors" "%t1"
    where "public"."loud"("%t1") operator(pg_catalog.~~) $1
    order by "public"."loud"("%t1") desc, "%t1"."id"
    limit 5
  ) "%p1"
  order by "%p1"."loud" desc, "%p1"."id"
) "%r1";
