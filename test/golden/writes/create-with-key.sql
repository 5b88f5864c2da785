-- POST /items/tags?fields=id {"id":50,"name":"fifty"}

begin;

-- $1 = '[{"k":"50","c0":"fifty"}]'
-- $2 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
-- $3 = '{0}'
with "%a0" as materialized (
  select (
    select pg_catalog.max(pg_catalog.nextval('public.tags_id_seq'::regclass))
    from pg_catalog.generate_series(1, "%h".k operator(pg_catalog.-) "%l".v)
  )
  from (
    select pg_catalog.max(k)::int8 as k
    from (
      select k
      from pg_catalog.json_to_recordset($1::json) as "%x" (k "pg_catalog"."int4")
    ) "%g"
  ) "%h", (
    select coalesce(pg_catalog.pg_sequence_last_value('public.tags_id_seq'::regclass), 0) as v
  ) "%l"
  where "%h".k operator(pg_catalog.-) "%l".v operator(pg_catalog.>=) 1
  and "%h".k operator(pg_catalog.-) "%l".v operator(pg_catalog.<=) 10000
), "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n,
  case
  when "%x".k is null then (nextval('tags_id_seq'::regclass))
  else "%x".k
  end as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."varchar"))
    with ordinality as "%x" (k, "c0", n)
  cross join (
    select count(*)
    from "%a0"
  ) "%a"
  order by "%x".n
), "%w0" as (
  insert into "public"."tags" as "%t" ("id", "name") overriding system value
  select "%i".k, "%i"."c0"
  from "%i0" "%i"
  order by "%i".n
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($2::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'create', 'tags', "id"::text, "%j", coalesce("%d", "%j")
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
select pg_catalog.json_build_array((
  select pg_catalog.max("id")::text
  from "%w0"
))::text, pg_catalog.set_config('lateral.keys', (
  select pg_catalog.array_agg("%i".k::text order by "%o".place)::text
  from pg_catalog.unnest($3::int4[]) with ordinality as "%o" (n, place)
  join "%i0" "%i" on "%i".n operator(pg_catalog.=) "%o".n
), true);

-- $1 = 'public.tags_id_seq'
-- $2 = '50'
select pg_catalog.setval($1::regclass, $2::int8)
from (
  select pg_catalog.pg_advisory_xact_lock($1::regclass::oid::int8)
) as locked, pg_catalog.pg_sequence
where seqrelid operator(pg_catalog.=) $1::regclass
and seqincrement operator(pg_catalog.>) 0
and $2::int8 operator(pg_catalog.<) seqmax
and $2::int8 operator(pg_catalog.>) coalesce(pg_catalog.pg_sequence_last_value($1::regclass), 0);

select '{"data":' || "%r1"."%j" || '}'
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."tags" "%t1"
    where "%t1"."id" operator(pg_catalog.=) (
      select (pg_catalog.current_setting('lateral.keys')::"pg_catalog"."int4"[])[1]
    )::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";

commit;
