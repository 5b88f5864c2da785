-- { newest: articles(sort: ["-id"],
--    limit: 2) { id comments_func { count } } one: articles_by_id(id: 1) { title } other: tags_by_id(id: 9) { name } set
--   tings { title } }
-- $1 = '{"title":"Untitled"}'
-- $2 = '{"message":"You don''t have permission to access this.","path":["one"],"locations":[{"line":1,"column":76}],"extensions":{"code":"FORBIDDEN"}}'
-- $3 = '{"message":"You don''t have permission to access this.","path":["other"],"locations":[{"line":1,"column":113}],"extensions":{"code":"FORBIDDEN"}}'
-- $4 = '1'
-- $5 = '9'
select '{"data":{' || '"newest":' || (
  select coalesce('[' || pg_catalog.string_agg("%r1"."%j", ',') || ']', '[]')
  from (
    select coalesce('{"id":"' || pg_catalog.textin(pg_catalog.int4out("%p1"."id")) || '"', '{"id":null')
      || ',"comments_func":' || ('{"count":' || coalesce((
      select count(*)
      from "public"."comments" "%t2"
      where "%t2"."article" operator(pg_catalog.=) "%p1"."id"
    )::text, 'null') || '}') || '}' as "%j"
    from (
      select "%t1"."id"
      from "public"."articles" "%t1"
      order by "%t1"."id" desc
      limit 2
    ) "%p1"
    order by "%p1"."id" desc
  ) "%r1"
) || ',"one":' || coalesce("%i1", 'null') || ',"other":' || coalesce("%i2", 'null') || ',"settings":' || coalesce((
  select '{"title":' || coalesce(pg_catalog.to_json("%p5"."title")::text, 'null') || '}' as "%j"
  from (
    select "%t5"."title", "%t5"."id"
    from "public"."settings" "%t5"
    order by "%t5"."id"
    limit 1
  ) "%p5"
  order by "%p5"."id"
), $1::text) || '}'
  || coalesce(',"errors":['
    || nullif(pg_catalog.concat_ws(',', case when "%i1" is null then $2::text end, case when "%i2" is null
      then $3::text end),
      '')
    || ']', '')
  || '}'
from (
  select (
    select '{"title":' || coalesce(pg_catalog.to_json("%p3"."title")::text, 'null') || '}' as "%j"
    from (
      select "%t3"."title"
      from "public"."articles" "%t3"
      where "%t3"."id" operator(pg_catalog.=) $4::"pg_catalog"."int4"
      limit 1
    ) "%p3"
  ) as "%i1", (
    select '{"name":' || coalesce(pg_catalog.to_json("%p4"."name")::text, 'null') || '}' as "%j"
    from (
      select "%t4"."name"
      from "public"."tags" "%t4"
      where "%t4"."id" operator(pg_catalog.=) $5::"pg_catalog"."int4"
      limit 1
    ) "%p4"
  ) as "%i2"
  offset 0
) "%o"
