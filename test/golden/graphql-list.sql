-- { articles(limit: 5) { id heading: title rating author { name __typename } } }
select '{"data":{' || '"articles":' || (
  select coalesce(json_agg("%r1")::text, '[]')
  from (
    select "%p1"."id"::text as "id", "%p1"."title" as "heading", "%p1"."rating" as "rating", "%l3"."%j" as "author"
    from (
      select "%t1"."id", "%t1"."title", "%t1"."rating", "%t1"."author"
      from "public"."articles" "%t1"
      order by "%t1"."id"
      limit 5
    ) "%p1"
    left join lateral (
      select row_to_json("%r2") as "%j"
      from (
        select "%p2"."name" as "name", 'authors'::text as "__typename"
        from (
          select "%t2"."name"
          from "public"."authors" "%t2"
          where "%t2"."id" = "%p1"."author"
          limit 1
        ) "%p2"
      ) "%r2"
    ) "%l3" on true
    order by "%p1"."id"
  ) "%r1"
) || '}}'
