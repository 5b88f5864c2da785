-- /articles?fields=id&search=hello&meta=estimated_count
-- $1 = 'published'
-- $2 = '{"00000000-0000-0000-0000-000000000001"}'
-- $3 = null
-- $4 = '%hello%'
select '{"meta":{' || '"estimated_count":' || (
  select
  case
  when "%t7"."%n" operator(pg_catalog.<=) 10000 then "%t7"."%n"
  else greatest(service_estimate('select from "public"."articles" "%t13"
    left join "public"."authors" "%t14" on "%t14"."id" operator(pg_catalog.=) "%t13"."author"
    where ("%t13"."status" operator(pg_catalog.=) ($1)[1]::"pg_catalog"."varchar"
    or "%t14"."name" operator(pg_catalog.=) any(array(select "%t17"."first_name"::text::"pg_catalog"."varchar" from "public"."service_users" "%t17"
    where "%t17"."id" operator(pg_catalog.=) any(($1)[2]::uuid[]))))
    and ("%t13"."id" operator(pg_catalog.=) ($1)[3]::"pg_catalog"."int4"
    or "%t13"."title" operator(pg_catalog.~~*) ($1)[4]
    or case
      when "%t14"."name" operator(pg_catalog.=) any(array(select "%t15"."first_name"::text::"pg_catalog"."varchar" from "public"."service_users" "%t15"
    where "%t15"."id" operator(pg_catalog.=) any(($1)[2]::uuid[])))
      then "%t13"."body" end operator(pg_catalog.~~*) ($1)[4]
    or case
      when "%t14"."name" operator(pg_catalog.=) any(array(select "%t16"."first_name"::text::"pg_catalog"."varchar" from "public"."service_users" "%t16"
    where "%t16"."id" operator(pg_catalog.=) any(($1)[2]::uuid[])))
      then "%t13"."views" end operator(pg_catalog.=) ($1)[3]::"pg_catalog"."int4"
    or case when "%t13"."status" operator(pg_catalog.=) ($1)[1]::"pg_catalog"."varchar"
      then "%t13"."author" end operator(pg_catalog.=) ($1)[3]::"pg_catalog"."int4")',
    array[$1::text, $2::text, $3::text, $4::text]::text[]),
    10001)
  end
  from (
    select count(*) as "%n"
    from (
      select
      from "public"."articles" "%t8"
      left join "public"."authors" "%t9" on "%t9"."id" operator(pg_catalog.=) "%t8"."author"
      where ("%t8"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
        or "%t9"."name" operator(pg_catalog.=) any(array(
        select "%t12"."first_name"::text::"pg_catalog"."varchar"
        from "public"."service_users" "%t12"
        where "%t12"."id" operator(pg_catalog.=) any($2::uuid[])
      )))
      and ("%t8"."id" operator(pg_catalog.=) $3::"pg_catalog"."int4" or "%t8"."title" operator(pg_catalog.~~*) $4
        or case when "%t9"."name" operator(pg_catalog.=) any(array(
        select "%t10"."first_name"::text::"pg_catalog"."varchar"
        from "public"."service_users" "%t10"
        where "%t10"."id" operator(pg_catalog.=) any($2::uuid[])
      )) then "%t8"."body" end operator(pg_catalog.~~*) $4 or case when "%t9"."name" operator(pg_catalog.=) any(array(
        select "%t11"."first_name"::text::"pg_catalog"."varchar"
        from "public"."service_users" "%t11"
        where "%t11"."id" operator(pg_catalog.=) any($2::uuid[])
      )) then "%t8"."views" end operator(pg_catalog.=) $3::"pg_catalog"."int4" or case
        when "%t8"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
        then "%t8"."author" end operator(pg_catalog.=) $3::"pg_catalog"."int4")
      limit 10001
    ) "%t6"
  ) "%t7"
)::text || coalesce('},"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '},"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    left join "public"."authors" "%t2" on "%t2"."id" operator(pg_catalog.=) "%t1"."author"
    where ("%t1"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
      or "%t2"."name" operator(pg_catalog.=) any(array(
      select "%t5"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t5"
      where "%t5"."id" operator(pg_catalog.=) any($2::uuid[])
    )))
    and ("%t1"."id" operator(pg_catalog.=) $3::"pg_catalog"."int4" or "%t1"."title" operator(pg_catalog.~~*) $4
      or case when "%t2"."name" operator(pg_catalog.=) any(array(
      select "%t3"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t3"
      where "%t3"."id" operator(pg_catalog.=) any($2::uuid[])
    )) then "%t1"."body" end operator(pg_catalog.~~*) $4 or case when "%t2"."name" operator(pg_catalog.=) any(array(
      select "%t4"."first_name"::text::"pg_catalog"."varchar"
      from "public"."service_users" "%t4"
      where "%t4"."id" operator(pg_catalog.=) any($2::uuid[])
    )) then "%t1"."views" end operator(pg_catalog.=) $3::"pg_catalog"."int4" or case
      when "%t1"."status" operator(pg_catalog.=) $1::"pg_catalog"."varchar"
      then "%t1"."author" end operator(pg_catalog.=) $3::"pg_catalog"."int4")
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
