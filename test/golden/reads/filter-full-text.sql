-- /samples?fields=id&filter={"words":{"_fts":"sql -http"},"title":{"_fts":{"query":"join","config":"english"}}}&sort=-rank(words)
-- $1 = 'sql -http'
-- $2 = 'join'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id",
      pg_catalog.ts_rank("%t1"."words",
        pg_catalog.websearch_to_tsquery('"pg_catalog"."english"'::pg_catalog.regconfig, $1::text)) as "%s0"
    from "public"."samples" "%t1"
    where ("%t1"."words" operator(pg_catalog.@@) pg_catalog.websearch_to_tsquery('"pg_catalog"."english"'::pg_catalog.regconfig,
      $1::text)
      and pg_catalog.to_tsvector('"pg_catalog"."english"'::pg_catalog.regconfig,
        "%t1"."title") operator(pg_catalog.@@) pg_catalog.websearch_to_tsquery('"pg_catalog"."english"'::pg_catalog.regconfig,
        $2::text))
    order by pg_catalog.ts_rank("%t1"."words",
      pg_catalog.websearch_to_tsquery('"pg_catalog"."english"'::pg_catalog.regconfig, $1::text)) desc,
      "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."%s0" desc, "%p1"."id"
) "%r1"
