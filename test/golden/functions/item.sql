-- POST /rpc/article_titled?fields=id,author.name {"title":"Zebra"}

-- $1 = 'Zebra'
select '{"data":' || coalesce((
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"author":'
    || coalesce("%l3"."%j", 'null') || '}' as "%j"
  from (
    select "%t1"."id", "%t1"."author"
    from (
      select *
      from "public"."article_titled"("title" => $1::"pg_catalog"."text") "%f"
      where not ("%f" is null)
    ) "%t1"
  ) "%p1"
  left join lateral (
    select '{"name":' || coalesce(pg_catalog.to_json("%p2"."name")::text, 'null') || '}' as "%j"
    from (
      select "%t2"."name"
      from "public"."authors" "%t2"
      where "%t2"."id" operator(pg_catalog.=) "%p1"."author"
      limit 1
    ) "%p2"
    offset 0
  ) "%l3" on true
), 'null') || '}';
