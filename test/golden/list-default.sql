-- /articles
select '{"data":' || coalesce(json_agg("%r1")::text, '[]') || '}'
from (
  select "%p1"."id" as "id", "%p1"."title" as "title", "%p1"."slug" as "slug", "%p1"."body" as "body", "%p1"."status" as "status", "%p1"."views" as "views", "%p1"."rating"::text as "rating",
  case
  when isfinite("%p1"."published_at") then to_char("%p1"."published_at" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
  else "%p1"."published_at"::text
  end as "published_at", "%p1"."meta" as "meta", "%p1"."author" as "author", "%l3"."%j" as "comments", "%l5"."%j" as "tags", "%l7"."%j" as "blocks"
  from (
    select "%t1"."id", "%t1"."title", "%t1"."slug", "%t1"."body", "%t1"."status", "%t1"."views", "%t1"."rating", "%t1"."published_at", "%t1"."meta", "%t1"."author"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce(json_agg("%r2"."id"), '[]') as "%j"
    from (
      select "%p2"."id" as "id"
      from (
        select "%t2"."id"
        from "public"."comments" "%t2"
        where "%t2"."article" = "%p1"."id"
        order by "%t2"."id"
        limit 100
      ) "%p2"
      order by "%p2"."id"
    ) "%r2"
  ) "%l3" on true
  left join lateral (
    select coalesce(json_agg("%r4"."id"), '[]') as "%j"
    from (
      select "%p4"."id" as "id"
      from (
        select "%t4"."id", "%t4"."sort"
        from "public"."articles_tags" "%t4"
        where "%t4"."articles_id" = "%p1"."id"
        order by "%t4"."sort", "%t4"."id"
        limit 100
      ) "%p4"
      order by "%p4"."sort", "%p4"."id"
    ) "%r4"
  ) "%l5" on true
  left join lateral (
    select coalesce(json_agg("%r6"."id"), '[]') as "%j"
    from (
      select "%p6"."id" as "id"
      from (
        select "%t6"."id", "%t6"."sort"
        from "public"."articles_blocks" "%t6"
        where "%t6"."articles_id" = "%p1"."id"
        order by "%t6"."sort", "%t6"."id"
        limit 100
      ) "%p6"
      order by "%p6"."sort", "%p6"."id"
    ) "%r6"
  ) "%l7" on true
  order by "%p1"."id"
) "%r1"
