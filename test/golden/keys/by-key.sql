-- GET /items/order_lines/1~42?fields=quantity

-- $1 = '1'
-- $2 = '42'
select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"quantity":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."quantity")), 'null') || '}' as "%j",
    "%p1"."%e"
  from (
    select "%t1"."quantity", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."order_lines" "%t1"
    where "%t1"."order_id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
    and "%t1"."product_id" operator(pg_catalog.=) $2::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
