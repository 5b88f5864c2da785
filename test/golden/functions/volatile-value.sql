-- POST /rpc/count_up {}

select '{"data":' || coalesce((
  select coalesce('"' || pg_catalog.textin(pg_catalog.int8out("%p1"."value")) || '"', 'null') as "%j"
  from (
    select "%t1"."value"
    from "public"."count_up"() "%t1" ("value")
  ) "%p1"
), 'null') || '}';
