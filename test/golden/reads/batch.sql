-- /articles/1?fields=id,title,author.name, and 2 and 3 with it
-- $1 = '{"1","2","3"}'
select "%q"."%n", "%c"."%b"
from pg_catalog.unnest((
  select $1::text[]
)) with ordinality as "%q" ("%v0", "%n")
left join lateral (
  select '{"data":' || "%r1"."%j" || '}'
  from (
    select ('{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || ',"title":'
      || coalesce(pg_catalog.to_json("%p1"."title")::text, 'null'))
      || (',"author":' || coalesce("%l3"."%j", 'null') || '}') as "%j"
    from (
      select "%t1"."id", "%t1"."title", "%t1"."author"
      from "public"."articles" "%t1"
      where "%t1"."id" operator(pg_catalog.=) "%q"."%v0"::"pg_catalog"."int4"
      limit 1
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
  ) "%r1"
) "%c" ("%b") on true
