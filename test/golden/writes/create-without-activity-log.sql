-- POST /items/notes?fields=id {"text":"unrecorded"}

-- $1 = '{"nodes":[[{"n":0,"c0":"unrecorded"}]],"unlinks":[],"root":[0],"by":{"user":"00000000-0000-0000-0000-000000000001","ip":"127.0.0.1","user_agent":null,"origin":null}}'
with "%a0" as materialized (
  select (
    select max(nextval('public.notes_id_seq'::regclass))
    from generate_series(1, "%h".k - "%l".v)
  )
  from (
    select max(k)::int8 as k
    from (
      select k
      from json_to_recordset($1::json -> 'nodes' -> 0) as "%x" (k "pg_catalog"."int4")
    ) "%g"
  ) "%h", (
    select coalesce(pg_sequence_last_value('public.notes_id_seq'::regclass), 0) as v
  ) "%l"
  where "%h".k - "%l".v between 1
  and 10000
), "%i0" as materialized (
  select "%x".n,
  case
  when "%x".k is null then (nextval('notes_id_seq'::regclass))
  else "%x".k
  end as k, "%x"."c0"
  from json_to_recordset($1::json -> 'nodes' -> 0) as "%x" (n int4, k "pg_catalog"."int4", "c0" "pg_catalog"."text") cross join (
    select count(*)
    from "%a0"
  ) "%a"
  order by "%x".n
), "%w0" as (insert into "public"."notes" as "%t" ("id", "text") overriding system value select "%i".k, "%i"."c0" from "%i0" "%i" order by "%i".n returning "%t"."id")
select json_build_array((
  select max("id")::text
  from "%w0"
))::text, set_config('lateral.keys', (
  select array_agg("%i".k::text order by "%o".place)::text
  from json_array_elements_text($1::json -> 'root')
  with ordinality as "%o" (n, place) join "%i0" "%i" on "%i".n = "%o".n::int4
), true);

select '{"data":' || "%r1"."%j" || '}'
from (
  select '{"id":' || coalesce(textin(int4out("%p1"."id")), 'null') || '}' as "%j"
  from (
    select "%t1"."id"
    from "public"."notes" "%t1"
    where "%t1"."id" = (
      select (current_setting('lateral.keys')::"pg_catalog"."int4"[])[1]
    )::"pg_catalog"."int4"
    limit 1
  ) "%p1"
) "%r1";
