-- /articles?fields=id,tags.tags_id.name
select '{"data":' || coalesce(json_agg("%r1")::text, '[]') || '}'
from (
  select "%p1"."id" as "id", "%l5"."%j" as "tags"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce(json_agg("%r2"), '[]') as "%j"
    from (
      select "%l4"."%j" as "tags_id"
      from (
        select "%t2"."tags_id", "%t2"."sort", "%t2"."id"
        from "public"."articles_tags" "%t2"
        where "%t2"."articles_id" = "%p1"."id"
        order by "%t2"."sort", "%t2"."id"
        limit 100
      ) "%p2"
      left join lateral (
        select row_to_json("%r3") as "%j"
        from (
          select "%p3"."name" as "name"
          from (
            select "%t3"."name"
            from "public"."tags" "%t3"
            where "%t3"."id" = "%p2"."tags_id"
            limit 1
          ) "%p3"
        ) "%r3"
      ) "%l4" on true
      order by "%p2"."sort", "%p2"."id"
    ) "%r2"
  ) "%l5" on true
  order by "%p1"."id"
) "%r1"
