-- POST /rpc/write_article?fields=title,comments.body {"title":"New","writer":1}

-- $1 = 'New'
-- $2 = '1'
select pg_catalog.set_config('lateral.rows',
  coalesce(pg_catalog.array_agg("%f"::"public"."articles"), '{}'::"public"."articles"[])::text, true)
from "public"."write_article"("title" => $1::"pg_catalog"."text", "writer" => $2::"pg_catalog"."int4") "%f";

select coalesce('{"data":[' || pg_catalog.string_agg("%r1"."%j", ',') || ']}', '{"data":[]}')
from (
  select '{"title":' || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || ',"comments":' || ("%l3"."%j")
    || '}' as "%j"
  from (
    select "%t1"."title", "%t1"."id"
    from pg_catalog.unnest(pg_catalog.current_setting('lateral.rows')::"public"."articles"[]) "%t1"
    limit 100
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
) "%r1";

reset session authorization;

reset role;

reset all;

discard temp;

select pg_catalog.pg_advisory_unlock_all();

-- $1 = '30000'
select pg_catalog.set_config('idle_in_transaction_session_timeout', $1, false);
