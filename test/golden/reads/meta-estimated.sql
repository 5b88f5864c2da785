-- /articles?fields=id&filter[author][name][_eq]=Ada Lovelace&filter[views][_gt]=5&meta=estimated_count&limit=5
-- $1 = 'Ada Lovelace'
-- $2 = '5'
select '{"meta":{' || '"estimated_count":' || (
  select
  case
  when "%t4"."%n" operator(pg_catalog.<=) 10000 then "%t4"."%n"
  else greatest(service_estimate('select from "public"."articles" "%t7"
    left join "public"."authors" "%t8" on "%t8"."id" operator(pg_catalog.=) "%t7"."author"
    where ("%t8"."name" operator(pg_catalog.=) ($1)[1]::"pg_catalog"."varchar"
    and "%t7"."views" operator(pg_catalog.>) ($1)[2]::"pg_catalog"."int4")',
    array[$1::text, $2::text]::text[]),
    10001)
  end
  from (
    select count(*) as "%n"
    from (
      select
      from "public"."articles" "%t5"
      left join "public"."authors" "%t6" on "%t6"."id" operator(pg_catalog.=) "%t5"."author"
      where ("%t6"."name" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
        and "%t5"."views" operator(pg_catalog.>) $2::"pg_catalog"."int4")
      limit 10001
    ) "%t3"
  ) "%t4"
)::text || coalesce('},"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '},"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    where ("%t2"."name" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
      and "%t1"."views" operator(pg_catalog.>) $2::"pg_catalog"."int4")
    order by "%t1"."id"
    limit 5
  ) "%p1"
  order by "%p1"."id"
) "%r1"
