-- /articles?fields=id&filter={"_or":[{"views":{"_between":[1,9]}},{"slug":{"_starts_with":"a%"}},{"rating":{"_nin":[1,2]}},{"body":{"_nempty":true}}]}
-- $1 = '1'
-- $2 = '9'
-- $3 = 'a\%%'
-- $4 = '{"1","2"}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where (("%t1"."views" operator(pg_catalog.>=) $1::"pg_catalog"."int4"
      and "%t1"."views" operator(pg_catalog.<=) $2::"pg_catalog"."int4")
      or "%t1"."slug" operator(pg_catalog.~~) $3
      or "%t1"."rating" operator(pg_catalog.<>) all($4::"pg_catalog"."numeric"[])
      or ("%t1"."body" is not null and "%t1"."body" operator(pg_catalog.<>) ''))
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
