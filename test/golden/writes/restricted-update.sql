-- PATCH /items/articles/8?fields=id {"title":"Changed","comments":{"create":[{"body":"New"}]}}

-- $1 = '{"nodes":[[{"n":0,"k":"8","c0":"Changed","c1":"draft"}],[{"n":0,"c0":"New","c1":"8"}]],"unlinks":[],"root":[0],"by":{"user":"00000000-0000-0000-0000-000000000002","ip":"127.0.0.1","user_agent":null,"origin":null}}'
-- $2 = '{"00000000-0000-0000-0000-000000000002"}'
with "%i0" as materialized (
  select "%x".n, "%x".k as k, "%x"."c0", "%x"."c1"
  from json_to_recordset($1::json -> 'nodes' -> 0) as "%x" (n int4, k "pg_catalog"."int4", "c0" "pg_catalog"."varchar", "c1" "pg_catalog"."varchar")
  order by "%x".n
), "%a1" as materialized (
  select (
    select max(nextval('public.comments_id_seq'::regclass))
    from generate_series(1, "%h".k - "%l".v)
  )
  from (
    select max(k)::int8 as k
    from (
      select k
      from json_to_recordset($1::json -> 'nodes' -> 1) as "%x" (k "pg_catalog"."int4")
    ) "%g"
  ) "%h", (
    select coalesce(pg_sequence_last_value('public.comments_id_seq'::regclass), 0) as v
  ) "%l"
  where "%h".k - "%l".v between 1
  and 10000
), "%i1" as materialized (
  select "%x".n,
  case
  when "%x".k is null then (nextval('comments_id_seq'::regclass))
  else "%x".k
  end as k, "%x"."c0", "%x"."c1"
  from json_to_recordset($1::json -> 'nodes' -> 1) as "%x" (n int4, k "pg_catalog"."int4", "c0" "pg_catalog"."text", "c1" "pg_catalog"."int4") cross join (
    select count(*)
    from "%a1"
  ) "%a"
  order by "%x".n
), "%w0" as (update "public"."articles" "%t" set "title" = "%i"."c0", "status" = "%i"."c1" from (
  select "%s".*
  from "%i0" "%s" join "public"."articles" "%l" on "%l"."id" = "%s".k
  left join "public"."authors" "%t1" on "%t1"."id" = "%l"."author"
  where ("%t1"."name" = any(array(
    select "%t2"."first_name"::text::"pg_catalog"."varchar"
    from "public"."service_users" "%t2"
    where "%t2"."id" = any($2::uuid[])
  )))
  order by "%s".k for no key update of "%l"
) "%i" where "%t"."id" = "%i".k returning "%t"."id", (((('{"id":' || coalesce(textin(int4out("%t"."id")), 'null') || ',"title":' || coalesce(pg_catalog.to_json("%t"."title")::text, 'null')) || (',"slug":' || coalesce(pg_catalog.to_json("%t"."slug")::text, 'null'))) || (',"body":' || coalesce(pg_catalog.to_json("%t"."body")::text, 'null') || ',"status":' || coalesce(pg_catalog.to_json("%t"."status")::text, 'null'))) || (((',"views":' || coalesce(textin(int4out("%t"."views")), 'null') || coalesce(',"rating":"' || textin(numeric_out("%t"."rating")) || '"', ',"rating":null')) || (coalesce(',"published_at":"' || case when isfinite("%t"."published_at") then to_char("%t"."published_at" at time zone 'UTC', case when "%t"."published_at" = "%t"."published_at"::timestamptz(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"' else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end) || case when "%t"."published_at" < '0001-01-01 00:00:00+00'::timestamptz then ' BC' else '' end else "%t"."published_at"::text end || '"', ',"published_at":null'))) || (',"meta":' || coalesce(textin(json_out("%t"."meta")), 'null') || ',"author":' || coalesce(textin(int4out("%t"."author")), 'null') || '}')))::json as "%j", (
  select coalesce(json_object_agg(k, v) filter (where p), '{}')
  from (values ('title', coalesce(pg_catalog.to_json("%t"."title")::text, 'null')::json, true), ('status', coalesce(pg_catalog.to_json("%t"."status")::text, 'null')::json, true)) as "%h" (k, v, p)
) as "%d"), "%w1" as (insert into "public"."comments" as "%t" ("id", "body", "article") overriding system value select "%i".k, "%i"."c0", "%i"."c1" from "%i1" "%i" order by "%i".n returning "%t"."id", ((('{"id":' || coalesce(textin(int4out("%t"."id")), 'null') || ',"body":' || coalesce(pg_catalog.to_json("%t"."body")::text, 'null')) || (coalesce(',"created":"' || case when isfinite("%t"."created") then to_char("%t"."created" at time zone 'UTC', case when "%t"."created" = "%t"."created"::timestamptz(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"' else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end) || case when "%t"."created" < '0001-01-01 00:00:00+00'::timestamptz then ' BC' else '' end else "%t"."created"::text end || '"', ',"created":null'))) || (',"article":' || coalesce(textin(int4out("%t"."article")), 'null') || ',"author":' || coalesce(textin(int4out("%t"."author")), 'null') || '}'))::json as "%j", null::json as "%d"), "%jd" as materialized (
  select *
  from json_to_record(($1::json -> 'by')) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'articles', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
    union all
    select 'create', 'comments', "id"::text, "%j", coalesce("%d", "%j")
    from "%w1"
  ) "%x"
), "%jb" as (insert into "public"."service_activity" (id, action, collection, item, "user", ip, user_agent, origin) select id, action, collection, item, "user", ip, user_agent, origin from "%ja", "%jd"), "%jc" as (insert into "public"."service_revisions" (activity, collection, item, data, delta) select id, collection, item, data, delta from "%ja" where data is not null)
select json_build_array(null, (
  select max("id")::text
  from "%w1"
))::text, (
  select "public".service_refuse('0 0 ' || "%i".n)
  from "%i0" "%i"
  where (("%i"."c0" is not null and "%i"."c0" <> '')) is not true
  order by "%i".n
  limit 1
),
case
when (
  select count(*)
  from "%w0"
) < (
  select count(*)
  from "%i0"
) then "public".service_raise('missing')
end;

-- $1 = '8'
select '{"data":' || "%r1"."%j" || '}'
from (
  select '{"id":' || coalesce(textin(int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where "%t1"."id" = $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
