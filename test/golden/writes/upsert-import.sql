-- POST /utils/import/tags [{"id":3,"name":"replaced"},{"name":"imported"}]

begin;

savepoint batch;

-- $1 = '[{"k":"3","c0":"replaced"}]'
-- $2 = '[{"c0":"imported"}]'
-- $3 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."varchar"))
    with ordinality as "%x" (k, "c0", n)
  order by "%x".n
), "%a1" as materialized (
  select (
    select pg_catalog.max(pg_catalog.nextval('public.tags_id_seq'::regclass))
    from pg_catalog.generate_series(1, "%h".k operator(pg_catalog.-) "%l".v)
  )
  from (
    select pg_catalog.max(k)::int8 as k
    from (
      select k
      from pg_catalog.json_to_recordset($1::json) as "%x" (k "pg_catalog"."int4")
      where not exists (
        select
        from "public"."tags" "%e"
        where "%e"."id" operator(pg_catalog.=) k
      )
    ) "%g"
  ) "%h", (
    select coalesce(pg_catalog.pg_sequence_last_value('public.tags_id_seq'::regclass), 0) as v
  ) "%l"
  where "%h".k operator(pg_catalog.-) "%l".v operator(pg_catalog.>=) 1
  and "%h".k operator(pg_catalog.-) "%l".v operator(pg_catalog.<=) 10000
), "%i1" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('tags_id_seq'::regclass)) as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($2::json) as ("c0" "pg_catalog"."varchar"))
    with ordinality as "%x" ("c0", n)
  cross join (
    select count(*)
    from "%a1"
  ) "%a"
  order by "%x".n
), "%w0" as (
  update "public"."tags" "%t"
  set "name" = "%i"."c0"
  from (
    select "%s".*
    from "%i0" "%s"
    join "public"."tags" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    ('{"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%d"
), "%m0" as (
  insert into "public"."tags" as "%t" ("id", "name") overriding system value
  select "%i".k, "%i"."c0"
  from "%i0" "%i"
  where not exists (
    select
    from "public"."tags" "%e"
    where "%e"."id" operator(pg_catalog.=) "%i".k
  )
  order by "%i".n
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%w1" as (
  insert into "public"."tags" as "%t" ("id", "name") overriding system value
  select "%i".k, "%i"."c0"
  from "%i1" "%i"
  order by "%i".n
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($3::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
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
  from "%m0"
), (
  select pg_catalog.max("id")::text
  from "%w1"
), ((
  select count(*)
  from "%w0"
) operator(pg_catalog.+) (
  select count(*)
  from "%m0"
) operator(pg_catalog.+) (
  select count(*)
  from "%w1"
))::text)::text;

release savepoint batch;

commit;
