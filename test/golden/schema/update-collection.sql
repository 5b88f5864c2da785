-- PATCH /collections/books {"meta":{"archive_field":"sold"}}

begin;

-- $1 = 'public'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral structure ' operator(pg_catalog.||) $1::text,
  0));

-- $1 = '20000'
select pg_catalog.set_config('lock_timeout', $1, true);

-- $1 = '{"archive_field":"sold","collection":"books"}'
insert into "public"."service_collections" ("archive_field", "collection")
select "archive_field", "collection"
from pg_catalog.json_populate_record(null::"public"."service_collections", $1::json)
on conflict ("collection") do update
set "archive_field" = excluded."archive_field";

-- $1 = 'public'
with bumped as (
  update "public".service_schema
  set version = version operator(pg_catalog.+) 1
)
select pg_catalog.pg_notify('service_model', $1);

commit;
