-- /articles?fields=id&search=hello
-- $1 = 'published'
-- $2 = '{"00000000-0000-0000-0000-000000000001"}'
-- $3 = null
-- $4 = '%hello%'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    where ("%t1"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
      or "%t2"."name" operator(pg_catalog.=) any(array(
      select "%t5"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t5"
      where "%t5"."id" operator(pg_catalog.=) any($2::uuid[])
    )))
    and ("%t1"."id" operator(pg_catalog.=) $3::"pg_catalog"."int4" or "%t1"."title" operator(pg_catalog.~~*) $4
      or case when "%t2"."name" operator(pg_catalog.=) any(array(
      select "%t3"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t3"
      where "%t3"."id" operator(pg_catalog.=) any($2::uuid[])
    )) then "%t1"."body" end operator(pg_catalog.~~*) $4 or case when "%t2"."name" operator(pg_catalog.=) any(array(
      select "%t4"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t4"
      where "%t4"."id" operator(pg_catalog.=) any($2::uuid[])
    )) then "%t1"."views" end operator(pg_catalog.=) $3::"pg_catalog"."int4" or case
      when "%t1"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
      then "%t1"."author" end operator(pg_catalog.=) $3::"pg_catalog"."int4")
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
