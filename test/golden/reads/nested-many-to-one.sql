-- /articles?fields=id,author.name,author.born&limit=25
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"author":'
    || coalesce("%l3"."%j", 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%t1"."author"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 25
  ) "%p1"
  left join lateral (
    select '{"name":' || coalesce(pg_catalog.to_json("%p2"."name")::text, 'null') || ',"born":'
      || coalesce(pg_catalog.to_json("%p2"."born")::text, 'null') || '}' as "%j"
    from (
      select "%t2"."name", "%t2"."born"
      from "public"."authors" "%t2"
      where "%t2"."id" operator(pg_catalog.=) "%p1"."author"
      limit 1
    ) "%p2"
    offset 0
  ) "%l3" on true
  order by "%p1"."id"
) "%r1"
