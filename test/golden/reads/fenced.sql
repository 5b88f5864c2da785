-- /articles?fields=id,title&filter[status][_eq]=draft&sort=-published_at&limit=10, its rows found before they are put in order
-- $1 = 'draft'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"title":'
    || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || '}' as "%j"
  from (
    select *
    from (
      select "%t1"."id", "%t1"."title", "%t1"."published_at"
      from "public"."articles" "%t1"
      where "%t1"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
      offset 0
    ) "%f1"
    order by "%f1"."published_at" desc, "%f1"."id"
    limit 10
  ) "%p1"
  order by "%p1"."published_at" desc, "%p1"."id"
) "%r1"
