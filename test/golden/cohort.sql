-- /articles/1?fields=id,title,author.name, many at once
select "%q"."%n", "%c"."%b"
from unnest((
  select $1::text[]
))
with ordinality as "%q" ("%v0", "%n")
left join lateral (
  select '{"data":' || row_to_json("%r1")::text || '}'
  from (
    select "%p1"."id" as "id", "%p1"."title" as "title", "%l3"."%j" as "author"
    from (
      select "%t1"."id", "%t1"."title", "%t1"."author"
      from "public"."articles" "%t1"
      where "%t1"."id" = "%q"."%v0"::"pg_catalog"."int4"
      limit 1
    ) "%p1"
    left join lateral (
      select row_to_json("%r2") as "%j"
      from (
        select "%p2"."name" as "name"
        from (
          select "%t2"."name"
          from "public"."authors" "%t2"
          where "%t2"."id" = "%p1"."author"
          limit 1
        ) "%p2"
      ) "%r2"
    ) "%l3" on true
  ) "%r1"
) "%c" ("%b") on true
