-- POST /utils/sort/articles_tags {"item":3,"to":4}

begin;

-- $1 = 'public.articles_tags'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral ' operator(pg_catalog.||) $1::text, 0));

-- $1 = '3'
-- $2 = '4'
with "%o" as materialized (
  select "%t"."id" as k, "%t"."sort" as s, row_number() over (order by "%t"."sort", "%t"."id") as p
  from "public"."articles_tags" "%t"
), "%m" as materialized (
  select (
    select p
    from "%o"
    where k operator(pg_catalog.=) $1::"pg_catalog"."int4"
  ) as a, (
    select p
    from "%o"
    where k operator(pg_catalog.=) $2::"pg_catalog"."int4"
  ) as b
), "%w" as (
  update "public"."articles_tags" "%t"
  set "sort" = "%n".p
  from (
    select "%o".k,
    case
    when p operator(pg_catalog.=) a then b
    when p operator(pg_catalog.>) a
    and p operator(pg_catalog.<=) b then p operator(pg_catalog.-) 1
    when p operator(pg_catalog.>=) b
    and p operator(pg_catalog.<) a then p operator(pg_catalog.+) 1
    else p
    end as p, s
    from "%o", "%m"
  ) "%n"
  where "%t"."id" operator(pg_catalog.=) "%n".k
  and ("%n".s operator(pg_catalog.=) "%n".p) is not true
  returning 1
)
select
case
when (
  select a is null
  or b is null
  from "%m"
) then "public".service_raise('missing')
end;

commit;
