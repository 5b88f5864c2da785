-- POST /items/notes?fields=id {"text":"unrecorded"}

-- $1 = 'unrecorded'
with "%w" as (
  insert into "public"."notes" as "%t" ("text")
  values ($1::"pg_catalog"."text")
  returning "%t"."id", "%t"."text"
)
select coalesce((
  select '{"data":' || "%r1"."%j" || '}'
  from (
    select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
    from (
      select "%t1"."id"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w";
