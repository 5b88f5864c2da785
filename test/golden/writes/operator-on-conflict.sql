-- POST /items/licences?fields=id&on_conflict=author {"author":1,"number":{"_append":"+"}}

-- $1 = '[{"c0":"1","c1":"+"}]'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
-- $3 = '{0}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n,
  case
  when coalesce("%e"."id", "%x".k) is null then (nextval('licences_id_seq'::regclass))
  else coalesce("%e"."id", "%x".k)
  end as k, "%x"."c0", "%x"."c1", "%e"."id" is not null as f,
  case
  when "%x"."c0" is not null
  and count(*) over (partition by "%x"."c0") operator(pg_catalog.>) 1
    then "public".service_refuse('0 twice ' || ("%x".n operator(pg_catalog.-) 1)::text)
  end as u, not ("%e"."id" operator(pg_catalog.=) "%x".k) as o
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."int4",
    "c1" "pg_catalog"."text"))
    with ordinality as "%x" (k, "c0", "c1", n)
  left join "public"."licences" "%e" on "%e"."author" operator(pg_catalog.=) "%x"."c0"
  order by "%x".n
), "%w0" as (
  update "public"."licences" "%t"
  set "number" = coalesce("%t"."number"::text, '') || "%i"."c1"::text
  from (
    select "%s".*
    from "%i0" "%s"
    join "public"."licences" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    and "%s".f
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  and "%i".f
  returning "%t"."id", "%t"."number" as "%g1", "%i".n as "%n",
    (('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"author":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null'))
      || (',"number":' || coalesce(pg_catalog.to_json("%t"."number")::text, 'null') || '}'))::json as "%j",
    ('{"number":' || coalesce(pg_catalog.to_json("%t"."number")::text, 'null') || '}')::json as "%d"
), "%m0" as (
  insert into "public"."licences" as "%t" ("id", "author", "number") overriding system value
  select "%i".k, "%i"."c0", coalesce((null)::"pg_catalog"."text"::text, '') || "%i"."c1"::text
  from "%i0" "%i"
  where not "%i".f
  order by "%i".n
  returning "%t"."id", "%t"."number" as "%g1",
    (('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"author":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null'))
      || (',"number":' || coalesce(pg_catalog.to_json("%t"."number")::text, 'null') || '}'))::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'licences', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
    union all
    select 'create', 'licences', "id"::text, "%j", coalesce("%d", "%j")
    from "%m0"
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
))::text, pg_catalog.set_config('lateral.keys', (
  select pg_catalog.array_agg("%i".k::text order by "%o".place)::text
  from pg_catalog.unnest($3::int4[]) with ordinality as "%o" (n, place)
  join "%i0" "%i" on "%i".n operator(pg_catalog.=) "%o".n
), true), (
  select "public".service_refuse('0 key ' || ("%i".n)::text)
  from "%i0" "%i"
  where "%i".o
  and "%i".k operator(pg_catalog.=) any (
    select "id"
    from "%w0"
  )
  order by "%i".n
  limit 1
);

select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."id", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."licences" "%t1"
    where "%t1"."id" operator(pg_catalog.=) (
      select (pg_catalog.current_setting('lateral.keys')::"pg_catalog"."int4"[])[1]
    )::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
