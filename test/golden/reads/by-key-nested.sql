-- /articles/1?fields=title,author.name,comments.body
-- $1 = '1'
select '{"data":' || "%r1"."%j" || '}'
from (
  select ('{"title":' || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || ',"author":'
    || coalesce("%l3"."%j", 'null'))
    || (',"comments":' || ("%l5"."%j") || '}') as "%j"
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
) "%r1"
