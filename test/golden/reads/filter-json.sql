-- /articles?fields=id,json(meta, lang)&filter[meta][_json][nested.a[0]][_gte]=1
-- $1 = '{"lang"}'
-- $2 = '{"nested","a","0"}'
-- $3 = '1'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"meta_lang_json":'
    || coalesce(("%p1"."meta" operator(pg_catalog.#>) $1::text[])::text, 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%t1"."meta"
    from "public"."articles" "%t1"
    where
    case
    when ("%t1"."meta" operator(pg_catalog.#>>) $2::text[]) operator(pg_catalog.~) '^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]{1,3})?$'
      then ("%t1"."meta" operator(pg_catalog.#>>) $2::text[])::numeric
    end operator(pg_catalog.>=) $3::numeric
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
