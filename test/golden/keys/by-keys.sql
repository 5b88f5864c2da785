-- SEARCH /items/order_lines {"keys":["1~11","2~11"],"query":{"fields":["note"]}}

-- $1 = '{"1","2"}'
-- $2 = '{"11","11"}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"note":' || coalesce(pg_catalog.to_json("%p1"."note")::text, 'null') || '}' as "%j"
  from (
    select "%t1"."note", "%t1"."order_id", "%t1"."product_id"
    from "public"."order_lines" "%t1"
    where ("%t1"."order_id", "%t1"."product_id") operator(pg_catalog.=) any (
      select *
      from unnest($1::"pg_catalog"."int4"[], $2::"pg_catalog"."int4"[])
    )
    order by "%t1"."order_id", "%t1"."product_id"
    limit 100
  ) "%p1"
  order by "%p1"."order_id", "%p1"."product_id"
) "%r1";
