-- POST /items/tags?on_conflict=id {"id":3,"name":"merged"}

-- $1 = 'merged'
-- $2 = '3'
-- $3 = '00000000-0000-0000-0000-000000000001'
-- $4 = '127.0.0.1'
-- $5 = null
-- $6 = null
with "%u" as (
  update "public"."tags" "%t"
  set "name" = $1::"pg_catalog"."varchar"
  where "%t"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4"
  returning "%t"."id", "%t"."name", pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    ('{"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%d"
), "%i" as (
  insert into "public"."tags" as "%t" ("id", "name")
  select $2::"pg_catalog"."int4", $1::"pg_catalog"."varchar"
  where not exists (
    select
    from "%u"
  )
  returning "%t"."id", "%t"."name", pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%w" as (
  select "%u".*, 'update' as "%o"
  from "%u"
  union all
  select "%i".*, 'create'
  from "%i"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select "%w"."%o", 'tags', "%w"."id"::text, $3::uuid, $4::text, $5::text, $6::text
  from "%w"
  returning id, item
), "%r" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select "%a".id, 'tags', "%a".item, "%w"."%j", coalesce("%w"."%d", "%w"."%j")
  from "%a", "%w"
)
select coalesce((
  select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
  from (
    select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%p1"."name")::text, 'null') || '}' as "%j", "%p1"."%e"
    from (
      select "%t1"."id", "%t1"."name", "%t1"."%e"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w"
where "%w"."%o" operator(pg_catalog.=) 'update'
or
case
when not ("%w"."id"::int8 operator(pg_catalog.>) coalesce(pg_catalog.pg_sequence_last_value('public.tags_id_seq'::regclass),
  0))
  then true
when (
  select (
    select pg_catalog.max(pg_catalog.nextval('public.tags_id_seq'::regclass))
    from pg_catalog.generate_series(1, "%h".k operator(pg_catalog.-) "%l".v)
  )
  from (
    select "%w"."id"::int8 as k
  ) "%h", (
    select coalesce(pg_catalog.pg_sequence_last_value('public.tags_id_seq'::regclass), 0) as v
  ) "%l"
  where "%h".k operator(pg_catalog.-) "%l".v operator(pg_catalog.>=) 1
  and "%h".k operator(pg_catalog.-) "%l".v operator(pg_catalog.<=) 10000
) is not null then true
when pg_catalog.pg_advisory_xact_lock('public.tags_id_seq'::regclass::oid::int8) is null then false
else coalesce((
  select pg_catalog.setval('public.tags_id_seq'::regclass, "%w"."id"::int8)
  from pg_catalog.pg_sequence_parameters('public.tags_id_seq'::regclass) "%s"
  where "%s".increment operator(pg_catalog.>) 0
  and "%w"."id"::int8 operator(pg_catalog.<) "%s".maximum_value
  and "%w"."id"::int8 operator(pg_catalog.>) coalesce(pg_catalog.pg_sequence_last_value('public.tags_id_seq'::regclass),
    0)
), 0) is not null
end;
