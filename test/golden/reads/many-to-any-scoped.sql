-- /articles?fields=blocks.collection,blocks.item:block_text.text,blocks.item:block_image.url
select coalesce('{"data":[' || string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"blocks":' || ("%l6"."%j") || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."articles" "%t1"
    order by "%t1"."id"
    limit 100
  ) "%p1"
  left join lateral (
    select coalesce('[' || string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"collection":' || coalesce(pg_catalog.to_json("%p2"."collection")::text, 'null') || ',"item":' || coalesce(case "%p2"."collection"::text when 'block_text' then (
        select '{"text":' || coalesce(pg_catalog.to_json("%p3"."text")::text, 'null') || '}' as "%j"
        from (
          select "%t3"."text"
          from "public"."block_text" "%t3"
          where "%t3"."id" =
          case
          when "%p2"."collection" = 'block_text'
          and "%p2"."item"::text ~ '^-?[0-9]{1,18}$' then "%p2"."item"::text::int8
          end
          limit 1
        ) "%p3"
      ) when 'block_image' then (
        select '{"url":' || coalesce(pg_catalog.to_json("%p4"."url")::text, 'null') || '}' as "%j"
        from (
          select "%t4"."url"
          from "public"."block_image" "%t4"
          where "%t4"."id" =
          case
          when "%p2"."collection" = 'block_image'
          and "%p2"."item"::text ~ '^-?[0-9]{1,18}$' then "%p2"."item"::text::int8
          end
          limit 1
        ) "%p4"
      ) when 'block_quote' then (
        select coalesce(textin(int4out("%p5"."id")), 'null') as "%j"
        from (
          select "%t5"."id"
          from "public"."block_quote" "%t5"
          where "%t5"."id" =
          case
          when "%p2"."collection" = 'block_quote'
          and "%p2"."item"::text ~ '^-?[0-9]{1,18}$' then "%p2"."item"::text::int8
          end
          limit 1
        ) "%p5"
      ) end, 'null') || '}' as "%j"
      from (
        select "%t2"."collection", "%t2"."item", "%t2"."sort", "%t2"."id"
        from "public"."articles_blocks" "%t2"
        where "%t2"."articles_id" = "%p1"."id"
        order by "%t2"."sort", "%t2"."id"
        limit 100
      ) "%p2"
      order by "%p2"."sort", "%p2"."id"
    ) "%r2"
  ) "%l6" on true
  order by "%p1"."id"
) "%r1"
