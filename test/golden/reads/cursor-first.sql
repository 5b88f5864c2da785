-- /articles?fields=id&sort=id&limit=3&cursor=
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
    pg_catalog.json_build_array("%p1"."id"::text)::text as "%k"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 3
  ) "%p1"
  order by "%p1"."id"
) "%c"
