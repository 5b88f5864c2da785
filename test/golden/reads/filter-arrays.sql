-- /samples?fields=id&filter={"tags":{"_contains_all":["a","b"],"_length":{"_gt":2}},"numbers":{"_contains_any":[1,2]}}
-- $1 = '{"a","b"}'
-- $2 = '2'
-- $3 = '{"1","2"}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."samples" "%t1"
    where (("%t1"."tags" operator(pg_catalog.@>) $1::"pg_catalog"."_text"
      and pg_catalog.cardinality("%t1"."tags") operator(pg_catalog.>) $2::int4)
      and "%t1"."numbers" operator(pg_catalog.&&) $3::"pg_catalog"."_int4")
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
