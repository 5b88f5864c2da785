-- /authors?fields=name,articles.title,articles.comments.id&deep={"articles":{"_filter":{"status":"published"},
--   "_sort":"-views","_limit":3,"comments":{"_limit":1,"_offset":1}}}
-- $1 = 'published'
-- $2 = '1'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"name":' || coalesce(pg_catalog.to_json("%p1"."name")::text, 'null') || ',"articles":' || ("%l5"."%j")
    || '}' as "%j"
  from (
    select "%t1"."name", "%t1"."id"
    from "public"."authors" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"title":' || coalesce(pg_catalog.to_json("%p2"."title")::text, 'null') || ',"comments":'
        || ("%l4"."%j") || '}' as "%j"
      from (
        select "%t2"."title", "%t2"."id", "%t2"."views"
        from "public"."articles" "%t2"
        where "%t2"."author" operator(pg_catalog.=) "%p1"."id"
        and "%t2"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
        order by "%t2"."views" desc, "%t2"."id"
        limit 3
      ) "%p2"
      left join lateral (
        select coalesce('[' || pg_catalog.string_agg("%r3"."%j", ',') || ']', '[]') as "%j"
        from (
          select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p3"."id")), 'null') || '}' as "%j"
          from (
            select "%t3"."id"
            from "public"."comments" "%t3"
            where "%t3"."article" operator(pg_catalog.=) "%p2"."id"
            order by "%t3"."id"
            limit 1
            offset $2::bigint
          ) "%p3"
          order by "%p3"."id"
        ) "%r3"
      ) "%l4" on true
      order by "%p2"."views" desc, "%p2"."id"
    ) "%r2"
  ) "%l5" on true
  order by "%p1"."id"
) "%r1"
