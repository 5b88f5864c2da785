-- PATCH /relations/books/author {"meta":{"one_deselect_action":"delete"},"schema":{"on_delete":"CASCADE"}}

begin;

-- $1 = 'public'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral structure ' operator(pg_catalog.||) $1::text,
  0));

-- $1 = '20000'
select pg_catalog.set_config('lock_timeout', $1, true);

alter table "public"."books" drop constraint "books_author_foreign";

alter table "public"."books" add constraint "books_author_foreign" foreign key ("author")
  references "public"."authors" ("id") on delete cascade on update no action;

-- $1 = '{"one_deselect_action":"delete"}'
-- $2 = 'books'
-- $3 = 'author'
update "public"."service_relations" relation
set "one_deselect_action" = given."one_deselect_action"
from pg_catalog.json_populate_record(null::"public"."service_relations", $1::json) given
where relation.many_collection operator(pg_catalog.=) $2::text
and relation.many_field operator(pg_catalog.=) $3::text;

-- $1 = 'public'
with bumped as (
  update "public".service_schema
  set version = version operator(pg_catalog.+) 1
)
select pg_catalog.pg_notify('service_model', $1);

commit;
