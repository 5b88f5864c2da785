-- POST /items/order_lines?fields=quantity {"order_id":3,"product_id":11}

-- $1 = '3'
-- $2 = '11'
-- $3 = '00000000-0000-0000-0000-000000000001'
-- $4 = '127.0.0.1'
-- $5 = null
-- $6 = null
with "%w" as (
  insert into "public"."order_lines" as "%t" ("order_id", "product_id")
  values ($1::"pg_catalog"."int4", $2::"pg_catalog"."int4")
  returning "%t"."order_id", "%t"."product_id", "%t"."quantity", "%t"."note",
    pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
    (('{"order_id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."order_id")), 'null') || ',"product_id":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."product_id")), 'null'))
      || (',"quantity":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."quantity")), 'null') || ',"note":'
        || coalesce(pg_catalog.to_json("%t"."note")::text, 'null') || '}'))::json as "%j",
    null::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'create', 'order_lines', pg_catalog.textin(pg_catalog.int4out("%w"."order_id")) || '~'
    || pg_catalog.textin(pg_catalog.int4out("%w"."product_id")), $3::uuid, $4::text, $5::text, $6::text
  from "%w"
  returning id, item
), "%r" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select "%a".id, 'order_lines', "%a".item, "%w"."%j", coalesce("%w"."%d", "%w"."%j")
  from "%a", "%w"
)
select coalesce((
  select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
  from (
    select '{"quantity":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."quantity")), 'null') || '}' as "%j",
      "%p1"."%e"
    from (
      select "%t1"."quantity", "%t1"."%e"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w";
