-- POST /fields/books {"field":"pages","type":"integer","schema":{"is_nullable":false,"default_value":0,
--   "is_unique":true},"meta":{"interface":"input","note":"How many"}}

begin;

-- $1 = 'public'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral structure ' operator(pg_catalog.||) $1::text,
  0));

-- $1 = '20000'
select pg_catalog.set_config('lock_timeout', $1, true);

alter table "public"."books" add column "pages" integer default '0' not null;

alter table "public"."books" add constraint "books_pages_unique" unique ("pages");

-- $1 = '{"sort":2,"interface":"input","note":"How many","special":null,"collection":"books","field":"pages"}'
insert into "public"."service_fields" ("sort", "interface", "note", "special", "collection", "field")
select "sort", "interface", "note", "special", "collection", "field"
from pg_catalog.json_populate_record(null::"public"."service_fields", $1::json)
on conflict ("collection", "field") do update
set "sort" = excluded."sort", "interface" = excluded."interface", "note" = excluded."note",
  "special" = excluded."special";

-- $1 = 'public'
with bumped as (
  update "public".service_schema
  set version = version operator(pg_catalog.+) 1
)
select pg_catalog.pg_notify('service_model', $1);

commit;
