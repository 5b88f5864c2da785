-- DELETE /relations/books/author

begin;

-- $1 = 'public'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral structure ' operator(pg_catalog.||) $1::text,
  0));

-- $1 = '20000'
select pg_catalog.set_config('lock_timeout', $1, true);

alter table "public"."books" drop constraint "books_author_foreign";

-- $1 = 'books'
-- $2 = 'author'
delete from "public"."service_relations"
where many_collection operator(pg_catalog.=) $1::text
and many_field operator(pg_catalog.=) $2::text;

-- $1 = 'public'
with bumped as (
  update "public".service_schema
  set version = version operator(pg_catalog.+) 1
)
select pg_catalog.pg_notify('service_model', $1);

commit;
