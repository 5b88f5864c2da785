-- PATCH /items/order_lines/1~42?fields=note {"note":"two"}

-- $1 = '[{"k_0":"1","k_1":"42","c0":"two"}]'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x"."k_0" as "k_0", "%x"."k_1" as "k_1", "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($1::json) as ("k_0" "pg_catalog"."int4", "k_1" "pg_catalog"."int4",
    "c0" "pg_catalog"."text"))
    with ordinality as "%x" ("k_0", "k_1", "c0", n)
  order by "%x".n
), "%w0" as (
  update "public"."order_lines" "%t"
  set "note" = "%i"."c0"
  from (
    select "%s".*
    from "%i0" "%s"
    join "public"."order_lines" "%l" on "%l"."order_id" operator(pg_catalog.=) "%s"."k_0"
    and "%l"."product_id" operator(pg_catalog.=) "%s"."k_1"
    order by "%s"."k_0", "%s"."k_1" for no key update of "%l"
  ) "%i"
  where "%t"."order_id" operator(pg_catalog.=) "%i"."k_0"
  and "%t"."product_id" operator(pg_catalog.=) "%i"."k_1"
  returning "%t"."order_id", "%t"."product_id",
    (('{"order_id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."order_id")), 'null') || ',"product_id":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."product_id")), 'null'))
      || (',"quantity":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."quantity")), 'null') || ',"note":'
        || coalesce(pg_catalog.to_json("%t"."note")::text, 'null') || '}'))::json as "%j",
    ('{"note":' || coalesce(pg_catalog.to_json("%t"."note")::text, 'null') || '}')::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'order_lines', pg_catalog.textin(pg_catalog.int4out("order_id")) || '~'
      || pg_catalog.textin(pg_catalog.int4out("product_id")), "%j", coalesce("%d", "%j")
    from "%w0"
  ) "%x"
), "%jb" as (
  insert into "public"."service_activity" (id, action, collection, item, "user", ip, user_agent, origin)
  select id, action, collection, item, "user", ip, user_agent, origin
  from "%ja", "%jd"
), "%jc" as (
  insert into "public"."service_revisions" (activity, collection, item, data, delta)
  select id, collection, item, data, delta
  from "%ja"
  where data is not null
)
select pg_catalog.json_build_array(null)::text,
case
when (
  select count(*)
  from "%w0"
) operator(pg_catalog.<) (
  select count(*)
  from "%i0"
) then "public".service_raise('missing')
end;

-- $1 = '1'
-- $2 = '42'
select '{"data":' || "%r1"."%j" || '}'
from (
  select '{"note":' || coalesce(pg_catalog.to_json("%p1"."note")::text, 'null') || '}' as "%j"
  from (
    select "%t1"."note"
    from "public"."order_lines" "%t1"
    where "%t1"."order_id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
    and "%t1"."product_id" operator(pg_catalog.=) $2::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
