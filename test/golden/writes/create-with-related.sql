-- POST /items/articles?fields=id,author.name,comments.body,tags.tags_id.name {"title":"Related","author":1}

-- $1 = 'Related'
-- $2 = '1'
-- $3 = '00000000-0000-0000-0000-000000000001'
-- $4 = '127.0.0.1'
-- $5 = null
-- $6 = null
with "%w" as (
  insert into "public"."articles" as "%t" ("title", "author")
  values ($1::"pg_catalog"."varchar", $2::"pg_catalog"."int4")
  returning "%t"."id", "%t"."title", "%t"."slug", "%t"."body", "%t"."status", "%t"."views", "%t"."rating",
    "%t"."published_at", "%t"."meta", "%t"."author", pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
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
    null::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'create', 'articles', "%w"."id"::text, $3::uuid, $4::text, $5::text, $6::text
  from "%w"
  returning id, item
), "%r" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select "%a".id, 'articles', "%a".item, "%w"."%j", coalesce("%w"."%d", "%w"."%j")
  from "%a", "%w"
)
select coalesce((
  select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
  from (
    select ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"author":'
      || coalesce("%l3"."%j", 'null'))
      || (',"comments":' || ("%l5"."%j") || ',"tags":' || ("%l9"."%j") || '}') as "%j", "%p1"."%e"
    from (
      select "%t1"."id", "%t1"."author", "%t1"."%e"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
    left join lateral (
      select '{"name":' || coalesce(pg_catalog.to_json("%p2"."name")::text, 'null') || '}' as "%j"
      from (
        select "%t2"."name"
        from "public"."authors" "%t2"
        where "%t2"."id" operator(pg_catalog.=) "%p1"."author"
        limit 1
      ) "%p2"
      offset 0
    ) "%l3" on true
    left join lateral (
      select coalesce('[' || pg_catalog.string_agg("%r4"."%j", ',') || ']', '[]') as "%j"
      from (
        select '{"body":' || coalesce(pg_catalog.to_json("%p4"."body")::text, 'null') || '}' as "%j"
        from (
          select "%t4"."body", "%t4"."id"
          from "public"."comments" "%t4"
          where "%t4"."article" operator(pg_catalog.=) "%p1"."id"
          order by "%t4"."id"
          limit 100
        ) "%p4"
        order by "%p4"."id"
      ) "%r4"
    ) "%l5" on true
    left join lateral (
      select coalesce('[' || pg_catalog.string_agg("%r6"."%j", ',') || ']', '[]') as "%j"
      from (
        select '{"tags_id":' || coalesce("%l8"."%j", 'null') || '}' as "%j"
        from (
          select "%t6"."tags_id", "%t6"."sort", "%t6"."id"
          from "public"."articles_tags" "%t6"
          where "%t6"."articles_id" operator(pg_catalog.=) "%p1"."id"
          order by "%t6"."sort", "%t6"."id"
          limit 100
        ) "%p6"
        left join lateral (
          select '{"name":' || coalesce(pg_catalog.to_json("%p7"."name")::text, 'null') || '}' as "%j"
          from (
            select "%t7"."name"
            from "public"."tags" "%t7"
            where "%t7"."id" operator(pg_catalog.=) "%p6"."tags_id"
            limit 1
          ) "%p7"
          offset 0
        ) "%l8" on true
        order by "%p6"."sort", "%p6"."id"
      ) "%r6"
    ) "%l9" on true
  ) "%r1"
), '')
from "%w";
