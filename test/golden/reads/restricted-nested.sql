-- /articles?fields=title,author.name,comments.body,count(comments)&limit=5
-- $1 = 'draft'
-- $2 = 'published'
-- $3 = '{"00000000-0000-0000-0000-000000000001"}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select ('{"title":' || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || ',"author":'
    || coalesce("%l6"."%j", 'null'))
    || (',"comments":' || ("%l9"."%j") || ',"comments_count":' || coalesce((
    select count(*)
    from "public"."comments" "%t10"
    left join "public"."articles" "%t11" on "%t11"."id" operator(pg_catalog.=) "%t10"."article"
    where ("%t10"."author" is not null or "%t11"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar")
    and "%t10"."article" operator(pg_catalog.=) "%p1"."id"
  )::text, 'null') || '}') as "%j"
  from (
    select "%t1"."title", "%t1"."author", "%t1"."id",
      "%t1"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar" as "%k0"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    where ("%t1"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar"
      or "%t2"."name" operator(pg_catalog.=) any(array(
      select "%t3"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t3"
      where "%t3"."id" operator(pg_catalog.=) any($3::uuid[])
    )))
    order by "%t1"."id"
    limit 5
  ) "%p1"
  left join lateral (
    select '{"name":' || coalesce(pg_catalog.to_json("%p4"."name")::text, 'null') || '}' as "%j"
    from (
      select "%t4"."name"
      from "public"."authors" "%t4"
      where exists (
        select
        from "public"."articles" "%t5"
        where "%t5"."author" operator(pg_catalog.=) "%t4"."id"
        and "%t5"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar"
      )
      and "%t4"."id" operator(pg_catalog.=)
      case
      when "%p1"."%k0" then "%p1"."author"
      end
      limit 1
    ) "%p4"
    offset 0
  ) "%l6" on true
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r7"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"body":' || coalesce(pg_catalog.to_json("%p7"."body")::text, 'null') || '}' as "%j"
      from (
        select "%t7"."body", "%t7"."id"
        from "public"."comments" "%t7"
        left join "public"."articles" "%t8" on "%t8"."id" operator(pg_catalog.=) "%t7"."article"
        where ("%t7"."author" is not null or "%t8"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar")
        and "%t7"."article" operator(pg_catalog.=) "%p1"."id"
        order by "%t7"."id"
        limit 100
      ) "%p7"
      order by "%p7"."id"
    ) "%r7"
  ) "%l9" on true
  order by "%p1"."id"
) "%r1"
