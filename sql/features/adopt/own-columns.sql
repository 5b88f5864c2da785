-- Statements that add the columns which a project has added to system tables of the other installation ($1: its schema; $2: ours;
-- $3: pairs of table and column).
select pg_catalog.format('alter table %I.%I add column %I %s', $2::text, 'service_' || pg_catalog.substr(class.relname, 10),
  attribute.attname, pg_catalog.format_type(attribute.atttypid, attribute.atttypmod)) as statement
from json_to_recordset($3::json) wanted ("table" text, "column" text)
join pg_catalog.pg_class class on class.relname = wanted."table" and class.relnamespace = pg_catalog.to_regnamespace(pg_catalog.quote_ident($1))
join pg_catalog.pg_attribute attribute on attribute.attrelid = class.oid and attribute.attname = wanted."column"
  and attribute.attnum > 0 and not attribute.attisdropped
order by class.relname, attribute.attnum
