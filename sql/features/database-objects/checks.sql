-- Check constraints of the tables of the schemas $1, a JSON list, as one document. A check that a table inherits belongs to its parent.
select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
  'schema', namespace.nspname,
  'table', class.relname,
  'name', rule.conname,
  'columns', (
    select coalesce(pg_catalog.json_agg(attribute.attname order by attribute.attnum), '[]')
    from pg_catalog.pg_attribute attribute
    where attribute.attrelid = class.oid and attribute.attnum = any (rule.conkey)
  ),
  'expression', pg_catalog.pg_get_expr(rule.conbin, rule.conrelid, true),
  'valid', rule.convalidated,
  'inherited', rule.coninhcount > 0
) order by namespace.nspname, class.relname, rule.conname), '[]')::text
from pg_catalog.pg_constraint rule
join pg_catalog.pg_class class on class.oid = rule.conrelid
join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
where rule.contype = 'c' and namespace.nspname in (select pg_catalog.json_array_elements_text($1::json)) and not class.relispartition
