-- POST /utils/import/tags [{"id":3,"name":"replaced"},{"name":"imported"}]

begin;

savepoint batch;

-- $1 = '[{"k":"3","c0":"replaced"}]'
-- $2 = '[{"c0":"imported"}]'
-- $3 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n - 1 as n, "%x".k as k, "%x"."c0"
  from rows
  from (json_to_recordset($1::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."varchar"))
  with ordinality as "%x" (k, "c0", n)
  order by "%x".n
), "%a1" as materialized (
  select (
    select max(nextval('public.tags_id_seq'::regclass))
    from generate_series(1, "%h".k - "%l".v)
  )
  from (
    select max(k)::int8 as k
    from (
      select k
      from json_to_recordset($1::json) as "%x" (k "pg_catalog"."int4")
      where not exists (
        select
        from "public"."tags" "%e"
        where "%e"."id" = k
      )
    ) "%g"
  ) "%h", (
    select coalesce(pg_sequence_last_value('public.tags_id_seq'::regclass), 0) as v
  ) "%l"
  where "%h".k - "%l".v between 1
  and 10000
), "%i1" as materialized (
  select "%x".n - 1 as n, (nextval('tags_id_seq'::regclass)) as k, "%x"."c0"
  from rows
  from (json_to_recordset($2::json) as ("c0" "pg_catalog"."varchar"))
  with ordinality as "%x" ("c0", n) cross join (
    select count(*)
    from "%a1"
  ) "%a"
  order by "%x".n
), "%w0" as (update "public"."tags" "%t" set "name" = "%i"."c0" from (
  select "%s".*
  from "%i0" "%s" join "public"."tags" "%l" on "%l"."id" = "%s".k
  order by "%s".k for no key update of "%l"
) "%i" where "%t"."id" = "%i".k returning "%t"."id", ('{"id":' || coalesce(textin(int4out("%t"."id")), 'null') || ',"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j", ('{"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%d"), "%m0" as (insert into "public"."tags" as "%t" ("id", "name") overriding system value select "%i".k, "%i"."c0" from "%i0" "%i" where not exists (
  select
  from "public"."tags" "%e"
  where "%e"."id" = "%i".k
) order by "%i".n returning "%t"."id", ('{"id":' || coalesce(textin(int4out("%t"."id")), 'null') || ',"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j", null::json as "%d"), "%w1" as (insert into "public"."tags" as "%t" ("id", "name") overriding system value select "%i".k, "%i"."c0" from "%i1" "%i" order by "%i".n returning "%t"."id", ('{"id":' || coalesce(textin(int4out("%t"."id")), 'null') || ',"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j", null::json as "%d"), "%jd" as materialized (
  select *
  from json_to_record($3::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'tags', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
    union all
    select 'create', 'tags', "id"::text, "%j", coalesce("%d", "%j")
    from "%m0"
    union all
    select 'create', 'tags', "id"::text, "%j", coalesce("%d", "%j")
    from "%w1"
  ) "%x"
), "%jb" as (insert into "public"."service_activity" (id, action, collection, item, "user", ip, user_agent, origin) select id, action, collection, item, "user", ip, user_agent, origin from "%ja", "%jd"), "%jc" as (insert into "public"."service_revisions" (activity, collection, item, data, delta) select id, collection, item, data, delta from "%ja" where data is not null)
select json_build_array((
  select max("id")::text
  from "%m0"
), (
  select max("id")::text
  from "%w1"
), ((
  select count(*)
  from "%w0"
) + (
  select count(*)
  from "%m0"
) + (
  select count(*)
  from "%w1"
))::text)::text;

release savepoint batch;

commit;
