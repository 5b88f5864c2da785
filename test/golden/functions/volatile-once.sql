-- POST /rpc/count_up {}
-- idempotency-key: once

begin;

-- $1 = 'QzmMcWqXhr3EAe0DapJYmeKYt9EuE9CZgpAS3FgL5iM'
-- $2 = 'xiTbctiqknZRlSYL_IOwRMEDm-U6eZpQyPKKBGR243A'
-- $3 = '86400000 milliseconds'
insert into "public".service_receipts as receipt (id, fingerprint, expires)
values ($1, $2, now() operator(pg_catalog.+) $3::interval)
on conflict (id) do update
set fingerprint = excluded.fingerprint, expires = excluded.expires, keys = null, answer = null
where receipt.expires operator(pg_catalog.<) now()
returning 1;

select '{"data":' || coalesce((
  select coalesce('"' || pg_catalog.textin(pg_catalog.int8out("%p1"."value")) || '"', 'null') as "%j"
  from (
    select "%t1"."value"
    from "public"."count_up"() "%t1" ("value")
  ) "%p1"
), 'null') || '}';

reset role;

-- $1 = '{"data":"7"}'
-- $2 = 'QzmMcWqXhr3EAe0DapJYmeKYt9EuE9CZgpAS3FgL5iM'
update "public".service_receipts
set answer = $1
where id operator(pg_catalog.=) $2;

commit;

reset session authorization;

reset role;

reset all;

discard temp;

select pg_catalog.pg_advisory_unlock_all();

-- $1 = '30000'
select pg_catalog.set_config('idle_in_transaction_session_timeout', $1, false);
