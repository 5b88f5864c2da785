-- /samples?fields=id&filter={"host":{"_within_network":"10.0.0.0/8"}}
-- $1 = '10.0.0.0/8'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."samples" "%t1"
    where "%t1"."host" operator(pg_catalog.<<=) $1::inet
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
