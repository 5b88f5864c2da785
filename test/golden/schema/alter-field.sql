-- PATCH /fields/books/pages {"type":"bigInteger","schema":{"is_nullable":true,"is_unique":false},"meta":{"hidden":true}}

begin;

-- $1 = 'public'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral structure ' operator(pg_catalog.||) $1::text,
  0));

-- $1 = '20000'
select pg_catalog.set_config('lock_timeout', $1, true);

alter table "public"."books" alter column "pages" drop default;

alter table "public"."books" alter column "pages" type bigint using "pages"::bigint;

alter table "public"."books" alter column "pages" set default '0';

alter table "public"."books" alter column "pages" drop not null;

alter table "public"."books" drop constraint "books_pages_unique";

-- $1 = '{"hidden":true,"special":null,"collection":"books","field":"pages"}'
insert into "public"."service_fields" ("hidden", "special", "collection", "field")
select "hidden", "special", "collection", "field"
from pg_catalog.json_populate_record(null::"public"."service_fields", $1::json)
on conflict ("collection", "field") do update
set "hidden" = excluded."hidden", "special" = excluded."special";

-- $1 = 'public'
with bumped as (
  update "public".service_schema
  set version = version operator(pg_catalog.+) 1
)
select pg_catalog.pg_notify('service_model', $1);

commit;
