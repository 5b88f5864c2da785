-- { articles(limit: 5) { id heading: title rating author { name __typename } } }
select '{"data":{' || '"articles":' || (
  select coalesce('[' || pg_catalog.string_agg("%r1"."%j", ',') || ']', '[]')
  from (
    select (coalesce('{"id":"' || pg_catalog.textin(pg_catalog.int4out("%p1"."id")) || '"', '{"id":null')
      || ',"heading":' || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null'))
      || (',"rating":' || coalesce(pg_catalog.to_json("%p1"."rating")::text, 'null') || ',"author":'
        || coalesce("%l3"."%j", 'null') || '}') as "%j"
    from (
      select "%t1"."id", "%t1"."title", "%t1"."rating", "%t1"."author"
      from "public"."articles" "%t1"
      order by "%t1"."id"
      limit 5
    ) "%p1"
    left join lateral (
      select '{"name":' || coalesce(pg_catalog.to_json("%p2"."name")::text, 'null') || ',"__typename":"authors"'
        || '}' as "%j"
      from (
        select "%t2"."name"
        from "public"."authors" "%t2"
        where "%t2"."id" operator(pg_catalog.=) "%p1"."author"
        limit 1
      ) "%p2"
      offset 0
    ) "%l3" on true
    order by "%p1"."id"
  ) "%r1"
) || '}}'
