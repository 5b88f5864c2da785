-- /articles/1?fields=title,author.name,comments.body
-- $1 = '1'
select '{"data":' || row_to_json("%r1")::text || '}'
from (
  select "%p1"."title" as "title", "%l3"."%j" as "author", "%l5"."%j" as "comments"
  from (
    select "%t1"."title", "%t1"."author", "%t1"."id"
    from "public"."articles" "%t1"
    where "%t1"."id" = $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
  left join lateral (
    select row_to_json("%r2") as "%j"
    from (
      select "%p2"."name" as "name"
      from (
        select "%t2"."name"
        from "public"."authors" "%t2"
        where "%t2"."id" = "%p1"."author"
        limit 1
      ) "%p2"
    ) "%r2"
  ) "%l3" on true
  left join lateral (
    select coalesce(json_agg("%r4"), '[]') as "%j"
    from (
      select "%p4"."body" as "body"
      from (
        select "%t4"."body", "%t4"."id"
        from "public"."comments" "%t4"
        where "%t4"."article" = "%p1"."id"
        order by "%t4"."id"
        limit 100
      ) "%p4"
      order by "%p4"."id"
    ) "%r4"
  ) "%l5" on true
) "%r1"
