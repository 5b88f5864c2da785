-- /comments?fields=id,article.title,article.comments.body,author.name&limit=5
-- $1 = 'draft'
-- $2 = 'published'
-- $3 = '{"00000000-0000-0000-0000-000000000001"}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  with "%p1" as materialized (
    select "%t1"."id", "%t1"."article", "%t1"."author"
    from "public"."comments" "%t1"
    left join "public"."articles" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."article"
    where ("%t1"."author" is not null or "%t2"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar")
    order by "%t1"."id"
    limit 5
  )
  select ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"article":'
    || coalesce("%l11"."%j", 'null'))
    || (',"author":' || coalesce("%l14"."%j", 'null') || '}') as "%j"
  from "%p1"
  left join (
    select "%d3"."%h0", "%l10"."%j"
    from (
      select distinct "%p1"."article" as "%h0"
      from "%p1"
    ) "%d3"
    left join lateral (
      select '{"title":' || coalesce(pg_catalog.to_json("%p4"."title")::text, 'null') || ',"comments":'
        || ("%l9"."%j") || '}' as "%j"
      from (
        select "%t4"."title", "%t4"."id"
        from "public"."articles" "%t4"
        left join "public"."authors" "%t5" on "%t5"."id" operator(pg_catalog.=) "%t4"."author"
        where ("%t4"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar"
          or "%t5"."name" operator(pg_catalog.=) any(array(
          select "%t6"."first_name"::text::"pg_catalog"."varchar"
          from "public"."service_users" "%t6"
          where "%t6"."id" operator(pg_catalog.=) any($3::uuid[])
        )))
        and "%t4"."id" operator(pg_catalog.=) "%d3"."%h0"
        limit 1
      ) "%p4"
      left join lateral (
        select coalesce('[' || pg_catalog.string_agg("%r7"."%j", ',') || ']', '[]') as "%j"
        from (
          select '{"body":' || coalesce(pg_catalog.to_json("%p7"."body")::text, 'null') || '}' as "%j"
          from (
            select "%t7"."body", "%t7"."id"
            from "public"."comments" "%t7"
            left join "public"."articles" "%t8" on "%t8"."id" operator(pg_catalog.=) "%t7"."article"
            where ("%t7"."author" is not null or "%t8"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar")
            and "%t7"."article" operator(pg_catalog.=) "%p4"."id"
            order by "%t7"."id"
            limit 100
          ) "%p7"
          order by "%p7"."id"
        ) "%r7"
      ) "%l9" on true
    ) "%l10" on true
    offset 0
  ) "%l11" on "%l11"."%h0" operator(pg_catalog.=) "%p1"."article"
  left join lateral (
    select '{"name":' || coalesce(pg_catalog.to_json("%p12"."name")::text, 'null') || '}' as "%j"
    from (
      select "%t12"."name"
      from "public"."authors" "%t12"
      where exists (
        select
        from "public"."articles" "%t13"
        where "%t13"."author" operator(pg_catalog.=) "%t12"."id"
        and "%t13"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar"
      )
      and "%t12"."id" operator(pg_catalog.=) "%p1"."author"
      limit 1
    ) "%p12"
    offset 0
  ) "%l14" on true
  order by "%p1"."id"
) "%r1"
