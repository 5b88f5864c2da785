-- /settings?fields=id,title
-- $1 = '{"id":null,"title":"Untitled"}'
select '{"data":' || coalesce((
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"title":'
    || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%t1"."title"
    from "public"."settings" "%t1"
    order by "%t1"."id"
    limit 1
  ) "%p1"
  order by "%p1"."id"
), $1::text) || '}'
