-- DELETE /items/order_lines ["1~72","2~11"]

begin;

-- $1 = '{"1","2"}'
-- $2 = '{"72","11"}'
-- $3 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%k" as materialized (
  select distinct *
  from unnest($1::"pg_catalog"."int4"[], $2::"pg_catalog"."int4"[]) as "%x" ("k_0", "k_1")
), "%w" as (
  delete from "public"."order_lines" "%t"
  using "%k"
  where "%t"."order_id" operator(pg_catalog.=) "%k"."k_0"
  and "%t"."product_id" operator(pg_catalog.=) "%k"."k_1"
  returning "%t"."order_id", "%t"."product_id"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($3::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'delete', 'order_lines', pg_catalog.textin(pg_catalog.int4out("order_id")) || '~'
      || pg_catalog.textin(pg_catalog.int4out("product_id")), null::json, null::json
    from "%w"
  ) "%x"
), "%jb" as (
  insert into "public"."service_activity" (id, action, collection, item, "user", ip, user_agent, origin)
  select id, action, collection, item, "user", ip, user_agent, origin
  from "%ja", "%jd"
)
select
case
when (
  select count(*)
  from "%w"
) operator(pg_catalog.<) (
  select count(*)
  from "%k"
) then "public".service_raise('missing')
end;

commit;
