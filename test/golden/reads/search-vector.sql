-- /worded?fields=id&search=hello
-- $1 = 'hello'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."worded" "%t1"
    where "%t1"."words" operator(pg_catalog.@@) pg_catalog.websearch_to_tsquery('"pg_catalog"."english"'::pg_catalog.regconfig,
      $1::text)
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
