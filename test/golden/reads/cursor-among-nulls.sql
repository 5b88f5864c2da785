-- /articles?fields=id&sort=-rating&limit=3&cursor=W251bGwsICI4Il0
-- $1 = '8'
select '{"meta":{' || '"next_cursor":' || coalesce('"' || case when count(*) = 3 then translate(encode(convert_to((array_agg("%c"."%k"))[count(*)], 'UTF8'), 'base64'), E'+/=\n', '-_') end || '"', 'null') || coalesce('},"data":[' || string_agg("%c"."%j", ',') || ']}', '},"data":[]}')
from (
  select '{"id":' || coalesce(textin(int4out("%p1"."id")), 'null') || '}' as "%j", json_build_array("%p1"."rating"::text, "%p1"."id"::text)::text as "%k"
  from (
    with "%b1_0" as materialized (
      select "%t1"."id", "%t1"."rating"
      from "public"."articles" "%t1"
      where "%t1"."rating" is null
      and ("%t1"."id") > ($1::"pg_catalog"."int4")
      order by "%t1"."id"
      limit 3
    ), "%b1_1" as materialized (
      select "%t1"."id", "%t1"."rating"
      from "public"."articles" "%t1"
      where "%t1"."rating" is not null
      and (
        select count(*)
        from "%b1_0"
      ) < 3
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
