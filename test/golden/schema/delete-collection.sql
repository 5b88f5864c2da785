-- DELETE /collections/books

begin;

-- $1 = 'public'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral structure ' operator(pg_catalog.||) $1::text,
  0));

-- $1 = '20000'
select pg_catalog.set_config('lock_timeout', $1, true);

drop table "public"."books";

-- $1 = 'books'
delete from "public"."service_relations"
where $1::text in (many_collection::text, one_collection::text);

-- $1 = 'books'
update "public"."service_relations"
set "one_allowed_collections" = nullif(pg_catalog.array_to_string(pg_catalog.array_remove(pg_catalog.string_to_array("one_allowed_collections",
  ','),
  $1::text),
  ','),
  '')
where true
and $1::text operator(pg_catalog.=) any (pg_catalog.string_to_array("one_allowed_collections", ','));

-- $1 = 'books'
delete from "public"."service_fields"
where collection operator(pg_catalog.=) $1::text;

-- $1 = 'books'
delete from "public"."service_permissions"
where collection operator(pg_catalog.=) $1::text;

-- $1 = 'books'
delete from "public"."service_presets"
where collection operator(pg_catalog.=) $1::text;

-- $1 = 'books'
delete from "public"."service_comments"
where collection operator(pg_catalog.=) $1::text;

-- $1 = 'books'
delete from "public"."service_collections"
where collection operator(pg_catalog.=) $1::text;

-- $1 = 'public'
with bumped as (
  update "public".service_schema
  set version = version operator(pg_catalog.+) 1
)
select pg_catalog.pg_notify('service_model', $1);

commit;
