-- /articles?fields=id&filter[blocks][item:block_text][text][_contains]=text
-- $1 = '%text%'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    where exists (
      select
      from "public"."articles_blocks" "%t2"
      left join "public"."block_text" "%t3" on "%t3"."id" operator(pg_catalog.=)
      case
      when "%t2"."collection" operator(pg_catalog.=) 'block_text'
      and "%t2"."item"::text operator(pg_catalog.~) '^-?[0-9]{1,18}$' then "%t2"."item"::text::int8
      end
      where "%t2"."articles_id" operator(pg_catalog.=) "%t1"."id"
      and "%t3"."text" operator(pg_catalog.~~) $1
    )
    order by "%t1"."id"
    limit 100
  ) "%p1"
  order by "%p1"."id"
) "%r1"
