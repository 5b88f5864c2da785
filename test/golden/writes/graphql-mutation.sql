-- POST /graphql {"query":"mutation { create_tags_item(data: { name: \"made\" }) { id } update_tags_item(id: 2, data: { name: \"changed\" }) { name } }"}

begin;

-- $1 = 'made'
-- $2 = '00000000-0000-0000-0000-000000000001'
-- $3 = '127.0.0.1'
-- $4 = null
-- $5 = null
with "%w" as (
  insert into "public"."tags" as "%t" ("name")
  values ($1::"pg_catalog"."varchar")
  returning "%t"."id", "%t"."name",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'create', 'tags', "%w"."id"::text, $2::uuid, $3::text, $4::text, $5::text
  from "%w"
  returning id, item
), "%r" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select "%a".id, 'tags', "%a".item, "%w"."%j", coalesce("%w"."%d", "%w"."%j")
  from "%a", "%w"
)
select coalesce((
  select '{"data":' || "%r1"."%j" || '}'
  from (
    select coalesce('{"id":"' || pg_catalog.textin(pg_catalog.int4out("%p1"."id")) || '"', '{"id":null') || '}' as "%j"
    from (
      select "%t1"."id"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w";

-- $1 = 'changed'
-- $2 = '2'
-- $3 = '00000000-0000-0000-0000-000000000001'
-- $4 = '127.0.0.1'
-- $5 = null
-- $6 = null
with "%w" as (
  update "public"."tags" "%t"
  set "name" = $1::"pg_catalog"."varchar"
  where "%t"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4"
  returning "%t"."id", "%t"."name",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    ('{"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'update', 'tags', "%w"."id"::text, $3::uuid, $4::text, $5::text, $6::text
  from "%w"
  returning id, item
), "%r" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select "%a".id, 'tags', "%a".item, "%w"."%j", coalesce("%w"."%d", "%w"."%j")
  from "%a", "%w"
)
select coalesce((
  select '{"data":' || "%r1"."%j" || '}'
  from (
    select '{"name":' || coalesce(pg_catalog.to_json("%p1"."name")::text, 'null') || '}' as "%j"
    from (
      select "%t1"."name"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w";

commit;
