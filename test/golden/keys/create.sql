-- POST /items/order_lines?fields=quantity {"order_id":3,"product_id":11}

-- $1 = '[{"c0":"3","c1":"11"}]'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
-- $3 = '{0}'
with "%i0" as materialized (
  select "%i".*, "%i"."c0" as "k_0", "%i"."c1" as "k_1"
  from (
    select "%x".n operator(pg_catalog.-) 1 as n, "%x"."c0", "%x"."c1"
    from rows from (pg_catalog.json_to_recordset($1::json) as ("c0" "pg_catalog"."int4", "c1" "pg_catalog"."int4"))
      with ordinality as "%x" ("c0", "c1", n)
  ) "%i"
  order by "%i".n
), "%w0" as (
  insert into "public"."order_lines" as "%t" ("order_id", "product_id") overriding system value
  select "%i"."k_0", "%i"."k_1"
  from "%i0" "%i"
  order by "%i".n
  returning "%t"."order_id", "%t"."product_id",
    (('{"order_id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."order_id")), 'null') || ',"product_id":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."product_id")), 'null'))
      || (',"quantity":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."quantity")), 'null') || ',"note":'
        || coalesce(pg_catalog.to_json("%t"."note")::text, 'null') || '}'))::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'create', 'order_lines', pg_catalog.textin(pg_catalog.int4out("order_id")) || '~'
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
select pg_catalog.json_build_array(null)::text, pg_catalog.set_config('lateral.keys', (
  select pg_catalog.array_agg(pg_catalog.textin(pg_catalog.int4out("%i"."k_0")) || '~'
    || pg_catalog.textin(pg_catalog.int4out("%i"."k_1")) order by "%o".place)::text
  from pg_catalog.unnest($3::int4[]) with ordinality as "%o" (n, place)
  join "%i0" "%i" on "%i".n operator(pg_catalog.=) "%o".n
), true), pg_catalog.set_config('lateral.key0', (
  select pg_catalog.array_agg("%i"."k_0" order by "%o".place)::text
  from pg_catalog.unnest($3::int4[]) with ordinality as "%o" (n, place)
  join "%i0" "%i" on "%i".n operator(pg_catalog.=) "%o".n
), true), pg_catalog.set_config('lateral.key1', (
  select pg_catalog.array_agg("%i"."k_1" order by "%o".place)::text
  from pg_catalog.unnest($3::int4[]) with ordinality as "%o" (n, place)
  join "%i0" "%i" on "%i".n operator(pg_catalog.=) "%o".n
), true);

select '{"data":' || "%r1"."%j" || '}'
from (
  select '{"quantity":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."quantity")), 'null') || '}' as "%j"
  from (
    select "%t1"."quantity"
    from "public"."order_lines" "%t1"
    where "%t1"."order_id" operator(pg_catalog.=) (
      select (pg_catalog.current_setting('lateral.key0')::"pg_catalog"."int4"[])[1]
    )::"pg_catalog"."int4"
    and "%t1"."product_id" operator(pg_catalog.=) (
      select (pg_catalog.current_setting('lateral.key1')::"pg_catalog"."int4"[])[1]
    )::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
