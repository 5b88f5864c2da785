-- POST /rpc/count_up {}

select '{"data":' || coalesce((
  select coalesce('"' || pg_catalog.textin(pg_catalog.int8out("%p1"."value")) || '"', 'null') as "%j"
  from (
    select "%t1"."value"
    from "public"."count_up"() "%t1" ("value")
  ) "%p1"
), 'null') || '}';

reset session authorization;

reset role;

reset all;

discard temp;

select pg_catalog.pg_advisory_unlock_all();

-- $1 = '30000'
select pg_catalog.set_config('idle_in_transaction_session_timeout', $1, false);
