-- /articles?fields=id&filter[author][name][_eq]=Ada Lovelace&meta=*&limit=5&page=2
-- $1 = 'Ada Lovelace'
-- $2 = '5'
select '{"meta":{' || '"total_count":' || (
  select count(*)
  from "public"."articles" "%t3"
)::text || ',' || '"filter_count":' || (
  select count(*)
  from "public"."articles" "%t4"
  left join "public"."authors" "%t5" on "%t5"."id" operator(pg_catalog.=) "%t4"."author"
  where "%t5"."name" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
)::text || coalesce('},"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '},"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    where "%t2"."name" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
    order by "%t1"."id"
    limit 5
    offset $2::bigint
  ) "%p1"
  order by "%p1"."id"
) "%r1"
