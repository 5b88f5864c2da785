-- /articles?fields=id&sort=id&limit=3&cursor=
select '{"meta":{' || '"next_cursor":' || coalesce('"' || case when count(*) = 3 then translate(encode(convert_to((array_agg("%c"."%k"))[count(*)], 'UTF8'), 'base64'), E'+/=\n', '-_') end || '"', 'null') || coalesce('},"data":[' || string_agg("%c"."%j", ',') || ']}', '},"data":[]}')
from (
  select '{"id":' || coalesce(textin(int4out("%p1"."id")), 'null') || '}' as "%j", json_build_array("%p1"."id"::text)::text as "%k"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 3
  ) "%p1"
  order by "%p1"."id"
) "%c"
