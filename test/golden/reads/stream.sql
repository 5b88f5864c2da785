-- /articles?fields=id,author.name&limit=-1&meta=filter_count
select '{"meta":{' || '"filter_count":' || (
  select count(*)
  from "public"."articles" "%t4"
)::text || '},"data":['
union all (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"author":'
    || coalesce("%l3"."%j", 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%t1"."author"
    from "public"."articles" "%t1"
    order by "%t1"."id"
  ) "%p1"
  left join lateral (
    select '{"name":' || coalesce(pg_catalog.to_json("%p2"."name")::text, 'null') || '}' as "%j"
    from (
      select "%t2"."name"
      from "public"."authors" "%t2"
      where "%t2"."id" operator(pg_catalog.=) "%p1"."author"
      limit 1
    ) "%p2"
    offset 0
  ) "%l3" on true
  order by "%p1"."id"
)
