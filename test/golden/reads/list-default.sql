-- /articles
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select ((('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"title":'
    || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null'))
    || (',"slug":' || coalesce(pg_catalog.to_json("%p1"."slug")::text, 'null') || ',"body":'
      || coalesce(pg_catalog.to_json("%p1"."body")::text, 'null')))
    || ((',"status":' || coalesce(pg_catalog.to_json("%p1"."status")::text, 'null') || ',"views":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."views")), 'null'))
      || (coalesce(',"rating":"' || pg_catalog.textin(pg_catalog.numeric_out("%p1"."rating")) || '"',
        ',"rating":null'))))
    || (((coalesce(',"published_at":"' || case when pg_catalog.isfinite("%p1"."published_at")
      then pg_catalog.to_char("%p1"."published_at" at time zone 'UTC', case
        when "%p1"."published_at" operator(pg_catalog.=) "%p1"."published_at"::timestamptz(3)
        then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"' else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
      || case when "%p1"."published_at" operator(pg_catalog.<) '0001-01-01 00:00:00+00'::timestamptz then ' BC'
      else '' end else "%p1"."published_at"::text end || '"', ',"published_at":null')
      || ',"meta":' || coalesce(pg_catalog.textin(pg_catalog.json_out("%p1"."meta")), 'null'))
      || (',"author":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."author")), 'null')))
      || ((',"comments":' || ("%l3"."%j") || ',"tags":' || ("%l5"."%j"))
        || (',"blocks":' || ("%l7"."%j") || '}'))) as "%j"
  from (
    select "%t1"."id", "%t1"."title", "%t1"."slug", "%t1"."body", "%t1"."status", "%t1"."views", "%t1"."rating",
      "%t1"."published_at", "%t1"."meta", "%t1"."author"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select coalesce(pg_catalog.textin(pg_catalog.int4out("%p2"."id")), 'null') as "%j"
      from (
        select "%t2"."id"
        from "public"."comments" "%t2"
        where "%t2"."article" operator(pg_catalog.=) "%p1"."id"
        order by "%t2"."id"
        limit 100
      ) "%p2"
      order by "%p2"."id"
    ) "%r2"
  ) "%l3" on true
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r4"."%j", ',') || ']', '[]') as "%j"
    from (
      select coalesce(pg_catalog.textin(pg_catalog.int4out("%p4"."id")), 'null') as "%j"
      from (
        select "%t4"."id", "%t4"."sort"
        from "public"."articles_tags" "%t4"
        where "%t4"."articles_id" operator(pg_catalog.=) "%p1"."id"
        order by "%t4"."sort", "%t4"."id"
        limit 100
      ) "%p4"
      order by "%p4"."sort", "%p4"."id"
    ) "%r4"
  ) "%l5" on true
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r6"."%j", ',') || ']', '[]') as "%j"
    from (
      select coalesce(pg_catalog.textin(pg_catalog.int4out("%p6"."id")), 'null') as "%j"
      from (
        select "%t6"."id", "%t6"."sort"
        from "public"."articles_blocks" "%t6"
        where "%t6"."articles_id" operator(pg_catalog.=) "%p1"."id"
        order by "%t6"."sort", "%t6"."id"
        limit 100
      ) "%p6"
      order by "%p6"."sort", "%p6"."id"
    ) "%r6"
  ) "%l7" on true
  order by "%p1"."id"
) "%r1"
