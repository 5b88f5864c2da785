-- POST /rpc/numbers {"up_to":3}

-- $1 = '3'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."value")), 'null') as "%j"
  from (
    select "%t1"."value"
    from "public"."numbers"("up_to" => $1::"pg_catalog"."int4") "%t1" ("value")
  ) "%p1"
) "%r1";
