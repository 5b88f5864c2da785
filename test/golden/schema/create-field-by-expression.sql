-- POST /fields/books {"field":"added","type":"timestamp","schema":{"default_value":"now()","is_indexed":true}}

begin;

-- $1 = 'public'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral structure ' operator(pg_catalog.||) $1::text,
  0));

-- $1 = '20000'
select pg_catalog.set_config('lock_timeout', $1, true);

alter table "public"."books" add column "added" timestamptz default (now());

create index "books_added_index" on "public"."books" ("added");

-- $1 = 'public'
with bumped as (
  update "public".service_schema
  set version = version operator(pg_catalog.+) 1
)
select pg_catalog.pg_notify('service_model', $1);

commit;
