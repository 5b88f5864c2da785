-- /authors?fields=name,licence.number&filter[licence][number][_starts_with]=A&sort=licence.id
-- $1 = 'A%'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"name":' || coalesce(pg_catalog.to_json("%p1"."name")::text, 'null') || ',"licence":'
    || coalesce("%l4"."%j", 'null') || '}' as "%j"
  from (
    select "%t1"."name", "%t1"."id", "%t2"."id" as "%s0"
    from "public"."authors" "%t1"
    left join "public"."licences" "%t2" on "%t2"."author" operator(pg_catalog.=) "%t1"."id"
    where "%t2"."number" operator(pg_catalog.~~) $1
    order by "%t2"."id", "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select '{"number":' || coalesce(pg_catalog.to_json("%p3"."number")::text, 'null') || '}' as "%j"
    from (
      select "%t3"."number"
      from "public"."licences" "%t3"
      where "%t3"."author" operator(pg_catalog.=) "%p1"."id"
      limit 1
    ) "%p3"
    offset 0
  ) "%l4" on true
  order by "%p1"."%s0", "%p1"."id"
) "%r1"
