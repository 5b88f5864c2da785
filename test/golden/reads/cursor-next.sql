-- /articles?fields=id&sort=-rating,title&limit=3&cursor=WyI0LjUwIiwgIkJldGEiLCAiOCJd
-- $1 = '4.50'
-- $2 = 'Beta'
-- $3 = '8'
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
    pg_catalog.json_build_array("%p1"."rating"::text, "%p1"."title"::text, "%p1"."id"::text)::text as "%k"
  from (
    select "%t1"."id", "%t1"."rating", "%t1"."title"
    from "public"."articles" "%t1"
    where "%t1"."rating" operator(pg_catalog.<=) $1::"pg_catalog"."numeric"
    and ("%t1"."rating" operator(pg_catalog.<) $1::"pg_catalog"."numeric"
      or ("%t1"."rating" operator(pg_catalog.=) $1::"pg_catalog"."numeric"
        and ("%t1"."title", "%t1"."id") operator(pg_catalog.>) ($2::"pg_catalog"."varchar", $3::"pg_catalog"."int4")))
    order by "%t1"."rating" desc, "%t1"."title", "%t1"."id"
    limit 3
  ) "%p1"
  order by "%p1"."rating" desc, "%p1"."title", "%p1"."id"
) "%c"
