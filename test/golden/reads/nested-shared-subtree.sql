-- /articles?fields=title,author.name,author.articles.title&limit=20
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  with "%p1" as materialized (
    select "%t1"."title", "%t1"."author", "%t1"."id"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 20
  )
  select '{"title":' || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || ',"author":'
    || coalesce("%l7"."%j", 'null') || '}' as "%j"
  from "%p1"
  left join (
    select "%d2"."%h0", "%l6"."%j"
    from (
      select distinct "%p1"."author" as "%h0"
      from "%p1"
    ) "%d2"
    left join lateral (
      select '{"name":' || coalesce(pg_catalog.to_json("%p3"."name")::text, 'null') || ',"articles":' || ("%l5"."%j")
        || '}' as "%j"
      from (
        select "%t3"."name", "%t3"."id"
        from "public"."authors" "%t3"
        where "%t3"."id" operator(pg_catalog.=) "%d2"."%h0"
        limit 1
      ) "%p3"
      left join lateral (
        select coalesce('[' || pg_catalog.string_agg("%r4"."%j", ',') || ']', '[]') as "%j"
        from (
          select '{"title":' || coalesce(pg_catalog.to_json("%p4"."title")::text, 'null') || '}' as "%j"
          from (
            select "%t4"."title", "%t4"."id"
            from "public"."articles" "%t4"
            where "%t4"."author" operator(pg_catalog.=) "%p3"."id"
            order by "%t4"."id"
            limit 100
          ) "%p4"
          order by "%p4"."id"
        ) "%r4"
      ) "%l5" on true
    ) "%l6" on true
    offset 0
  ) "%l7" on "%l7"."%h0" operator(pg_catalog.=) "%p1"."author"
  order by "%p1"."id"
) "%r1"
