-- /articles?fields=id&filter[title][_eq]=$CURRENT_USER.role.name
-- $1 = '{"00000000-0000-0000-0000-000000000001"}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where "%t1"."title" operator(pg_catalog.=) any(array(
      select "%t3"."name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t2"
      left join "public"."service_roles" "%t3" on "%t3"."id" operator(pg_catalog.=) "%t2"."role"
      where "%t2"."id" operator(pg_catalog.=) any($1::uuid[])
    ))
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
