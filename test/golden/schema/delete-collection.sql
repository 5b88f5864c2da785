-- DELETE /collections/books

begin;

-- $1 = 'public'
select pg_advisory_xact_lock(hashtextextended('lateral structure ' || $1::text, 0));

-- $1 = '20000'
select set_config('lock_timeout', $1, true);

drop table "public"."books";

-- $1 = 'books'
delete
from "public"."service_relations"
where $1::text in (many_collection, one_collection);

-- $1 = 'books'
update "public"."service_relations" set "one_allowed_collections" = nullif(array_to_string(array_remove(string_to_array("one_allowed_collections", ','), $1::text), ','), '')
where true
and $1::text = any (string_to_array("one_allowed_collections", ','));

-- $1 = 'books'
delete
from "public"."service_fields"
where collection = $1::text;

-- $1 = 'books'
delete
from "public"."service_permissions"
where collection = $1::text;

-- $1 = 'books'
delete
from "public"."service_presets"
where collection = $1::text;

-- $1 = 'books'
delete
from "public"."service_comments"
where collection = $1::text;

-- $1 = 'books'
delete
from "public"."service_collections"
where collection = $1::text;

-- $1 = 'public'
with bumped as (update "public".service_schema set version = version + 1)
select pg_notify('service_model', $1);

commit;
