-- POST /rpc/grow {"given":{"name":"x","size":1}}

-- $1 = '{"v":{"name":"x","size":1}}'
select '{"data":' || coalesce((
  select '{"name":' || coalesce(pg_catalog.to_json("%p1"."name")::text, 'null')
    || coalesce(',"size":"' || pg_catalog.textin(pg_catalog.int8out("%p1"."size")) || '"', ',"size":null')
    || '}' as "%j"
  from (
    select "%t1"."name", "%t1"."size"
    from (
      select *
      from "public"."grow"("given" => (
        select "%x".v
        from pg_catalog.json_to_record($1::json) as "%x" (v "public"."place")
      )) "%f" ("name", "size")
      where not ("%f" is null)
    ) "%t1"
  ) "%p1"
), 'null') || '}';
