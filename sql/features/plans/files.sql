-- The files of relations that have rows, with the number of pages that they must have. $1: a JSON list of {schema, name, pages}.
select pg_catalog.current_setting('data_directory') || '/' || pg_catalog.pg_relation_filepath(class.oid) as path, wanted.pages
from pg_catalog.json_to_recordset($1::json) wanted (schema pg_catalog.text, name pg_catalog.text, pages pg_catalog.int8)
join pg_catalog.pg_namespace namespace on namespace.nspname = wanted.schema
join pg_catalog.pg_class class on class.relnamespace = namespace.oid and class.relname = wanted.name
where wanted.pages > 0 and class.relkind in ('r', 'm', 'i') and pg_catalog.pg_relation_filepath(class.oid) is not null
