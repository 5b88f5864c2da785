-- PATCH /items/films/1?fields=actors {"actors":[{"actor_id":1},{"actor_id":3}]}

-- $1 = '[{"k":"1"}]'
-- $2 = '[{"k_0":"1","k_1":"1"},{"k_0":"3","k_1":"1"}]'
-- $3 = '[{"parent":"1","child":null}]'
-- $4 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4")) with ordinality as "%x" (k, n)
  order by "%x".n
), "%i1" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x"."k_0" as "k_0", "%x"."k_1" as "k_1"
  from rows from (pg_catalog.json_to_recordset($2::json) as ("k_0" "pg_catalog"."int4", "k_1" "pg_catalog"."int4"))
    with ordinality as "%x" ("k_0", "k_1", n)
  order by "%x".n
), "%x0" as materialized (
  select "%x".parent, "%x"."child_0", "%x"."child_1"
  from pg_catalog.json_to_recordset($3::json) as "%x" (parent "pg_catalog"."int4", "child_0" "pg_catalog"."int4",
    "child_1" "pg_catalog"."int4")
), "%w0" as (
  select "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"title":'
      || coalesce(pg_catalog.to_json("%t"."title")::text, 'null') || '}')::json as "%j",
    '{}'::json as "%d"
  from "%i0" "%i"
  join "public"."films" "%t" on "%t"."id" operator(pg_catalog.=) "%i".k
  order by "%i".k for no key update of "%t"
), "%w1" as (
  select "%t"."actor_id", "%t"."film_id"
  from "%i1" "%i"
  join "public"."film_actor" "%t" on "%t"."actor_id" operator(pg_catalog.=) "%i"."k_0"
  and "%t"."film_id" operator(pg_catalog.=) "%i"."k_1"
  and not (exists (
    select
    from "%x0" "%y"
    where "%y".parent operator(pg_catalog.=) "%t"."film_id"
    and ("%y"."child_0" is null or "%y"."child_0" operator(pg_catalog.=) "%t"."actor_id"
      and "%y"."child_1" operator(pg_catalog.=) "%t"."film_id")
  ) and false)
  order by "%i"."k_0", "%i"."k_1" for no key update of "%t"
), "%m1" as (
  insert into "public"."film_actor" as "%t" ("actor_id", "film_id") overriding system value
  select "%i"."k_0", "%i"."k_1"
  from "%i1" "%i"
  where not exists (
    select
    from "public"."film_actor" "%e"
    where "%e"."actor_id" operator(pg_catalog.=) "%i"."k_0"
    and "%e"."film_id" operator(pg_catalog.=) "%i"."k_1"
  )
  order by "%i".n
  returning "%t"."actor_id", "%t"."film_id",
    (('{"actor_id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."actor_id")), 'null') || ',"film_id":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."film_id")), 'null'))
      || (coalesce(',"updated":"' || case when pg_catalog.isfinite("%t"."updated")
        then pg_catalog.to_char("%t"."updated" at time zone 'UTC', case
          when "%t"."updated" operator(pg_catalog.=) "%t"."updated"::timestamptz(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
          else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
        || case when "%t"."updated" operator(pg_catalog.<) '0001-01-01 00:00:00+00'::timestamptz then ' BC' else '' end
        else "%t"."updated"::text end || '"', ',"updated":null')
        || '}'))::json as "%j",
    null::json as "%d"
), "%d0" as (
  delete from "public"."film_actor" "%t"
  where ("%t"."actor_id", "%t"."film_id") operator(pg_catalog.=) any (
    select "%c"."actor_id", "%c"."film_id"
    from "public"."film_actor" "%c"
    where "%c"."film_id" operator(pg_catalog.=) any (
      select parent
      from "%x0"
    )
  )
  and (exists (
    select
    from "%x0" "%y"
    where "%y".parent operator(pg_catalog.=) "%t"."film_id"
    and ("%y"."child_0" is null or "%y"."child_0" operator(pg_catalog.=) "%t"."actor_id"
      and "%y"."child_1" operator(pg_catalog.=) "%t"."film_id")
  ) and not exists (
    select
    from "%i1" "%k"
    where "%k"."k_0" operator(pg_catalog.=) "%t"."actor_id"
    and "%k"."k_1" operator(pg_catalog.=) "%t"."film_id"
  ))
  returning "%t"."actor_id", "%t"."film_id"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($4::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'films', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
    union all
    select 'create', 'film_actor', pg_catalog.textin(pg_catalog.int4out("actor_id")) || '~'
      || pg_catalog.textin(pg_catalog.int4out("film_id")), "%j", coalesce("%d", "%j")
    from "%m1"
    union all
    select 'delete', 'film_actor', pg_catalog.textin(pg_catalog.int4out("actor_id")) || '~'
      || pg_catalog.textin(pg_catalog.int4out("film_id")), null::json, null::json
    from "%d0"
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
select pg_catalog.json_build_array(null, null)::text,
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
select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"actors":' || ("%l3"."%j") || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."id", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."films" "%t1"
    where "%t1"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select coalesce('"' || pg_catalog.textin(pg_catalog.int4out("%p2"."actor_id")) || '~'
        || pg_catalog.textin(pg_catalog.int4out("%p2"."film_id")) || '"', 'null') as "%j"
      from (
        select "%t2"."actor_id", "%t2"."film_id"
        from "public"."film_actor" "%t2"
        where "%t2"."film_id" operator(pg_catalog.=) "%p1"."id"
        order by "%t2"."actor_id", "%t2"."film_id"
        limit 100
      ) "%p2"
      order by "%p2"."actor_id", "%p2"."film_id"
    ) "%r2"
  ) "%l3" on true
) "%r1";
