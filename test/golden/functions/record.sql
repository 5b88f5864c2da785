-- POST /rpc/spread {"values_of":[1,2]}

-- $1 = '{"v":[1,2]}'
select '{"data":' || coalesce((
  select '{"low":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."low")), 'null') || ',"high":'
    || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."high")), 'null') || '}' as "%j"
  from (
    select "%t1"."low", "%t1"."high"
    from (
      select *
      from "public"."spread"("values_of" => (
        select "%x".v
        from pg_catalog.json_to_record($1::json) as "%x" (v "pg_catalog"."_int4")
      )) "%f" ("low", "high")
      where not ("%f" is null)
    ) "%t1"
  ) "%p1"
), 'null') || '}';
