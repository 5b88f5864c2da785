-- POST /collections {"collection":"books","schema":{"comment":"On paper"},"meta":{"note":"On paper"},
--   "fields":[{"field":"id","type":"uuid","schema":{"is_primary_key":true},"meta":{"special":["uuid"]}},
--   {"field":"title","type":"string","schema":{"is_nullable":false,"max_length":100}},{"field":"sold","type":"boolean",
--   "schema":{"default_value":false}}]}

begin;

-- $1 = 'public'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral structure ' operator(pg_catalog.||) $1::text,
  0));

-- $1 = '20000'
select pg_catalog.set_config('lock_timeout', $1, true);

create table "public"."books" ("id" uuid not null primary key, "title" varchar(100) not null,
  "sold" boolean default 'false');

-- $1 = '{"sort":1,"special":"uuid","collection":"books","field":"id"}'
insert into "public"."service_fields" ("sort", "special", "collection", "field")
select "sort", "special", "collection", "field"
from pg_catalog.json_populate_record(null::"public"."service_fields", $1::json)
on conflict ("collection", "field") do update
set "sort" = excluded."sort", "special" = excluded."special";

comment on table "public"."books" is 'On paper';

-- $1 = '{"note":"On paper","collection":"books"}'
insert into "public"."service_collections" ("note", "collection")
select "note", "collection"
from pg_catalog.json_populate_record(null::"public"."service_collections", $1::json)
on conflict ("collection") do update
set "note" = excluded."note";

-- $1 = 'public'
with bumped as (
  update "public".service_schema
  set version = version operator(pg_catalog.+) 1
)
select pg_catalog.pg_notify('service_model', $1);

commit;
