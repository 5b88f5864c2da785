-- /places?fields=id&filter={"globe":{"_dwithin":{"geometry":{"type":"Point","coordinates":[16.6,49.2]},
--   "distance":500}},"mercator":{"_within":{"type":"Polygon","coordinates":[[[16,49],[17,49],[17,50],[16,50],[16,
--   49]]]}},"free":{"_covers":{"type":"Point","coordinates":[16.6,49.2]}}}
-- $1 = '{"type":"Point","coordinates":[16.6,49.2]}'
-- $2 = '500'
-- $3 = '{"type":"Polygon","coordinates":[[[16,49],[17,49],[17,50],[16,50],[16,49]]]}'
-- $4 = '{"type":"Point","coordinates":[16.6,49.2]}'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."places" "%t1"
    where ("shapes"."st_dwithin"("%t1"."globe",
      (case when pg_catalog.starts_with($1::text, '{')
        then "shapes"."st_setsrid"("shapes"."st_geomfromgeojson"($1::text), 4326)
        else "shapes"."st_geomfromewkt"($1::text) end)::"shapes"."geography",
      $2::float8)
      and "shapes"."st_within"("%t1"."mercator",
        (case when pg_catalog.starts_with($3::text, '{')
          then "shapes"."st_transform"("shapes"."st_setsrid"("shapes"."st_geomfromgeojson"($3::text), 4326), 3857)
          else "shapes"."st_geomfromewkt"($3::text) end))
      and "shapes"."st_covers"(case "shapes"."st_srid"("%t1"."free") when 4326 then "%t1"."free" when 0
        then "shapes"."st_setsrid"("%t1"."free", 4326) else "shapes"."st_transform"("%t1"."free", 4326) end,
        (case when pg_catalog.starts_with($4::text, '{')
          then "shapes"."st_setsrid"("shapes"."st_geomfromgeojson"($4::text), 4326)
          else "shapes"."st_geomfromewkt"($4::text) end)))
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
