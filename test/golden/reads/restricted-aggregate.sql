-- /articles?aggregate[count]=*&aggregate[max]=views&groupBy=author.name
-- $1 = '{"00000000-0000-0000-0000-000000000001"}'
-- $2 = 'published'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select ('{"author.name":' || coalesce(pg_catalog.to_json("%p1"."%g0")::text, 'null') || ',"count":'
    || ("%p1"."%a0"::text))
    || (',"max":' || ('{"views":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."%a1")), 'null') || '}')
      || '}') as "%j"
  from (
    select "%t2"."name" as "%g0", count(*) as "%a0",
      "pg_catalog"."max"(case when "%t4"."name" operator(pg_catalog.=) any(array(
      select "%t5"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t5"
      where "%t5"."id" operator(pg_catalog.=) any($1::uuid[])
    )) then "%t1"."views" end) as "%a1"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=)
    case
    when "%t1"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar" then "%t1"."author"
    end
    and exists (
      select
      from "public"."articles" "%t3"
      where "%t3"."author" operator(pg_catalog.=) "%t2"."id"
      and "%t3"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar"
    )
    left join "public"."authors" "%t4" on "%t4"."id" operator(pg_catalog.=) "%t1"."author"
    where ("%t1"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar"
      or "%t4"."name" operator(pg_catalog.=) any(array(
      select "%t6"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t6"
      where "%t6"."id" operator(pg_catalog.=) any($1::uuid[])
    )))
    group by "%g0"
    order by "%g0"
    limit 100
  ) "%p1"
  order by "%p1"."%g0"
) "%r1"
