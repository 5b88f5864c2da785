-- POST /rpc/articles_of?aggregate[max]=views&groupBy=status {"writer":1}

-- $1 = '1'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"status":' || coalesce(pg_catalog.to_json("%p1"."%g0")::text, 'null') || ',"max":'
    || ('{"views":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."%a0")), 'null') || '}') || '}' as "%j"
  from (
    select "%t1"."status" as "%g0", "pg_catalog"."max"("%t1"."views") as "%a0"
    from "public"."articles_of"("writer" => $1::"pg_catalog"."int4") "%t1"
    group by "%g0"
    order by "%g0"
    limit 100
  ) "%p1"
  order by "%p1"."%g0"
) "%r1";
