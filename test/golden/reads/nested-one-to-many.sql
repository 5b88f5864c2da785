-- /articles?fields=id,comments.id,comments.author.name
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"comments":'
    || ("%l5"."%j") || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p2"."id")), 'null') || ',"author":'
        || coalesce("%l4"."%j", 'null') || '}' as "%j"
      from (
        select "%t2"."id", "%t2"."author"
        from "public"."comments" "%t2"
        where "%t2"."article" operator(pg_catalog.=) "%p1"."id"
        order by "%t2"."id"
        limit 100
      ) "%p2"
      left join lateral (
        select '{"name":' || coalesce(pg_catalog.to_json("%p3"."name")::text, 'null') || '}' as "%j"
        from (
          select "%t3"."name"
          from "public"."authors" "%t3"
          where "%t3"."id" operator(pg_catalog.=) "%p2"."author"
          limit 1
        ) "%p3"
        offset 0
      ) "%l4" on true
      order by "%p2"."id"
    ) "%r2"
  ) "%l5" on true
  order by "%p1"."id"
) "%r1"
