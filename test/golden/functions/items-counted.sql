-- POST /rpc/articles_of?fields=id&meta=*&limit=1 {"writer":1}

-- $1 = '1'
select '{"meta":{' || '"total_count":' || (
  select count(*)
  from "public"."articles_of"("writer" => $1::"pg_catalog"."int4") "%t2"
)::text || ',' || '"filter_count":' || (
  select count(*)
  from "public"."articles_of"("writer" => $1::"pg_catalog"."int4") "%t3"
)::text || coalesce('},"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '},"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles_of"("writer" => $1::"pg_catalog"."int4") "%t1"
    limit 1
  ) "%p1"
) "%r1";
