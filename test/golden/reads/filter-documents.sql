-- /samples?fields=id&filter={"doc":{"_json_contains":{"a":[1]},"_has_key":"a"}}
-- $1 = '{"a":[1]}'
-- $2 = 'a'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."samples" "%t1"
    where ("%t1"."doc" operator(pg_catalog.@>) $1::jsonb and "%t1"."doc" operator(pg_catalog.?) $2::text)
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
