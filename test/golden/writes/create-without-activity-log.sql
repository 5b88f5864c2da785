-- POST /items/notes?fields=id {"text":"unrecorded"}

-- $1 = 'unrecorded'
with "%w" as (
  insert into "public"."notes" as "%t" ("text")
  values ($1::"pg_catalog"."text")
  returning "%t"."id", "%t"."text", pg_catalog.textin(pg_catalog.xidout("%t".xmin)) as "%e"
)
select coalesce((
  select '{"data":' || "%r1"."%j" || ('}' || "%r1"."%e")
  from (
    select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j", "%p1"."%e"
    from (
      select "%t1"."id", "%t1"."%e"
      from (
        select "%w".*
      ) "%t1"
      limit 1
    ) "%p1"
  ) "%r1"
), '')
from "%w";
