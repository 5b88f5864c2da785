-- POST /rpc/most_read?fields=id&filter[author][name][_nnull]=true {}

select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%t1"."%n"
    from (
      select "%o".*, row_number() over () as "%n"
      from "public"."most_read"() "%o"
    ) "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    where "%t2"."name" is not null
    order by "%t1"."%n"
    limit 100
  ) "%p1"
  order by "%p1"."%n"
) "%r1";
