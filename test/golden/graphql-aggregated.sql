-- { articles_aggregated(groupBy: ["status"]) { by: group countAll sum { total: rating } max { published_at } } }
select '{"data":{' || '"articles_aggregated":' || (
  select coalesce(json_agg("%r1")::text, '[]')
  from (
    select (
      select row_to_json("%f2")
      from (
        select "%p1"."%g0" as "status"
      ) "%f2"
    ) as "by", "%p1"."%a0" as "countAll", (
      select row_to_json("%f3")
      from (
        select "%p1"."%a1" as "total"
      ) "%f3"
    ) as "sum", (
      select row_to_json("%f4")
      from (
        select
        case
        when isfinite("%p1"."%a2") then to_char("%p1"."%a2" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        else "%p1"."%a2"::text
        end as "published_at"
      ) "%f4"
    ) as "max"
    from (
      select "%t1"."status" as "%g0", count(*) as "%a0", sum("%t1"."rating") as "%a1", max("%t1"."published_at") as "%a2"
      from "public"."articles" "%t1"
      group by "%g0"
      order by "%g0"
      limit 100
    ) "%p1"
    order by "%p1"."%g0"
  ) "%r1"
) || '}}'
