-- /articles?fields=id,comments.id,comments.author.name
select '{"data":' || coalesce(json_agg("%r1")::text, '[]') || '}'
from (
  select "%p1"."id" as "id", "%l5"."%j" as "comments"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce(json_agg("%r2"), '[]') as "%j"
    from (
      select "%p2"."id" as "id", "%l4"."%j" as "author"
      from (
        select "%t2"."id", "%t2"."author"
        from "public"."comments" "%t2"
        where "%t2"."article" = "%p1"."id"
        order by "%t2"."id"
        limit 100
      ) "%p2"
      left join lateral (
        select row_to_json("%r3") as "%j"
        from (
          select "%p3"."name" as "name"
          from (
            select "%t3"."name"
            from "public"."authors" "%t3"
            where "%t3"."id" = "%p2"."author"
            limit 1
          ) "%p3"
        ) "%r3"
      ) "%l4" on true
      order by "%p2"."id"
    ) "%r2"
  ) "%l5" on true
  order by "%p1"."id"
) "%r1"
