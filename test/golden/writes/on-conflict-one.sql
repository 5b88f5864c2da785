-- POST /items/licences?fields=id,number&on_conflict=author {"author":1,"number":"A3"}

-- $1 = 'A3'
-- $2 = '1'
-- $3 = '00000000-0000-0000-0000-000000000001'
-- $4 = '127.0.0.1'
-- $5 = null
-- $6 = null
with "%u" as (
  update "public"."licences" "%t"
  set "number" = $1::"pg_catalog"."text"
  where "%t"."author" operator(pg_catalog.=) $2::"pg_catalog"."int4"
  returning "%t"."id", "%t"."author", "%t"."number", pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
    (('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"author":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null'))
      || (',"number":' || coalesce(pg_catalog.to_json("%t"."number")::text, 'null') || '}'))::json as "%j",
    ('{"number":' || coalesce(pg_catalog.to_json("%t"."number")::text, 'null') || '}')::json as "%d"
), "%i" as (
  insert into "public"."licences" as "%t" ("author", "number")
  select $2::"pg_catalog"."int4", $1::"pg_catalog"."text"
  where not exists (
    select
    from "%u"
  )
  returning "%t"."id", "%t"."author", "%t"."number", pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
    (('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"author":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null'))
      || (',"number":' || coalesce(pg_catalog.to_json("%t"."number")::text, 'null') || '}'))::json as "%j",
    null::json as "%d"
), "%w" as (
  select "%u".*, 'update' as "%o"
  from "%u"
  union all
  select "%i".*, 'create'
  from "%i"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select "%w"."%o", 'licences', "%w"."id"::text, $3::uuid, $4::text, $5::text, $6::text
  from "%w"
  returning id, item
), "%r" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select "%a".id, 'licences', "%a".item, "%w"."%j", coalesce("%w"."%d", "%w"."%j")
  from "%a", "%w"
)
select coalesce((
  select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
  from (
    select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"number":'
      || coalesce(pg_catalog.to_json("%p1"."number")::text, 'null') || '}' as "%j", "%p1"."%e"
    from (
      select "%t1"."id", "%t1"."number", "%t1"."%e"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w";
