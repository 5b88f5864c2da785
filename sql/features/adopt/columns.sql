-- The columns of the tables of another installation ($1: its schema) and of our own ($2), with their types and defaults.
select class.relname as "table", attribute.attname as name, type.typname as type, home.nspname as type_schema, attribute.attnotnull as required,
  pg_catalog.pg_get_expr(initial.adbin, initial.adrelid) as initial
from pg_catalog.pg_class class
join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
join pg_catalog.pg_attribute attribute on attribute.attrelid = class.oid and attribute.attnum > 0 and not attribute.attisdropped
join pg_catalog.pg_type type on type.oid = attribute.atttypid
join pg_catalog.pg_namespace home on home.oid = type.typnamespace
left join pg_catalog.pg_attrdef initial on initial.adrelid = class.oid and initial.adnum = attribute.attnum
where class.relkind = 'r'
  and ((namespace.nspname = $1 and class.relname like 'directus\_%') or (namespace.nspname = $2 and class.relname like 'service\_%'))
order by class.relname, attribute.attnum
