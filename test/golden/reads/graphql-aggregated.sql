-- { articles_aggregated(groupBy: ["status"]) { by: group countAll sum { total: rating } max { published_at } } }
select '{"data":{' || '"articles_aggregated":' || (
  select coalesce('[' || pg_catalog.string_agg("%r1"."%j", ',') || ']', '[]')
  from (
    select ('{"by":' || ('{"status":' || coalesce(pg_catalog.to_json("%p1"."%g0")::text, 'null') || '}')
      || ',"countAll":' || ("%p1"."%a0"::text))
      || (',"sum":' || ('{"total":' || coalesce(pg_catalog.to_json("%p1"."%a1")::text, 'null') || '}') || ',"max":'
        || (coalesce('{"published_at":"' || case when pg_catalog.isfinite("%p1"."%a2")
          then pg_catalog.to_char("%p1"."%a2" at time zone 'UTC', case
            when "%p1"."%a2" operator(pg_catalog.=) "%p1"."%a2"::timestamptz(3) then 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
            else 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"' end)
          || case when "%p1"."%a2" operator(pg_catalog.<) '0001-01-01 00:00:00+00'::timestamptz then ' BC' else '' end
          else "%p1"."%a2"::text end || '"', '{"published_at":null')
          || '}')
        || '}') as "%j"
    from (
      select "%t1"."status" as "%g0", count(*) as "%a0", pg_catalog.sum("%t1"."rating") as "%a1",
        "pg_catalog"."max"("%t1"."published_at") as "%a2"
      from "public"."articles" "%t1"
      group by "%g0"
      order by "%g0"
      limit 100
    ) "%p1"
    order by "%p1"."%g0"
  ) "%r1"
) || '}}'
