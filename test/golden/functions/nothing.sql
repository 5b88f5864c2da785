-- POST /rpc/nothing {}

select '{"data":' || coalesce((
  select pg_catalog.max("%r1"."%j")
  from (
    select 'null' as "%j"
    from (
      select
      from "public"."nothing"() "%t1" ("value")
    ) "%p1"
  ) "%r1"
), 'null') || '}';
