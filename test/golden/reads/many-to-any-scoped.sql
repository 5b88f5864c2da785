-- /articles?fields=blocks.collection,blocks.item:block_text.text,blocks.item:block_image.url
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"blocks":' || ("%l6"."%j") || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"collection":' || coalesce(pg_catalog.to_json("%p2"."collection")::text, 'null') || ',"item":'
        || coalesce(case "%p2"."collection"::text when 'block_text' then (
        select '{"text":' || coalesce(pg_catalog.to_json("%p3"."text")::text, 'null') || '}' as "%j"
        from (
          select "%t3"."text"
          from "public"."block_text" "%t3"
          where "%t3"."id" operator(pg_catalog.=)
          case
          when "%p2"."collection" operator(pg_catalog.=) 'block_text'
          and "%p2"."item"::text operator(pg_catalog.~) '^-?[0-9]{1,18}$' then "%p2"."item"::text::int8
          end
          limit 1
        ) "%p3"
      ) when 'block_image' then (
        select '{"url":' || coalesce(pg_catalog.to_json("%p4"."url")::text, 'null') || '}' as "%j"
        from (
          select "%t4"."url"
          from "public"."block_image" "%t4"
          where "%t4"."id" operator(pg_catalog.=)
          case
          when "%p2"."collection" operator(pg_catalog.=) 'block_image'
          and "%p2"."item"::text operator(pg_catalog.~) '^-?[0-9]{1,18}$' then "%p2"."item"::text::int8
          end
          limit 1
        ) "%p4"
      ) when 'block_quote' then (
        select coalesce(pg_catalog.textin(pg_catalog.int4out("%p5"."id")), 'null') as "%j"
        from (
          select "%t5"."id"
          from "public"."block_quote" "%t5"
          where "%t5"."id" operator(pg_catalog.=)
          case
          when "%p2"."collection" operator(pg_catalog.=) 'block_quote'
          and "%p2"."item"::text operator(pg_catalog.~) '^-?[0-9]{1,18}$' then "%p2"."item"::text::int8
          end
          limit 1
        ) "%p5"
      ) end, 'null') || '}' as "%j"
      from (
        select "%t2"."collection", "%t2"."item", "%t2"."sort", "%t2"."id"
        from "public"."articles_blocks" "%t2"
        where "%t2"."articles_id" operator(pg_catalog.=) "%p1"."id"
        order by "%t2"."sort", "%t2"."id"
        limit 100
      ) "%p2"
      order by "%p2"."sort", "%p2"."id"
    ) "%r2"
  ) "%l6" on true
  order by "%p1"."id"
) "%r1"
