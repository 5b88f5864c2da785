-- { newest: articles(sort: ["-id"], limit: 2) { id comments_func { count } } one: articles_by_id(id: 1) { title } other: tags_by_id(id: 9) { name } settings { title } }
select '{"data":{' || '"newest":' || (
  select coalesce(json_agg("%r1")::text, '[]')
  from (
    select "%p1"."id"::text as "id", (
      select row_to_json("%f3")
      from (
        select (
          select count(*)
          from "public"."comments" "%t2"
          where "%t2"."article" = "%p1"."id"
        ) as "count"
      ) "%f3"
    ) as "comments_func"
    from (
      select "%t1"."id"
      from "public"."articles" "%t1"
      order by "%t1"."id" desc
      limit 2
    ) "%p1"
    order by "%p1"."id" desc
  ) "%r1"
) || ',"one":' || coalesce("%i1", 'null') || ',"other":' || coalesce("%i2", 'null') || ',"settings":' || coalesce((
  select row_to_json("%r6")::text
  from (
    select "%p6"."title" as "title"
    from (
      select "%t6"."title", "%t6"."id"
      from "public"."settings" "%t6"
      order by "%t6"."id"
      limit 1
    ) "%p6"
    order by "%p6"."id"
  ) "%r6"
), $1::text) || '}' || coalesce(',"errors":[' || nullif(concat_ws(',', case when "%i1" is null then $2::text end, case when "%i2" is null then $3::text end), '') || ']', '') || '}'
from (
  select (
    select row_to_json("%r4")::text
    from (
      select "%p4"."title" as "title"
      from (
        select "%t4"."title"
        from "public"."articles" "%t4"
        where "%t4"."id" = $4::"pg_catalog"."int4"
        limit 1
      ) "%p4"
    ) "%r4"
  ) as "%i1", (
    select row_to_json("%r5")::text
    from (
      select "%p5"."name" as "name"
      from (
        select "%t5"."name"
        from "public"."tags" "%t5"
        where "%t5"."id" = $5::"pg_catalog"."int4"
        limit 1
      ) "%p5"
    ) "%r5"
  ) as "%i2"
  offset 0
) "%o"
