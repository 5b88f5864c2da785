-- POST /rpc/joined_words {"glue":"-","words":["a","b"]}

-- $1 = '-'
-- $2 = '{"v":["a","b"]}'
select '{"data":' || coalesce((
  select coalesce(pg_catalog.to_json("%p1"."value")::text, 'null') as "%j"
  from (
    select "%t1"."value"
    from "public"."joined_words"("glue" => $1::"pg_catalog"."text", variadic "words" => (
      select "%x".v
      from pg_catalog.json_to_record($2::json) as "%x" (v "pg_catalog"."_text")
    )) "%t1" ("value")
  ) "%p1"
), 'null') || '}';
