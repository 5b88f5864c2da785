-- POST /rpc/nothing {}

select '{"data":' || coalesce((
  select max("%r1"."%j")
  from (
    select 'null' as "%j"
    from (
      select
      from "public"."nothing"() "%t1" ("value")
    ) "%p1"
  ) "%r1"
), 'null') || '}';
