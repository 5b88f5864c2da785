-- /comments?fields=id&filter[article][author][name][_eq]=Ada Lovelace&sort=-article.views
-- $1 = '{"00000000-0000-0000-0000-000000000001"}'
-- $2 = 'published'
-- $3 = 'draft'
-- $4 = 'Ada Lovelace'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id",
    case
    when "%t7"."name" operator(pg_catalog.=) any(array(
      select "%t8"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t8"
      where "%t8"."id" operator(pg_catalog.=) any($1::uuid[])
    )) then "%t2"."views"
    end as "%s0"
    from "public"."comments" "%t1"
    left join ("public"."articles" "%t2" left join "public"."authors" "%t3"
      on "%t3"."id" operator(pg_catalog.=) "%t2"."author")
      on "%t2"."id" operator(pg_catalog.=) "%t1"."article"
    and ("%t2"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar"
      or "%t3"."name" operator(pg_catalog.=) any(array(
      select "%t4"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t4"
      where "%t4"."id" operator(pg_catalog.=) any($1::uuid[])
    )))
    left join "public"."authors" "%t5" on "%t5"."id" operator(pg_catalog.=)
    case
    when "%t2"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar" then "%t2"."author"
    end
    and exists (
      select
      from "public"."articles" "%t6"
      where "%t6"."author" operator(pg_catalog.=) "%t5"."id"
      and "%t6"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar"
    )
    left join "public"."authors" "%t7" on "%t7"."id" operator(pg_catalog.=) "%t2"."author"
    left join "public"."articles" "%t9" on "%t9"."id" operator(pg_catalog.=) "%t1"."article"
    where ("%t1"."author" is not null or "%t9"."status" operator(pg_catalog.=) $3::"pg_catalog"."varchar")
    and "%t5"."name" operator(pg_catalog.=) $4::"pg_catalog"."varchar"
    order by
    case
    when "%t7"."name" operator(pg_catalog.=) any(array(
      select "%t8"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t8"
      where "%t8"."id" operator(pg_catalog.=) any($1::uuid[])
    )) then "%t2"."views"
    end desc, "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."%s0" desc, "%p1"."id"
) "%r1"
