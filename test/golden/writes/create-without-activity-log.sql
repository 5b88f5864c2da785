-- POST /items/notes?fields=id {"text":"unrecorded"}

-- $1 = '[{"c0":"unrecorded"}]'
-- $2 = '{0}'
with "%i0" as materialized (
  select "%x".n operator(pg_catalog.-) 1 as n, (nextval('notes_id_seq'::regclass)) as k, "%x"."c0"
  from rows from (pg_catalog.json_to_recordset($1::json) as ("c0" "pg_catalog"."text"))
    with ordinality as "%x" ("c0", n)
  order by "%x".n
), "%w0" as (
  insert into "public"."notes" as "%t" ("id", "text") overriding system value
  select "%i".k, "%i"."c0"
  from "%i0" "%i"
  order by "%i".n
  returning "%t"."id"
)
select pg_catalog.json_build_array((
  select pg_catalog.max("id")::text
  from "%w0"
))::text, pg_catalog.set_config('lateral.keys', (
  select pg_catalog.array_agg("%i".k::text order by "%o".place)::text
  from pg_catalog.unnest($2::int4[]) with ordinality as "%o" (n, place)
  join "%i0" "%i" on "%i".n operator(pg_catalog.=) "%o".n
), true);

select '{"data":' || "%r1"."%j" || '}'
from (
  select '{"id":' || coalesce(pg_catalog.textin(pg_catalog.int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."notes" "%t1"
    where "%t1"."id" operator(pg_catalog.=) (
      select (pg_catalog.current_setting('lateral.keys')::"pg_catalog"."int4"[])[1]
    )::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
