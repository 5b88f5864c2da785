-- POST /rpc/articles_of?sort=-views {"writer":1}

-- $1 = 'published'
-- $2 = '1'
-- $3 = '1'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select ('{"id":'
    || coalesce(pg_catalog.textin(pg_catalog.int4out(case when "%p1"."%k0" then "%p1"."id" end)), 'null') || ',"title":'
    || coalesce(pg_catalog.to_json(case when "%p1"."%k0" then "%p1"."title" end)::text, 'null'))
    || (',"views":'
      || coalesce(pg_catalog.textin(pg_catalog.int4out(case when "%p1"."%k1" then "%p1"."views" end)), 'null')
      || '}') as "%j"
  from (
    select "%t1"."id", "%t1"."title", "%t1"."views",
      "%t1"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar" as "%k0",
      "%t1"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4" as "%k1",
    case
    when "%t1"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4" then "%t1"."views"
    end as "%s0"
    from "public"."articles_of"("writer" => $3::"pg_catalog"."int4") "%t1"
    where ("%t1"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
      or "%t1"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4")
    order by
    case
    when "%t1"."id" operator(pg_catalog.=) $2::"pg_catalog"."int4" then "%t1"."views"
    end desc, "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."%s0" desc, "%p1"."id"
) "%r1";
