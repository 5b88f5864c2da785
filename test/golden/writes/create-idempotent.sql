-- POST /items/tags?fields=id {"name":"once"}
-- idempotency-key: order-4711

begin;

-- $1 = 'GhRS7T4Y6lpfmu83Y_7S8mjapM1V67B1gg8PWSMBMKU'
-- $2 = 'evSqTwz7-0H4eQ2BfOaL-oXOKyJQJlQJCMp7eYwBVfA'
-- $3 = '86400000 milliseconds'
-- $4 = '[{"c0":"once"}]'
-- $5 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
-- $6 = '{0}'
with "%q" as (
  insert into "public"."service_receipts" as "%t" (id, fingerprint, expires)
  values ($1::text, $2::text, now() operator(pg_catalog.+) $3::text::interval)
  on conflict (id) do update
  set fingerprint = excluded.fingerprint, expires = excluded.expires, keys = null
  where "%t".expires operator(pg_catalog.<) now()
  returning 1
), "%v" as materialized (
  select
  case
  when (
    select count(*)
    from "%q"
  ) operator(pg_catalog.=) 0 then "public".service_raise('repeated')
  end
), "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('tags_id_seq'::regclass)) as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($4::json) as ("c0" "pg_catalog"."varchar"))
    with ordinality as "%x" ("c0", n)
  cross join "%v"
  order by "%x".n
), "%w0" as (
  insert into "public"."tags" as "%t" ("id", "name") overriding system value
  select "%i".k, "%i"."c0"
  from "%i0" "%i"
  order by "%i".n
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($5::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'create', 'tags', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
  ) "%x"
), "%jb" as (
  insert into "public"."service_activity" (id, action, collection, item, "user", ip, user_agent, origin)
  select id, action, collection, item, "user", ip, user_agent, origin
  from "%ja", "%jd"
), "%jc" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select id, collection, item, data, delta
  from "%ja"
  where data is not null
)
select pg_catalog.json_build_array((
  select pg_catalog.max("id")::text
  from "%w0"
))::text, pg_catalog.set_config('lateral.keys', (
  select pg_catalog.array_agg("%i".k::text order by "%o".place)::text
  from pg_catalog.unnest($6::int4[]) with ordinality as "%o" (n, place)
  join "%i0" "%i" on "%i".n operator(pg_catalog.=) "%o".n
), true);

select '{"data":' || "%r1"."%j" || '}'
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."tags" "%t1"
    where "%t1"."id" operator(pg_catalog.=) (
      select (pg_catalog.current_setting('lateral.keys')::"pg_catalog"."int4"[])[1]
    )::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";

-- $1 = null
-- $2 = 'GhRS7T4Y6lpfmu83Y_7S8mjapM1V67B1gg8PWSMBMKU'
update "public".service_receipts
set keys = coalesce($1::json, pg_catalog.to_json(pg_catalog.current_setting('lateral.keys')::text[]))
where id operator(pg_catalog.=) $2;

commit;
