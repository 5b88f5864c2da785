-- POST /rpc/add {"a":1,"b":2}

-- $1 = '1'
-- $2 = '2'
select '{"data":' || coalesce((
  select coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."value")), 'null') as "%j"
  from (
    select "%t1"."value"
    from "public"."add"("a" => $1::"pg_catalog"."int4", "b" => $2::"pg_catalog"."int4") "%t1" ("value")
  ) "%p1"
), 'null') || '}';
