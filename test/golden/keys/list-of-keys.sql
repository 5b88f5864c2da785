-- GET /items/orders/1?fields=customer,lines

-- $1 = '1'
select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"customer":' || coalesce(pg_catalog.to_json("%p1"."customer")::text, 'null') || ',"lines":' || ("%l3"."%j")
    || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."customer", "%t1"."id", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."orders" "%t1"
    where "%t1"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select coalesce('"' || pg_catalog.textin(pg_catalog.int4out("%p2"."order_id")) || '~'
        || pg_catalog.textin(pg_catalog.int4out("%p2"."product_id")) || '"', 'null') as "%j"
      from (
        select "%t2"."order_id", "%t2"."product_id"
        from "public"."order_lines" "%t2"
        where "%t2"."order_id" operator(pg_catalog.=) "%p1"."id"
        order by "%t2"."order_id", "%t2"."product_id"
        limit 100
      ) "%p2"
      order by "%p2"."order_id", "%p2"."product_id"
    ) "%r2"
  ) "%l3" on true
) "%r1";
