-- PATCH /items/order_lines/1~42?fields=note {"note":"two"}

-- $1 = 'two'
-- $2 = '1'
-- $3 = '42'
-- $4 = '00000000-0000-0000-0000-000000000001'
-- $5 = '127.0.0.1'
-- $6 = null
-- $7 = null
with "%w" as (
  update "public"."order_lines" "%t"
  set "note" = $1::"pg_catalog"."text"
  where "%t"."order_id" operator(pg_catalog.=) $2::"pg_catalog"."int4"
  and "%t"."product_id" operator(pg_catalog.=) $3::"pg_catalog"."int4"
  returning "%t"."order_id", "%t"."product_id", "%t"."quantity", "%t"."note",
    pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e",
    (('{"order_id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."order_id")), 'null') || ',"product_id":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."product_id")), 'null'))
      || (',"quantity":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."quantity")), 'null') || ',"note":'
        || coalesce(pg_catalog.to_json("%t"."note")::text, 'null') || '}'))::json as "%j",
    ('{"note":' || coalesce(pg_catalog.to_json("%t"."note")::text, 'null') || '}')::json as "%d"
), "%a" as (
  insert into "public"."service_activity" (action, collection, item, "user", ip, user_agent, origin)
  select 'update', 'order_lines', pg_catalog.textin(pg_catalog.int4out("%w"."order_id")) || '~'
    || pg_catalog.textin(pg_catalog.int4out("%w"."product_id")), $4::uuid, $5::text, $6::text, $7::text
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
    select '{"note":' || coalesce(pg_catalog.to_json("%p1"."note")::text, 'null') || '}' as "%j", "%p1"."%e"
    from (
      select "%t1"."note", "%t1"."%e"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w";
