-- /articles?fields=id,tags.tags_id.name
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"tags":' || ("%l5"."%j")
    || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"tags_id":' || coalesce("%l4"."%j", 'null') || '}' as "%j"
      from (
        select "%t2"."tags_id", "%t2"."sort", "%t2"."id"
        from "public"."articles_tags" "%t2"
        where "%t2"."articles_id" operator(pg_catalog.=) "%p1"."id"
        order by "%t2"."sort", "%t2"."id"
        limit 100
      ) "%p2"
      left join lateral (
        select '{"name":' || coalesce(pg_catalog.to_json("%p3"."name")::text, 'null') || '}' as "%j"
        from (
          select "%t3"."name"
          from "public"."tags" "%t3"
          where "%t3"."id" operator(pg_catalog.=) "%p2"."tags_id"
          limit 1
        ) "%p3"
        offset 0
      ) "%l4" on true
      order by "%p2"."sort", "%p2"."id"
    ) "%r2"
  ) "%l5" on true
  order by "%p1"."id"
) "%r1"
