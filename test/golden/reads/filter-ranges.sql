-- /samples?fields=id&filter={"span":{"_contains_value":5,"_overlaps":"[1,9)"},"spans":{"_adjacent":"[1,9)"}}
-- $1 = '5'
-- $2 = '[1,9)'
-- $3 = '{[1,9)}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."samples" "%t1"
    where (("%t1"."span" operator(pg_catalog.@>) $1::"pg_catalog"."int4"
      and "%t1"."span" operator(pg_catalog.&&) $2::"pg_catalog"."int4range")
      and "%t1"."spans" operator(pg_catalog.-|-) $3::"pg_catalog"."int4multirange")
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
