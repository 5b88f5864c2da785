-- POST /utils/sort/articles_tags {"item":3,"to":4}

begin;

-- $1 = 'public.articles_tags'
select pg_advisory_xact_lock(hashtextextended('lateral ' || $1::text, 0));

-- $1 = '3'
-- $2 = '4'
with "%o" as materialized (
  select "%t"."id" as k, "%t"."sort" as s, row_number() over (order by "%t"."sort", "%t"."id") as p
  from "public"."articles_tags" "%t"
), "%m" as materialized (
  select (
    select p
    from "%o"
    where k = $1::"pg_catalog"."int4"
  ) as a, (
    select p
    from "%o"
    where k = $2::"pg_catalog"."int4"
  ) as b
), "%w" as (update "public"."articles_tags" "%t" set "sort" = "%n".p from (
  select "%o".k,
  case
  when p = a then b
  when p > a
  and p <= b then p - 1
  when p >= b
  and p < a then p + 1
  else p
  end as p, s
  from "%o", "%m"
) "%n" where "%t"."id" = "%n".k and "%n".s is distinct from "%n".p returning 1)
select
case
when (
  select a is null
  or b is null
  from "%m"
) then "public".service_raise('missing')
end;

commit;
