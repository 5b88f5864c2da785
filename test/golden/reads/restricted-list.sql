-- /articles?limit=5&meta=*
-- $1 = 'published'
-- $2 = '{"00000000-0000-0000-0000-000000000001"}'
-- $3 = 'draft'
select '{"meta":{' || '"total_count":' || (
  select count(*)
  from "public"."articles" "%t8"
  left join "public"."authors" "%t9" on "%t9"."id" operator(pg_catalog.=) "%t8"."author"
  where ("%t8"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
    or "%t9"."name" operator(pg_catalog.=) any(array(
    select "%t10"."first_name"::text::"pg_catalog"."varchar"
    from "public"."service_users" "%t10"
    where "%t10"."id" operator(pg_catalog.=) any($2::uuid[])
  )))
)::text || ',' || '"filter_count":' || (
  select count(*)
  from "public"."articles" "%t11"
  left join "public"."authors" "%t12" on "%t12"."id" operator(pg_catalog.=) "%t11"."author"
  where ("%t11"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
    or "%t12"."name" operator(pg_catalog.=) any(array(
    select "%t13"."first_name"::text::"pg_catalog"."varchar"
    from "public"."service_users" "%t13"
    where "%t13"."id" operator(pg_catalog.=) any($2::uuid[])
  )))
)::text || coalesce('},"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '},"data":[]}')
from (
  select (('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"title":'
    || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null'))
    || (',"body":' || coalesce(pg_catalog.to_json(case when "%p1"."%k0" then "%p1"."body" end)::text, 'null')))
    || ((',"views":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out(case when "%p1"."%k0" then "%p1"."views" end)), 'null')
      || ',"author":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out(case when "%p1"."%k1" then "%p1"."author" end)), 'null'))
      || (',"comments":' || ("%l7"."%j") || '}')) as "%j"
  from (
    select "%t1"."id", "%t1"."title", "%t1"."body", "%t1"."views", "%t1"."author",
      "%t2"."name" operator(pg_catalog.=) any(array(
      select "%t3"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t3"
      where "%t3"."id" operator(pg_catalog.=) any($2::uuid[])
    )) as "%k0", "%t1"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar" as "%k1"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    where ("%t1"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
      or "%t2"."name" operator(pg_catalog.=) any(array(
      select "%t4"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t4"
      where "%t4"."id" operator(pg_catalog.=) any($2::uuid[])
    )))
    order by "%t1"."id"
    limit 5
  ) "%p1"
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r5"."%j", ',') || ']', '[]') as "%j"
    from (
      select coalesce(pg_catalog.textin(pg_catalog.int4out("%p5"."id")), 'null') as "%j"
      from (
        select "%t5"."id"
        from "public"."comments" "%t5"
        left join "public"."articles" "%t6" on "%t6"."id" operator(pg_catalog.=) "%t5"."article"
        where ("%t5"."author" is not null or "%t6"."status" operator(pg_catalog.=) $3::"pg_catalog"."varchar")
        and "%t5"."article" operator(pg_catalog.=) "%p1"."id"
        order by "%t5"."id"
        limit 100
      ) "%p5"
      order by "%p5"."id"
    ) "%r5"
  ) "%l7" on true
  order by "%p1"."id"
) "%r1"
