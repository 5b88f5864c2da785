-- /articles?fields=id,author.name,author.born&limit=25
select '{"data":' || coalesce(json_agg("%r1")::text, '[]') || '}'
from (
  select "%p1"."id" as "id", "%l3"."%j" as "author"
  from (
    select "%t1"."id", "%t1"."author"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 25
  ) "%p1"
  left join lateral (
    select row_to_json("%r2") as "%j"
    from (
      select "%p2"."name" as "name", "%p2"."born" as "born"
      from (
        select "%t2"."name", "%t2"."born"
        from "public"."authors" "%t2"
        where "%t2"."id" = "%p1"."author"
        limit 1
      ) "%p2"
    ) "%r2"
  ) "%l3" on true
  order by "%p1"."id"
) "%r1"
