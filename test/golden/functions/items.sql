-- POST /rpc/articles_of?fields=id,comments.body&filter[status]=published&sort=-views&limit=5 {"writer":1}

-- $1 = '1'
-- $2 = 'published'
select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"comments":'
    || ("%l3"."%j") || '}' as "%j"
  from (
    select "%t1"."id", "%t1"."views"
    from "public"."articles_of"("writer" => $1::"pg_catalog"."int4") "%t1"
    where "%t1"."status" operator(pg_catalog.=) $2::"pg_catalog"."varchar"
    order by "%t1"."views" desc, "%t1"."id"
    limit 5
  ) "%p1"
  left join lateral (
    select coalesce('[' || pg_catalog.string_agg("%r2"."%j", ',') || ']', '[]') as "%j"
    from (
      select '{"body":' || coalesce(pg_catalog.to_json("%p2"."body")::text, 'null') || '}' as "%j"
      from (
        select "%t2"."body", "%t2"."id"
        from "public"."comments" "%t2"
        where "%t2"."article" operator(pg_catalog.=) "%p1"."id"
        order by "%t2"."id"
        limit 100
      ) "%p2"
      order by "%p2"."id"
    ) "%r2"
  ) "%l3" on true
  order by "%p1"."views" desc, "%p1"."id"
) "%r1";
