-- /articles/1?fields=title,author.name,comments.body,tags.tags_id.name, with its links
-- $1 = '1'
select (((coalesce("%r1"."%x0", '') || ';') || (coalesce("%r1"."%x1", ''))) || (';' || coalesce("%r1"."%x2", '')))
  || ((';' || coalesce("%r1"."%x3", '')) || (';' || coalesce("%r1"."%x4", ''))), '{"data":' || "%r1"."%j" || '}'
from (
  select ('{"title":' || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || ',"author":'
    || coalesce("%l3"."%j", 'null'))
    || (',"comments":' || ("%l5"."%j") || ',"tags":' || ("%l9"."%j") || '}') as "%j", "%p1"."author"::text as "%x0",
    "%p1"."id"::text as "%x2", "%l5"."%x1" as "%x1", "%l9"."%x3" as "%x3", "%l9"."%x4" as "%x4"
  from (
    select "%t1"."title", "%t1"."author", "%t1"."id"
    from "public"."articles" "%t1"
    where "%t1"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
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
    select coalesce('[' || pg_catalog.string_agg("%r4"."%j", ',') || ']', '[]') as "%j",
      pg_catalog.string_agg("%r4"."%x1", ',') as "%x1"
    from (
      select '{"body":' || coalesce(pg_catalog.to_json("%p4"."body")::text, 'null') || '}' as "%j",
        "%p4"."id"::text as "%x1"
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
    select coalesce('[' || pg_catalog.string_agg("%r6"."%j", ',') || ']', '[]') as "%j",
      pg_catalog.string_agg("%r6"."%x3", ',') as "%x3", pg_catalog.string_agg("%r6"."%x4", ',') as "%x4"
    from (
      select '{"tags_id":' || coalesce("%l8"."%j", 'null') || '}' as "%j", "%p6"."id"::text as "%x3",
        "%p6"."tags_id"::text as "%x4"
      from (
        select "%t6"."tags_id", "%t6"."id", "%t6"."sort"
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
