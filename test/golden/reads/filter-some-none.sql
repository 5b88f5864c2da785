-- /articles?fields=id&filter[comments][_some][body][_eq]=Nice!&filter[tags][_none][tags_id][name][_eq]=fun
-- $1 = 'Nice!'
-- $2 = 'fun'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where (exists (
      select
      from "public"."comments" "%t2"
      where "%t2"."article" operator(pg_catalog.=) "%t1"."id"
      and "%t2"."body" operator(pg_catalog.=) $1::"pg_catalog"."text"
    ) and not exists (
      select
      from "public"."articles_tags" "%t3"
      left join "public"."tags" "%t4" on "%t4"."id" operator(pg_catalog.=) "%t3"."tags_id"
      where "%t3"."articles_id" operator(pg_catalog.=) "%t1"."id"
      and "%t4"."name" operator(pg_catalog.=) $2::"pg_catalog"."varchar"
    ))
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
