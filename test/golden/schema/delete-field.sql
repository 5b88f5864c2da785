-- DELETE /fields/books/pages

begin;

-- $1 = 'public'
select pg_advisory_xact_lock(hashtextextended('lateral structure ' || $1::text, 0));

-- $1 = '20000'
select set_config('lock_timeout', $1, true);

alter table "public"."books" drop column "pages";

-- $1 = 'books'
-- $2 = 'pages'
delete
from "public"."service_fields" alias using "public"."service_relations" relation
where relation.many_collection = $1::text
and relation.many_field = $2::text
and alias.collection = relation.one_collection
and alias.field = relation.one_field;

-- $1 = 'books'
-- $2 = 'pages'
delete
from "public"."service_relations"
where many_collection = $1::text
and $2::text in (many_field, one_collection_field);

-- $1 = 'books'
-- $2 = 'pages'
update "public"."service_relations" set one_field = null
where one_collection = $1::text
and one_field = $2::text;

-- $1 = 'pages'
-- $2 = 'books'
update "public"."service_relations" set junction_field = nullif(junction_field, $1::text), sort_field = nullif(sort_field, $1::text)
where many_collection = $2::text
and $1::text in (junction_field, sort_field);

-- $1 = 'books'
-- $2 = 'pages'
delete
from "public"."service_fields"
where collection = $1::text
and field = $2::text;

-- $1 = 'books'
-- $2 = 'pages'
update "public"."service_fields" set "group" = null
where collection = $1::text
and "group" = $2::text;

-- $1 = 'pages'
-- $2 = 'books'
update "public"."service_collections" set archive_field = nullif(archive_field, $1::text), sort_field = nullif(sort_field, $1::text), search_field = nullif(search_field, $1::text)
where collection = $2::text
and $1::text in (archive_field, sort_field, search_field);

-- $1 = 'pages'
-- $2 = 'books'
update "public"."service_collections" set item_duplication_fields = (item_duplication_fields::jsonb - $1::text)::json
where collection = $2::text
and json_typeof(item_duplication_fields) = 'array'
and item_duplication_fields::jsonb @> to_jsonb($1::text);

-- $1 = 'pages'
-- $2 = 'books'
update "public"."service_permissions" set "fields" = nullif(array_to_string(array_remove(string_to_array("fields", ','), $1::text), ','), '')
where collection = $2::text
and $1::text = any (string_to_array("fields", ','));

-- $1 = 'public'
with bumped as (update "public".service_schema set version = version + 1)
select pg_notify('service_model', $1);

commit;
