-- PATCH /items/authors/1?fields=id {"licence":{"number":"A2"}}

-- $1 = '[{"k":"1"}]'
-- $2 = '[{"c0":"1","c1":"A2"}]'
-- $3 = '[{"parent":"1","child":null}]'
-- $4 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4")) with ordinality as "%x" (k, n)
  order by "%x".n
), "%i1" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('licences_id_seq'::regclass)) as k, "%x"."c0", "%x"."c1"
  from rows from (pg_catalog.json_to_recordset($2::json) as ("c0" "pg_catalog"."int4", "c1" "pg_catalog"."text"))
    with ordinality as "%x" ("c0", "c1", n)
  order by "%x".n
), "%x0" as materialized (
  select "%x".parent, "%x".child
  from pg_catalog.json_to_recordset($3::json) as "%x" (parent "pg_catalog"."int4", child "pg_catalog"."int4")
), "%u0" as (
  update "public"."licences" "%t"
  set "author" =
  case
  when exists (
    select
    from "%x0" "%y"
    where "%y".parent operator(pg_catalog.=) "%t"."author"
    and ("%y".child is null or "%y".child operator(pg_catalog.=) "%t"."id")
  ) then null
  else "%t"."author"
  end
  where "%t"."id" operator(pg_catalog.=) any (
    select "%c"."id"
    from "public"."licences" "%c"
    where "%c"."author" operator(pg_catalog.=) any (
      select parent
      from "%x0"
    )
  )
  and (exists (
    select
    from "%x0" "%y"
    where "%y".parent operator(pg_catalog.=) "%t"."author"
    and ("%y".child is null or "%y".child operator(pg_catalog.=) "%t"."id")
  ))
  returning "%t"."id"
), "%w0" as (
  select "%t"."id",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null'))
      || (',"email":' || coalesce(pg_catalog.to_json("%t"."email")::text, 'null')))
      || ((',"bio":' || coalesce(pg_catalog.to_json("%t"."bio")::text, 'null') || ',"born":'
        || coalesce(pg_catalog.to_json("%t"."born")::text, 'null'))
        || (',"score":' || coalesce(pg_catalog.to_json("%t"."score")::text, 'null') || '}')))::json as "%j",
    '{}'::json as "%d"
  from "%i0" "%i"
  join "public"."authors" "%t" on "%t"."id" operator(pg_catalog.=) "%i".k
  order by "%i".k for no key update of "%t"
), "%w1" as (
  insert into "public"."licences" as "%t" ("id", "author", "number") overriding system value
  select "%i".k, "%i"."c0", "%i"."c1"
  from "%i1" "%i"
  cross join (
    select count(*)
    from "%u0"
  ) "%uw"
  order by "%i".n
  returning "%t"."id",
    (('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"author":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null'))
      || (',"number":' || coalesce(pg_catalog.to_json("%t"."number")::text, 'null') || '}'))::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($4::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'authors', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
    union all
    select 'create', 'licences', "id"::text, "%j", coalesce("%d", "%j")
    from "%w1"
    union all
    select 'update', 'licences', "id"::text, null::json, null::json
    from "%u0"
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
select pg_catalog.json_build_array(null, (
  select pg_catalog.max("id")::text
  from "%w1"
))::text,
case
when (
  select count(*)
  from "%w0"
) operator(pg_catalog.<) (
  select count(*)
  from "%i0"
) then "public".service_raise('missing')
end;

-- $1 = '1'
select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."id", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."authors" "%t1"
    where "%t1"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
