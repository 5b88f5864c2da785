-- POST /items/orders?fields=id {"customer":"Di","lines":[{"product_id":42},{"product_id":{"id":99,"name":"tape"}}]}

-- $1 = '[{"c0":"Di"}]'
-- $2 = '[{"k":"99","c0":"tape"}]'
-- $3 = '[{"r0_0":0,"c1":"42"},{"r0_0":0,"c1":"99"}]'
-- $4 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
-- $5 = '{0}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('orders_id_seq'::regclass)) as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($1::json) as ("c0" "pg_catalog"."text"))
    with ordinality as "%x" ("c0", n)
  order by "%x".n
), "%i2" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($2::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."text"))
    with ordinality as "%x" (k, "c0", n)
  order by "%x".n
), "%i1" as materialized (
  select "%i".*, "%r0_0".k::"pg_catalog"."int4" as "k_0", "%i"."c1" as "k_1"
  from (
    select "%x".n operator(pg_catalog.-) 1 as n, "%x"."r0_0", "%x"."c1"
    from rows from (pg_catalog.json_to_recordset($3::json) as ("r0_0" int4, "c1" "pg_catalog"."int4"))
      with ordinality as "%x" ("r0_0", "c1", n)
  ) "%i"
  left join "%i0" "%r0_0" on "%r0_0".n operator(pg_catalog.=) "%i"."r0_0"
  order by "%i".n
), "%w0" as (
  insert into "public"."orders" as "%t" ("id", "customer") overriding system value
  select "%i".k, "%i"."c0"
  from "%i0" "%i"
  order by "%i".n
  returning "%t"."id",
    (('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"customer":'
      || coalesce(pg_catalog.to_json("%t"."customer")::text, 'null'))
      || (coalesce(',"total":"' || pg_catalog.textin(pg_catalog.numeric_out("%t"."total")) || '"', ',"total":null')
        || '}'))::json as "%j",
    null::json as "%d"
), "%w1" as (
  insert into "public"."order_lines" as "%t" ("order_id", "product_id") overriding system value
  select "%i"."k_0", "%i"."k_1"
  from "%i1" "%i"
  left join "%i0" "%r0_0" on "%r0_0".n operator(pg_catalog.=) "%i"."r0_0"
  cross join (
    select count(*)
    from "%w0"
  ) "%w0"
  order by "%i".n
  returning "%t"."order_id", "%t"."product_id",
    (('{"order_id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."order_id")), 'null') || ',"product_id":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."product_id")), 'null'))
      || (',"quantity":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."quantity")), 'null') || ',"note":'
        || coalesce(pg_catalog.to_json("%t"."note")::text, 'null') || '}'))::json as "%j",
    null::json as "%d"
), "%w2" as (
  update "public"."products" "%t"
  set "name" = "%i"."c0"
  from (
    select "%s".*
    from "%i2" "%s"
    join "public"."products" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    ('{"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%d"
), "%m2" as (
  insert into "public"."products" as "%t" ("id", "name") overriding system value
  select "%i".k, "%i"."c0"
  from "%i2" "%i"
  where not exists (
    select
    from "public"."products" "%e"
    where "%e"."id" operator(pg_catalog.=) "%i".k
  )
  order by "%i".n
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($4::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'create', 'orders', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
    union all
    select 'create', 'order_lines', pg_catalog.textin(pg_catalog.int4out("order_id")) || '~'
      || pg_catalog.textin(pg_catalog.int4out("product_id")), "%j", coalesce("%d", "%j")
    from "%w1"
    union all
    select 'update', 'products', "id"::text, "%j", coalesce("%d", "%j")
    from "%w2"
    union all
    select 'create', 'products', "id"::text, "%j", coalesce("%d", "%j")
    from "%m2"
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
select pg_catalog.json_build_array((
  select pg_catalog.max("id")::text
  from "%w0"
), null, null)::text, pg_catalog.set_config('lateral.keys', (
  select pg_catalog.array_agg("%i".k::text order by "%o".place)::text
  from pg_catalog.unnest($5::int4[]) with ordinality as "%o" (n, place)
  join "%i0" "%i" on "%i".n operator(pg_catalog.=) "%o".n
), true);

select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."id", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."orders" "%t1"
    where "%t1"."id" operator(pg_catalog.=) (
      select (pg_catalog.current_setting('lateral.keys')::"pg_catalog"."int4"[])[1]
    )::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
