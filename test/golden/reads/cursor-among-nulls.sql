-- /articles?fields=id&sort=-rating&limit=3&cursor=W251bGwsICI4Il0
-- $1 = '8'
select '{"meta":{' || '"next_cursor":'
  || coalesce('"' || case when count(*) operator(pg_catalog.=) 3
    then pg_catalog.translate(pg_catalog.encode(pg_catalog.convert_to((pg_catalog.array_agg("%c"."%k"))[count(*)],
      'UTF8'),
      'base64'),
      E'+/=\n', '-_') end
    || '"', 'null')
  || coalesce('},"data":[' || pg_catalog.string_agg("%c"."%j", ',') || ']}', '},"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j",
    pg_catalog.json_build_array("%p1"."rating"::text, "%p1"."id"::text)::text as "%k"
  from (
    with "%b1_0" as materialized (
      select "%t1"."id", "%t1"."rating"
      from "public"."articles" "%t1"
      where "%t1"."rating" is null
      and ("%t1"."id") operator(pg_catalog.>) ($1::"pg_catalog"."int4")
      order by "%t1"."id"
      limit 3
    ), "%b1_1" as materialized (
      select "%t1"."id", "%t1"."rating"
      from "public"."articles" "%t1"
      where "%t1"."rating" is not null
      and (
        select count(*)
        from "%b1_0"
      ) operator(pg_catalog.<) 3
      order by "%t1"."rating" desc, "%t1"."id"
      limit 3
    )
    select *
    from (
      select *
      from "%b1_0"
      union all
      select *
      from "%b1_1"
    ) "%u1"
    order by "%u1"."rating" desc, "%u1"."id"
    limit 3
  ) "%p1"
  order by "%p1"."rating" desc, "%p1"."id"
) "%c"
