-- /articles?fields=id&filter[author][name][_eq]=Ada Lovelace&meta=*&limit=5&page=2
-- $1 = 'Ada Lovelace'
-- $2 = '5'
select '{"meta":{' || '"total_count":' || (
  select count(*)
  from "public"."articles" "%t3"
) || ',' || '"filter_count":' || (
  select count(*)
  from "public"."articles" "%t4"
  left join "public"."authors" "%t5" on "%t5"."id" = "%t4"."author"
  where "%t5"."name" = $1::"pg_catalog"."varchar"
) || coalesce('},"data":[' || string_agg("%r1"."%j", ',') || ']}', '},"data":[]}')
from (
  select '{"id":' || coalesce(textin(int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" = "%t1"."author"
    where "%t2"."name" = $1::"pg_catalog"."varchar"
    order by "%t1"."id"
    limit 5
    offset $2::bigint
  ) "%p1"
  order by "%p1"."id"
) "%r1"
