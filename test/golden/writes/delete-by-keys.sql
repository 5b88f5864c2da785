-- DELETE /items/comments [5,6]

begin;

-- $1 = '{"5","6"}'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%k" as materialized (
  select distinct pg_catalog.unnest($1::"pg_catalog"."int4"[]) as k
), "%w" as (
  delete from "public"."comments" "%t"
  using "%k"
  where "%t"."id" operator(pg_catalog.=) "%k".k
  returning "%t"."id"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'delete', 'comments', "id"::text, null::json, null::json
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
