-- POST /rpc/nothing {}

select '{"data":' || coalesce((
  select 'null' as "%j"
  from (
    select
    from "public"."nothing"() "%t1" ("value")
  ) "%p1"
), 'null') || '}';
