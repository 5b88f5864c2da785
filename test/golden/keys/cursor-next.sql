-- GET /items/order_lines?fields=note&limit=2&cursor=WyIxIiwgIjExIl0

-- $1 = '1'
-- $2 = '11'
select '{"meta":{' || '"next_cursor":'
  || coalesce('"' || case when count(*) operator(pg_catalog.=) 2
    then pg_catalog.translate(pg_catalog.encode(pg_catalog.convert_to((pg_catalog.array_agg("%c"."%k"))[count(*)],
      'UTF8'),
      'base64'),
      E'+/=\n', '-_') end
    || '"', 'null')
  || coalesce('},"data":[' || pg_catalog.string_agg("%c"."%j", ',') || ']}', '},"data":[]}')
from (
  select '{"note":' || coalesce(pg_catalog.to_json("%p1"."note")::text, 'null') || '}' as "%j",
    pg_catalog.json_build_array("%p1"."order_id"::text, "%p1"."product_id"::text)::text as "%k"
  from (
    select "%t1"."note", "%t1"."order_id", "%t1"."product_id"
    from "public"."order_lines" "%t1"
    where ("%t1"."order_id", "%t1"."product_id") operator(pg_catalog.>) ($1::"pg_catalog"."int4",
      $2::"pg_catalog"."int4")
    order by "%t1"."order_id", "%t1"."product_id"
    limit 2
  ) "%p1"
  order by "%p1"."order_id", "%p1"."product_id"
) "%c";
