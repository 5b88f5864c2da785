-- DELETE /relations/books/author

begin;

-- $1 = 'public'
select pg_advisory_xact_lock(hashtextextended('lateral structure ' || $1::text, 0));

-- $1 = '20000'
select set_config('lock_timeout', $1, true);

alter table "public"."books" drop constraint "books_author_foreign";

-- $1 = 'books'
-- $2 = 'author'
delete
from "public"."service_relations"
where many_collection = $1::text
and many_field = $2::text;

-- $1 = 'public'
with bumped as (update "public".service_schema set version = version + 1)
select pg_notify('service_model', $1);

commit;
