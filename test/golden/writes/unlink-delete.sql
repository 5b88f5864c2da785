-- PATCH /items/articles/1?fields=id {"tags":[1]}

-- $1 = '[{"k":"1"}]'
-- $2 = '[{"k":"1","c0":"1"}]'
-- $3 = '[{"parent":"1","child":null}]'
-- $4 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4")) with ordinality as "%x" (k, n)
  order by "%x".n
), "%i1" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($2::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."int4"))
    with ordinality as "%x" (k, "c0", n)
  order by "%x".n
), "%x0" as materialized (
  select "%x".parent, "%x".child
  from pg_catalog.json_to_recordset($3::json) as "%x" (parent "pg_catalog"."int4", child "pg_catalog"."int4")
), "%w0" as (
  select "%t"."id",
    (((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"title":'
      || coalesce(pg_catalog.to_json("%t"."title")::text, 'null'))
      || (',"slug":' || coalesce(pg_catalog.to_json("%t"."slug")::text, 'null')))
      || (',"body":' || coalesce(pg_catalog.to_json("%t"."body")::text, 'null') || ',"status":'
        || coalesce(pg_catalog.to_json("%t"."status")::text, 'null')))
      || (((',"views":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."views")), 'null')
        || coalesce(',"rating":"' || pg_catalog.textin(pg_catalog.numeric_out("%t"."rating")) || '"', ',"rating":null'))
        || (coalesce(',"published_at":"' || case when pg_catalog.isfinite("%t"."published_at")
          then pg_catalog.to_char("%t"."published_at" at time zone 'UTC', case
            when "%t"."published_at" operator(pg_catalog.=) "%t"."published_at"::timestamptz(3)
            then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"' else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
          || case when "%t"."published_at" operator(pg_catalog.<) '0001-01-01 00:00:00+00'::timestamptz then ' BC'
          else '' end else "%t"."published_at"::text end || '"', ',"published_at":null')))
        || (',"meta":' || coalesce(pg_catalog.textin(pg_catalog.json_out("%t"."meta")), 'null') || ',"author":'
          || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null') || '}')))::json as "%j",
    '{}'::json as "%d"
  from "%i0" "%i"
  join "public"."articles" "%t" on "%t"."id" operator(pg_catalog.=) "%i".k
  order by "%i".k for no key update of "%t"
), "%w1" as (
  update "public"."articles_tags" "%t"
  set "articles_id" = "%i"."c0"
  from (
    select "%s".*
    from "%i1" "%s"
    join "public"."articles_tags" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  and not (exists (
    select
    from "%x0" "%y"
    where "%y".parent operator(pg_catalog.=) "%t"."articles_id"
    and ("%y".child is null or "%y".child operator(pg_catalog.=) "%t"."id")
  ) and false)
  returning "%t"."id",
    (('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"articles_id":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."articles_id")), 'null'))
      || (',"tags_id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."tags_id")), 'null') || ',"sort":'
        || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."sort")), 'null') || '}'))::json as "%j",
    ('{"articles_id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."articles_id")), 'null')
      || '}')::json as "%d"
), "%d0" as (
  delete from "public"."articles_tags" "%t"
  where "%t"."id" operator(pg_catalog.=) any (
    select "%c"."id"
    from "public"."articles_tags" "%c"
    where "%c"."articles_id" operator(pg_catalog.=) any (
      select parent
      from "%x0"
    )
  )
  and (exists (
    select
    from "%x0" "%y"
    where "%y".parent operator(pg_catalog.=) "%t"."articles_id"
    and ("%y".child is null or "%y".child operator(pg_catalog.=) "%t"."id")
  ) and not exists (
    select
    from "%i1" "%k"
    where "%k".k operator(pg_catalog.=) "%t"."id"
  ))
  returning "%t"."id"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($4::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'articles', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
    union all
    select 'update', 'articles_tags', "id"::text, "%j", coalesce("%d", "%j")
    from "%w1"
    union all
    select 'delete', 'articles_tags', "id"::text, null::json, null::json
    from "%d0"
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
select pg_catalog.json_build_array(null, null)::text,
case
when (
  select count(*)
  from "%w0"
) operator(pg_catalog.<) (
  select count(*)
  from "%i0"
) then "public".service_raise('missing')
end,
case
when (
  select count(*)
  from "%w1"
) operator(pg_catalog.+) (
  select count(*)
  from "%d0" "%d"
  join "%i1" "%i" on "%i".k operator(pg_catalog.=) "%d"."id"
) operator(pg_catalog.<) (
  select count(*)
  from "%i1"
) then "public".service_raise('missing')
end;

-- $1 = '1'
select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."id", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."articles" "%t1"
    where "%t1"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
