-- POST /items/articles?fields=id,author.name,comments.body,tags.tags_id.name {"title":"Nested",
--   "author":{"name":"Somebody New"},"comments":[{"body":"First!","author":2}],"tags":[{"tags_id":1},
--   {"tags_id":{"name":"fresh"}}],"blocks":[{"collection":"block_text","item":{"text":"Intro"}}]}

-- $1 = '[{"c0":"Nested","r1_0":0}]'
-- $2 = '[{"c0":"Somebody New"}]'
-- $3 = '[{"c0":"First!","r1_0":0,"c2":"2"}]'
-- $4 = '[{"r0_0":0,"c1":"1"},{"r0_0":0,"r1_0":0}]'
-- $5 = '[{"c0":"fresh"}]'
-- $6 = '[{"r0_0":0,"r1_0":0,"c2":"block_text"}]'
-- $7 = '[{"c0":"Intro"}]'
-- $8 = '{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}'
-- $9 = '{0}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('articles_id_seq'::regclass)) as k, "%x"."c0", "%x"."r1_0"
  from rows from (pg_catalog.json_to_recordset($1::json) as ("c0" "pg_catalog"."varchar", "r1_0" int4))
    with ordinality as "%x" ("c0", "r1_0", n)
  order by "%x".n
), "%i1" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('authors_id_seq'::regclass)) as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($2::json) as ("c0" "pg_catalog"."varchar"))
    with ordinality as "%x" ("c0", n)
  order by "%x".n
), "%i2" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('comments_id_seq'::regclass)) as k, "%x"."c0", "%x"."r1_0",
    "%x"."c2"
  from rows from (pg_catalog.json_to_recordset($3::json) as ("c0" "pg_catalog"."text", "r1_0" int4,
    "c2" "pg_catalog"."int4"))
    with ordinality as "%x" ("c0", "r1_0", "c2", n)
  order by "%x".n
), "%i3" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('articles_tags_id_seq'::regclass)) as k, "%x"."r0_0",
    "%x"."c1", "%x"."r1_0"
  from rows from (pg_catalog.json_to_recordset($4::json) as ("r0_0" int4, "c1" "pg_catalog"."int4", "r1_0" int4))
    with ordinality as "%x" ("r0_0", "c1", "r1_0", n)
  order by "%x".n
), "%i4" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('tags_id_seq'::regclass)) as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($5::json) as ("c0" "pg_catalog"."varchar"))
    with ordinality as "%x" ("c0", n)
  order by "%x".n
), "%i5" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('articles_blocks_id_seq'::regclass)) as k, "%x"."r0_0",
    "%x"."r1_0", "%x"."c2"
  from rows from (pg_catalog.json_to_recordset($6::json) as ("r0_0" int4, "r1_0" int4, "c2" "pg_catalog"."varchar"))
    with ordinality as "%x" ("r0_0", "r1_0", "c2", n)
  order by "%x".n
), "%i6" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('block_text_id_seq'::regclass)) as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($7::json) as ("c0" "pg_catalog"."text"))
    with ordinality as "%x" ("c0", n)
  order by "%x".n
), "%w1" as (
  insert into "public"."authors" as "%t" ("id", "name") overriding system value
  select "%i".k, "%i"."c0"
  from "%i1" "%i"
  order by "%i".n
  returning "%t"."id",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null'))
      || (',"email":' || coalesce(pg_catalog.to_json("%t"."email")::text, 'null')))
      || ((',"bio":' || coalesce(pg_catalog.to_json("%t"."bio")::text, 'null') || ',"born":'
        || coalesce(pg_catalog.to_json("%t"."born")::text, 'null'))
        || (',"score":' || coalesce(pg_catalog.to_json("%t"."score")::text, 'null') || '}')))::json as "%j",
    null::json as "%d"
), "%w0" as (
  insert into "public"."articles" as "%t" ("id", "title", "author") overriding system value
  select "%i".k, "%i"."c0", "%r1_0".k::"pg_catalog"."int4"
  from "%i0" "%i"
  left join "%i1" "%r1_0" on "%r1_0".n operator(pg_catalog.=) "%i"."r1_0"
  cross join (
    select count(*)
    from "%w1"
  ) "%w1"
  order by "%i".n
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
    null::json as "%d"
), "%w2" as (
  insert into "public"."comments" as "%t" ("id", "body", "article", "author") overriding system value
  select "%i".k, "%i"."c0", "%r1_0".k::"pg_catalog"."int4", "%i"."c2"
  from "%i2" "%i"
  left join "%i0" "%r1_0" on "%r1_0".n operator(pg_catalog.=) "%i"."r1_0"
  cross join (
    select count(*)
    from "%w0"
  ) "%w0"
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
), "%w4" as (
  insert into "public"."tags" as "%t" ("id", "name") overriding system value
  select "%i".k, "%i"."c0"
  from "%i4" "%i"
  order by "%i".n
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"name":'
      || coalesce(pg_catalog.to_json("%t"."name")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%w3" as (
  insert into "public"."articles_tags" as "%t" ("id", "articles_id", "tags_id") overriding system value
  select "%i".k, "%r0_0".k::"pg_catalog"."int4", coalesce("%i"."c1", "%r1_0".k::"pg_catalog"."int4")
  from "%i3" "%i"
  left join "%i0" "%r0_0" on "%r0_0".n operator(pg_catalog.=) "%i"."r0_0"
  left join "%i4" "%r1_0" on "%r1_0".n operator(pg_catalog.=) "%i"."r1_0"
  cross join (
    select count(*)
    from "%w0"
  ) "%w0"
  cross join (
    select count(*)
    from "%w4"
  ) "%w4"
  order by "%i".n
  returning "%t"."id",
    (('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"articles_id":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."articles_id")), 'null'))
      || (',"tags_id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."tags_id")), 'null') || ',"sort":'
        || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."sort")), 'null') || '}'))::json as "%j",
    null::json as "%d"
), "%w6" as (
  insert into "public"."block_text" as "%t" ("id", "text") overriding system value
  select "%i".k, "%i"."c0"
  from "%i6" "%i"
  order by "%i".n
  returning "%t"."id",
    ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"text":'
      || coalesce(pg_catalog.to_json("%t"."text")::text, 'null') || '}')::json as "%j",
    null::json as "%d"
), "%w5" as (
  insert into "public"."articles_blocks" as "%t" ("id", "articles_id", "item", "collection") overriding system value
  select "%i".k, "%r0_0".k::"pg_catalog"."int4", "%r1_0".k::"pg_catalog"."varchar", "%i"."c2"
  from "%i5" "%i"
  left join "%i0" "%r0_0" on "%r0_0".n operator(pg_catalog.=) "%i"."r0_0"
  left join "%i6" "%r1_0" on "%r1_0".n operator(pg_catalog.=) "%i"."r1_0"
  cross join (
    select count(*)
    from "%w0"
  ) "%w0"
  cross join (
    select count(*)
    from "%w6"
  ) "%w6"
  order by "%i".n
  returning "%t"."id",
    ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."id")), 'null') || ',"articles_id":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."articles_id")), 'null'))
      || (',"item":' || coalesce(pg_catalog.to_json("%t"."item")::text, 'null')))
      || (',"collection":' || coalesce(pg_catalog.to_json("%t"."collection")::text, 'null') || ',"sort":'
        || coalesce(pg_catalog.textin(pg_catalog.int4out("%t"."sort")), 'null') || '}'))::json as "%j",
    null::json as "%d"
), "%jd" as materialized (
  select *
  from pg_catalog.json_to_record($8::json) as "%x" ("user" uuid, ip text, user_agent text, origin text)
), "%ja" (id, action, collection, item, data, delta) as materialized (
  select pg_catalog.nextval('public.service_activity_id_seq'::regclass), "%x".*
  from (
    select 'create', 'articles', "id"::text, "%j", coalesce("%d", "%j")
    from "%w0"
    union all
    select 'create', 'authors', "id"::text, "%j", coalesce("%d", "%j")
    from "%w1"
    union all
    select 'create', 'comments', "id"::text, "%j", coalesce("%d", "%j")
    from "%w2"
    union all
    select 'create', 'articles_tags', "id"::text, "%j", coalesce("%d", "%j")
    from "%w3"
    union all
    select 'create', 'tags', "id"::text, "%j", coalesce("%d", "%j")
    from "%w4"
    union all
    select 'create', 'articles_blocks', "id"::text, "%j", coalesce("%d", "%j")
    from "%w5"
    union all
    select 'create', 'block_text', "id"::text, "%j", coalesce("%d", "%j")
    from "%w6"
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
), (
  select pg_catalog.max("id")::text
  from "%w1"
), (
  select pg_catalog.max("id")::text
  from "%w2"
), (
  select pg_catalog.max("id")::text
  from "%w3"
), (
  select pg_catalog.max("id")::text
  from "%w4"
), (
  select pg_catalog.max("id")::text
  from "%w5"
), (
  select pg_catalog.max("id")::text
  from "%w6"
))::text, pg_catalog.set_config('lateral.keys', (
  select pg_catalog.array_agg("%i".k::text order by "%o".place)::text
  from pg_catalog.unnest($9::int4[]) with ordinality as "%o" (n, place)
  join "%i0" "%i" on "%i".n operator(pg_catalog.=) "%o".n
), true);

select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
from (
  select ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"author":'
    || coalesce("%l3"."%j", 'null'))
    || (',"comments":' || ("%l5"."%j") || ',"tags":' || ("%l9"."%j") || '}') as "%j", "%p1"."%e"
  from (
    select "%t1"."id", "%t1"."author", pg_catalog.textin(pg_catalog.xidout("%t1".xmin)) as "%e"
    from "public"."articles" "%t1"
    where "%t1"."id" operator(pg_catalog.=) (
      select (pg_catalog.current_setting('lateral.keys')::"pg_catalog"."int4"[])[1]
    )::"pg_catalog"."int4"
    limit 1
  ) "%p1"
  left join lateral (
    select '{"name":' || coalesce(pg_catalog.to_json("%p2"."name")::text, 'null') || '}' as "%j"
    from (
      select "%t2"."name"
      from "public"."authors" "%t2"
      where "%t2"."id" operator(pg_catalog.=) "%p1"."author"
      limit 1
    ) "%p2"
    offset 0
  ) "%l3" on true
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r4"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"body":' || coalesce(pg_catalog.to_json("%p4"."body")::text, 'null') || '}' as "%j"
      from (
        select "%t4"."body", "%t4"."id"
        from "public"."comments" "%t4"
        where "%t4"."article" operator(pg_catalog.=) "%p1"."id"
        order by "%t4"."id"
        limit 100
      ) "%p4"
      order by "%p4"."id"
    ) "%r4"
  ) "%l5" on true
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r6"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"tags_id":' || coalesce("%l8"."%j", 'null') || '}' as "%j"
      from (
        select "%t6"."tags_id", "%t6"."sort", "%t6"."id"
        from "public"."articles_tags" "%t6"
        where "%t6"."articles_id" operator(pg_catalog.=) "%p1"."id"
        order by "%t6"."sort", "%t6"."id"
        limit 100
      ) "%p6"
      left join lateral (
        select '{"name":' || coalesce(pg_catalog.to_json("%p7"."name")::text, 'null') || '}' as "%j"
        from (
          select "%t7"."name"
          from "public"."tags" "%t7"
          where "%t7"."id" operator(pg_catalog.=) "%p6"."tags_id"
          limit 1
        ) "%p7"
        offset 0
      ) "%l8" on true
      order by "%p6"."sort", "%p6"."id"
    ) "%r6"
  ) "%l9" on true
) "%r1";
