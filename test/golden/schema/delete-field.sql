-- DELETE /fields/books/pages

begin;

-- $1 = 'public'
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('lateral structure ' operator(pg_catalog.||) $1::text,
  0));

-- $1 = '20000'
select pg_catalog.set_config('lock_timeout', $1, true);

alter table "public"."books" drop column "pages";

-- $1 = 'books'
-- $2 = 'pages'
delete from "public"."service_fields" alias
using "public"."service_relations" relation
where relation.many_collection operator(pg_catalog.=) $1::text
and relation.many_field operator(pg_catalog.=) $2::text
and alias.collection operator(pg_catalog.=) relation.one_collection
and alias.field operator(pg_catalog.=) relation.one_field;

-- $1 = 'books'
-- $2 = 'pages'
delete from "public"."service_relations"
where many_collection operator(pg_catalog.=) $1::text
and $2::text in (many_field::text, one_collection_field::text);

-- $1 = 'books'
-- $2 = 'pages'
update "public"."service_relations"
set one_field = null
where one_collection operator(pg_catalog.=) $1::text
and one_field operator(pg_catalog.=) $2::text;

-- $1 = 'pages'
-- $2 = 'books'
update "public"."service_relations"
set junction_field = nullif(junction_field::text, $1::text), sort_field = nullif(sort_field::text, $1::text)
where many_collection operator(pg_catalog.=) $2::text
and $1::text in (junction_field::text, sort_field::text);

-- $1 = 'books'
-- $2 = 'pages'
delete from "public"."service_fields"
where collection operator(pg_catalog.=) $1::text
and field operator(pg_catalog.=) $2::text;

-- $1 = 'books'
-- $2 = 'pages'
update "public"."service_fields"
set "group" = null
where collection operator(pg_catalog.=) $1::text
and "group" operator(pg_catalog.=) $2::text;

-- $1 = 'pages'
-- $2 = 'books'
update "public"."service_collections"
set archive_field = nullif(archive_field::text, $1::text), sort_field = nullif(sort_field::text, $1::text),
  search_field = nullif(search_field::text, $1::text)
where collection operator(pg_catalog.=) $2::text
and $1::text in (archive_field::text, sort_field::text, search_field::text);

-- $1 = 'pages'
-- $2 = 'books'
update "public"."service_collections"
set item_duplication_fields = (item_duplication_fields::jsonb operator(pg_catalog.-) $1::text)::json
where collection operator(pg_catalog.=) $2::text
and pg_catalog.json_typeof(item_duplication_fields) operator(pg_catalog.=) 'array'
and item_duplication_fields::jsonb operator(pg_catalog.@>) pg_catalog.to_jsonb($1::text);

-- $1 = 'pages'
-- $2 = 'books'
update "public"."service_permissions"
set "fields" = nullif(pg_catalog.array_to_string(pg_catalog.array_remove(pg_catalog.string_to_array("fields", ','),
  $1::text),
  ','),
  '')
where collection operator(pg_catalog.=) $2::text
and $1::text operator(pg_catalog.=) any (pg_catalog.string_to_array("fields", ','));

-- $1 = 'public'
with bumped as (
  update "public".service_schema
  set version = version operator(pg_catalog.+) 1
)
select pg_catalog.pg_notify('service_model', $1);

commit;
