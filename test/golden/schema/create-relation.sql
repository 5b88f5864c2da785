-- POST /relations {"collection":"books","field":"author","related_collection":"authors",
--   "meta":{"one_field":"books","one_deselect_action":"nullify"},"schema":{"on_delete":"SET NULL"}}

begin;

-- $1 = 'public'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral structure ' operator(pg_catalog.||) $1::text,
  0));

-- $1 = '20000'
select pg_catalog.set_config('lock_timeout', $1, true);

alter table "public"."books" add constraint "books_author_foreign" foreign key ("author")
  references "public"."authors" ("id") on delete set null on update no action;

-- $1 = '{"one_field":"books","one_deselect_action":"nullify","many_collection":"books","many_field":"author","one_collection":"authors"}'
insert into "public"."service_relations" ("one_field", "one_deselect_action", "many_collection", "many_field",
  "one_collection")
select "one_field", "one_deselect_action", "many_collection", "many_field", "one_collection"
from pg_catalog.json_populate_record(null::"public"."service_relations", $1::json);

-- $1 = 'public'
with bumped as (
  update "public".service_schema
  set version = version operator(pg_catalog.+) 1
)
select pg_catalog.pg_notify('service_model', $1);

commit;
