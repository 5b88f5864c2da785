-- PATCH /items/articles/2?fields=id {"author":{"id":70,"name":"Seventy"},"comments":[4,{"id":80,"body":"Eighty"}]}

begin;

-- $1 = '[{"k":"2","c0":"70"}]'
-- $2 = '[{"k":"70","c0":"Seventy"}]'
-- $3 = '[{"k":"4","c0":"2"}]'
-- $4 = '[{"k":"80","c0":"Eighty","c1":"2"}]'
-- $5 = '[{"parent":"2","child":null}]'
-- $6 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($1::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."int4"))
    with ordinality as "%x" (k, "c0", n)
  order by "%x".n
), "%i1" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($2::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."varchar"))
    with ordinality as "%x" (k, "c0", n)
  order by "%x".n
), "%i2" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($3::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."int4"))
    with ordinality as "%x" (k, "c0", n)
  order by "%x".n
), "%i3" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, "%x".k as k, "%x"."c0", "%x"."c1"
  from rows from (pg_catalog.json_to_recordset($4::json) as (k "pg_catalog"."int4", "c0" "pg_catalog"."text",
    "c1" "pg_catalog"."int4"))
    with ordinality as "%x" (k, "c0", "c1", n)
  order by "%x".n
), "%x0" as materialized (
  select "%x".parent, "%x".child
  from pg_catalog.json_to_recordset($5::json) as "%x" (parent "pg_catalog"."int4", child "pg_catalog"."int4")
), "%w0" as (
  update "public"."articles" "%t"
  set "author" = "%i"."c0"
  from (
    select "%s".*
    from "%i0" "%s"
    join "public"."articles" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  returning "%t"."id",
    (((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"title":'
      || coalesce(pg_catalog.to_json("%t"."title")::text, 'null'))
      || (',"slug":' || coalesce(pg_catalog.to_json("%t"."slug")::text, 'null')))
      || (',"body":' || coalesce(pg_catalog.to_json("%t"."body")::text, 'null') || ',"status":'
        || coalesce(pg_catalog.to_json("%t"."status")::text, 'null')))
      || (((',"views":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."views")), 'null')
        || coalesce(',"rating":"' || pg_catalog.textin(pg_catalog.numeric_out("%t"."rating")) || '"', ',"rating":null'))
        || (coalesce(',"published_at":"' || case when pg_catalog.isfinite("%t"."published_at")
          then pg_catalog.to_char("%t"."published_at" at time zone 'UTC', case
            when "%t"."published_at" operator(pg_catalog.=) "%t"."published_at"::timestamptz(3)
            then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"' else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
          || case when "%t"."published_at" operator(pg_catalog.<) '0001-01-01 00:00:00+00'::timestamptz then ' BC'
          else '' end else "%t"."published_at"::text end || '"', ',"published_at":null')))
        || (',"meta":' || coalesce(pg_catalog.textin(pg_catalog.json_out("%t"."meta")), 'null') || ',"author":'
          || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null') || '}')))::json as "%j",
    ('{"author":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null') || '}')::json as "%d"
), "%w1" as (
  update "public"."authors" "%t"
  set "name" = "%i"."c0"
  from (
    select "%s".*
    from "%i1" "%s"
    join "public"."authors" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  returning "%t"."id",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null'))
      || (',"email":' || coalesce(pg_catalog.to_json("%t"."email")::text, 'null')))
      || ((',"bio":' || coalesce(pg_catalog.to_json("%t"."bio")::text, 'null') || ',"born":'
        || coalesce(pg_catalog.to_json("%t"."born")::text, 'null'))
        || (',"score":' || coalesce(pg_catalog.to_json("%t"."score")::text, 'null') || '}')))::json as "%j",
    ('{"name":' || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%d"
), "%m1" as (
  insert into "public"."authors" as "%t" ("id", "name") overriding system value
  select "%i".k, "%i"."c0"
  from "%i1" "%i"
  where not exists (
    select
    from "public"."authors" "%e"
    where "%e"."id" operator(pg_catalog.=) "%i".k
  )
  order by "%i".n
  returning "%t"."id",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null'))
      || (',"email":' || coalesce(pg_catalog.to_json("%t"."email")::text, 'null')))
      || ((',"bio":' || coalesce(pg_catalog.to_json("%t"."bio")::text, 'null') || ',"born":'
        || coalesce(pg_catalog.to_json("%t"."born")::text, 'null'))
        || (',"score":' || coalesce(pg_catalog.to_json("%t"."score")::text, 'null') || '}')))::json as "%j",
    null::json as "%d"
), "%w2" as (
  update "public"."comments" "%t"
  set "article" = "%i"."c0"
  from (
    select "%s".*
    from "%i2" "%s"
    join "public"."comments" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  returning "%t"."id",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"body":'
      || coalesce(pg_catalog.to_json("%t"."body")::text, 'null'))
      || (coalesce(',"created":"' || case when pg_catalog.isfinite("%t"."created")
        then pg_catalog.to_char("%t"."created" at time zone 'UTC', case
          when "%t"."created" operator(pg_catalog.=) "%t"."created"::timestamptz(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
          else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
        || case when "%t"."created" operator(pg_catalog.<) '0001-01-01 00:00:00+00'::timestamptz then ' BC' else '' end
        else "%t"."created"::text end || '"', ',"created":null')))
      || (',"article":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."article")), 'null') || ',"author":'
        || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null') || '}'))::json as "%j",
    ('{"article":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."article")), 'null') || '}')::json as "%d"
), "%w3" as (
  update "public"."comments" "%t"
  set "body" = "%i"."c0", "article" = "%i"."c1"
  from (
    select "%s".*
    from "%i3" "%s"
    join "public"."comments" "%l" on "%l"."id" operator(pg_catalog.=) "%s".k
    order by "%s".k for no key update of "%l"
  ) "%i"
  where "%t"."id" operator(pg_catalog.=) "%i".k
  returning "%t"."id",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"body":'
      || coalesce(pg_catalog.to_json("%t"."body")::text, 'null'))
      || (coalesce(',"created":"' || case when pg_catalog.isfinite("%t"."created")
        then pg_catalog.to_char("%t"."created" at time zone 'UTC', case
          when "%t"."created" operator(pg_catalog.=) "%t"."created"::timestamptz(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
          else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
        || case when "%t"."created" operator(pg_catalog.<) '0001-01-01 00:00:00+00'::timestamptz then ' BC' else '' end
        else "%t"."created"::text end || '"', ',"created":null')))
      || (',"article":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."article")), 'null') || ',"author":'
        || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null') || '}'))::json as "%j",
    ('{"body":' || coalesce(pg_catalog.to_json("%t"."body")::text, 'null') || ',"article":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."article")), 'null') || '}')::json as "%d"
), "%m3" as (
  insert into "public"."comments" as "%t" ("id", "body", "article") overriding system value
  select "%i".k, "%i"."c0", "%i"."c1"
  from "%i3" "%i"
  where not exists (
    select
    from "public"."comments" "%e"
    where "%e"."id" operator(pg_catalog.=) "%i".k
  )
  order by "%i".n
  returning "%t"."id",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"body":'
      || coalesce(pg_catalog.to_json("%t"."body")::text, 'null'))
      || (coalesce(',"created":"' || case when pg_catalog.isfinite("%t"."created")
        then pg_catalog.to_char("%t"."created" at time zone 'UTC', case
          when "%t"."created" operator(pg_catalog.=) "%t"."created"::timestamptz(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
          else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
        || case when "%t"."created" operator(pg_catalog.<) '0001-01-01 00:00:00+00'::timestamptz then ' BC' else '' end
        else "%t"."created"::text end || '"', ',"created":null')))
      || (',"article":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."article")), 'null') || ',"author":'
        || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."author")), 'null') || '}'))::json as "%j",
    null::json as "%d"
), "%u0" as (
  update "public"."comments" "%t"
  set "article" =
  case
  when exists (
    select
    from "%x0" "%y"
    where "%y".parent operator(pg_catalog.=) "%t"."article"
    and ("%y".child is null or "%y".child operator(pg_catalog.=) "%t"."id")
  ) then null
  else "%t"."article"
  end
  where "%t"."id" operator(pg_catalog.=) any (
    select "%c"."id"
    from "public"."comments" "%c"
    where "%c"."article" operator(pg_catalog.=) any (
      select parent
      from "%x0"
    )
  )
  and (exists (
    select
    from "%x0" "%y"
    where "%y".parent operator(pg_catalog.=) "%t"."article"
    and ("%y".child is null or "%y".child operator(pg_catalog.=) "%t"."id")
  ))
  and not exists (
    select
    from "%i2" "%k"
    where "%k".k operator(pg_catalog.=) "%t"."id"
  )
  and not exists (
    select
    from "%i3" "%k"
    where "%k".k operator(pg_catalog.=) "%t"."id"
  )
  returning "%t"."id"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($6::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'update', 'articles', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
    union all
    select 'update', 'authors', "id"::text, "%j", coalesce("%d", "%j")
    from "%w1"
    union all
    select 'create', 'authors', "id"::text, "%j", coalesce("%d", "%j")
    from "%m1"
    union all
    select 'update', 'comments', "id"::text, "%j", coalesce("%d", "%j")
    from "%w2"
    union all
    select 'update', 'comments', "id"::text, "%j", coalesce("%d", "%j")
    from "%w3"
    union all
    select 'create', 'comments', "id"::text, "%j", coalesce("%d", "%j")
    from "%m3"
    union all
    select 'update', 'comments', "id"::text, null::json, null::json
    from "%u0"
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
select pg_catalog.json_build_array(null, (
  select pg_catalog.max("id")::text
  from "%m1"
), null, (
  select pg_catalog.max("id")::text
  from "%m3"
))::text,
case
when (
  select count(*)
  from "%w0"
) operator(pg_catalog.<) (
  select count(*)
  from "%i0"
) then "public".service_raise('missing')
end,
case
when (
  select count(*)
  from "%w2"
) operator(pg_catalog.<) (
  select count(*)
  from "%i2"
) then "public".service_raise('missing')
end;

-- $1 = 'public.authors_id_seq'
-- $2 = '70'
select pg_catalog.setval(locked.oid::regclass, $2::int8)
from ( select class.oid,
  pg_catalog.pg_advisory_xact_lock(class.oid::int8) is not null as taken from pg_catalog.pg_class class join pg_catalog.pg_namespace namespace
  on namespace.oid operator(pg_catalog.=) class.relnamespace where namespace.nspname operator(pg_catalog.=) (pg_catalog.parse_ident($1::text))[1]::name
  and class.relname operator(pg_catalog.=) (pg_catalog.parse_ident($1::text))[2]::name offset 0 ) locked
join pg_catalog.pg_sequence on seqrelid operator(pg_catalog.=) locked.oid
where
case
when locked.taken
and pg_catalog.has_sequence_privilege(locked.oid, 'update')
and pg_catalog.has_sequence_privilege(locked.oid, 'usage') then seqincrement operator(pg_catalog.>) 0
and $2::int8 operator(pg_catalog.<) seqmax
and $2::int8 operator(pg_catalog.>) coalesce(pg_catalog.pg_sequence_last_value(locked.oid::regclass), 0)
else false
end;

-- $1 = 'public.comments_id_seq'
-- $2 = '80'
select pg_catalog.setval(locked.oid::regclass, $2::int8)
from ( select class.oid,
  pg_catalog.pg_advisory_xact_lock(class.oid::int8) is not null as taken from pg_catalog.pg_class class join pg_catalog.pg_namespace namespace
  on namespace.oid operator(pg_catalog.=) class.relnamespace where namespace.nspname operator(pg_catalog.=) (pg_catalog.parse_ident($1::text))[1]::name
  and class.relname operator(pg_catalog.=) (pg_catalog.parse_ident($1::text))[2]::name offset 0 ) locked
join pg_catalog.pg_sequence on seqrelid operator(pg_catalog.=) locked.oid
where
case
when locked.taken
and pg_catalog.has_sequence_privilege(locked.oid, 'update')
and pg_catalog.has_sequence_privilege(locked.oid, 'usage') then seqincrement operator(pg_catalog.>) 0
and $2::int8 operator(pg_catalog.<) seqmax
and $2::int8 operator(pg_catalog.>) coalesce(pg_catalog.pg_sequence_last_value(locked.oid::regclass), 0)
else false
end;

-- $1 = '2'
select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j", "%p1"."%e"
  from (
    select "%t1"."id", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."articles" "%t1"
    where "%t1"."id" operator(pg_catalog.=) $1::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";

commit;
