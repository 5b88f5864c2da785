-- /settings?fields=id,title
-- $1 = '{"id":null,"title":"Untitled"}'
select '{"data":' || coalesce((
  select row_to_json("%r1")::text
  from (
    select "%p1"."id" as "id", "%p1"."title" as "title"
    from (
      select "%t1"."id", "%t1"."title"
      from "public"."settings" "%t1"
      order by "%t1"."id"
      limit 1
    ) "%p1"
    order by "%p1"."id"
  ) "%r1"
), $1::text) || '}'
