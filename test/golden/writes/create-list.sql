-- POST /items/authors?fields=id,name [{"name":"One of two","born":"1912-06-23"},{"name":"Two of two","born":null}]

-- $1 = '{"One of two","Two of two"}'
-- $2 = '{"1912-06-23",NULL}'
-- $3 = '00000000-0000-0000-0000-000000000001'
-- $4 = '127.0.0.1'
-- $5 = null
-- $6 = null
with "%w" as (
  insert into "public"."authors" as "%t" ("name", "born")
  select "%q"."%v0"::"pg_catalog"."varchar", "%q"."%v1"::"pg_catalog"."date"
  from unnest((
    select $1::text[]
  ), (
    select $2::text[]
  )) with ordinality as "%q" ("%v0", "%v1", "%n")
  order by "%q"."%n"
  returning "%t"."id", "%t"."name", "%t"."email", "%t"."bio", "%t"."born", "%t"."score",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null'))
      || (',"email":' || coalesce(pg_catalog.to_json("%t"."email")::text, 'null')))
      || ((',"bio":' || coalesce(pg_catalog.to_json("%t"."bio")::text, 'null') || ',"born":'
        || coalesce(pg_catalog.to_json("%t"."born")::text, 'null'))
        || (',"score":' || coalesce(pg_catalog.to_json("%t"."score")::text, 'null') || '}')))::json as "%j",
    null::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'create', 'authors', "%w"."id"::text, $3::uuid, $4::text, $5::text, $6::text
  from "%w"
  returning id, item
), "%r" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select "%a".id, 'authors', "%a".item, "%w"."%j", coalesce("%w"."%d", "%w"."%j")
  from "%a"
  join "%w" on "%w"."id"::text operator(pg_catalog.=) "%a".item
)
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"name":'
    || coalesce(pg_catalog.to_json("%p1"."name")::text, 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%t1"."name"
    from "%w" "%t1"
  ) "%p1"
) "%r1";
