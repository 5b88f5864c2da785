-- POST /items/tags?fields=id {"name":"once"}
-- idempotency-key: order-4711

-- $1 = 'GhRS7T4Y6lpfmu83Y_7S8mjapM1V67B1gg8PWSMBMKU'
-- $2 = 'evSqTwz7-0H4eQ2BfOaL-oXOKyJQJlQJCMp7eYwBVfA'
-- $3 = '86400000 milliseconds'
-- $4 = 'once'
-- $5 = '00000000-0000-0000-0000-000000000001'
-- $6 = '127.0.0.1'
-- $7 = null
-- $8 = null
with "%m" as materialized (
  select (nextval('tags_id_seq'::regclass)) as "%k"
), "%p" as (
  insert into "public"."service_receipts" as "%t" (id, fingerprint, expires, keys)
  select $1::text, $2::text, now() operator(pg_catalog.+) $3::text::interval,
    pg_catalog.json_build_array(("%m"."%k")::text)
  from "%m"
  on conflict (id) do update
  set fingerprint = excluded.fingerprint, expires = excluded.expires, keys = excluded.keys, answer = null
  where "%t".expires operator(pg_catalog.<) now()
  returning 1
), "%w" as (
  insert into "public"."tags" as "%t" ("id", "name")
  select "%m"."%k", $4::"pg_catalog"."varchar"
  from "%p", "%m"
  returning "%t"."id", "%t"."name", pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'create', 'tags', "%w"."id"::text, $5::uuid, $6::text, $7::text, $8::text
  from "%w"
  returning id, item
), "%r" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select "%a".id, 'tags', "%a".item, "%w"."%j", coalesce("%w"."%d", "%w"."%j")
  from "%a", "%w"
)
select (
  select coalesce((
    select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
    from (
      select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j", "%p1"."%e"
      from (
        select "%t1"."id", "%t1"."%e"
        from (
          select "%w".*
        ) "%t1"
        limit 1
      ) "%p1"
    ) "%r1"
  ), '')
  from "%w"
)
where
case
when (
  select count(*)
  from "%p"
) operator(pg_catalog.=) 0 then "public".service_raise('repeated')
when (
  select count(*)
  from "%w"
) operator(pg_catalog.=) 0 then "public".service_raise('missing')
else true
end;
