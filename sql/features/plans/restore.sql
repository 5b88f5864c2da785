-- Gives the tables and indexes of a twin the statistics of another database. $1: a JSON list of relations, as "tables" and "indexes" of
-- statistics.sql; $2: a JSON list of columns, as "columns" of it. Relations and columns that the twin lacks are left out. Answers how
-- many relations and columns were restored, as JSON.
with relations as materialized (
  select pg_catalog.pg_restore_relation_stats(
    'schemaname', wanted.schema, 'relname', wanted.name, 'relpages', wanted.relpages, 'reltuples', wanted.reltuples,
    'relallvisible', least(wanted.relallvisible, wanted.relpages)
  ) as done
  from pg_catalog.json_to_recordset($1::json) wanted (
    schema pg_catalog.text, name pg_catalog.text, relpages pg_catalog.int4, reltuples pg_catalog.float4, relallvisible pg_catalog.int4
  )
  join pg_catalog.pg_namespace namespace on namespace.nspname = wanted.schema
  join pg_catalog.pg_class class on class.relnamespace = namespace.oid and class.relname = wanted.name and class.relkind in ('r', 'p', 'm', 'i', 'I')
),
columns as materialized (
  select pg_catalog.pg_restore_attribute_stats(
    'schemaname', wanted.schema, 'relname', wanted."table", 'attname', wanted."column", 'inherited', wanted.inherited,
    'null_frac', wanted.null_frac, 'avg_width', wanted.avg_width, 'n_distinct', wanted.n_distinct,
    'most_common_vals', wanted.most_common_vals, 'most_common_freqs', wanted.most_common_freqs::pg_catalog.float4[],
    'histogram_bounds', wanted.histogram_bounds, 'correlation', wanted.correlation,
    'most_common_elems', wanted.most_common_elems, 'most_common_elem_freqs', wanted.most_common_elem_freqs::pg_catalog.float4[],
    'elem_count_histogram', wanted.elem_count_histogram::pg_catalog.float4[],
    'range_length_histogram', wanted.range_length_histogram, 'range_empty_frac', wanted.range_empty_frac,
    'range_bounds_histogram', wanted.range_bounds_histogram
  ) as done
  from pg_catalog.json_to_recordset($2::json) wanted (
    schema pg_catalog.text, "table" pg_catalog.text, "column" pg_catalog.text, inherited pg_catalog.bool, null_frac pg_catalog.float4,
    avg_width pg_catalog.int4, n_distinct pg_catalog.float4, most_common_vals pg_catalog.text, most_common_freqs pg_catalog.text,
    histogram_bounds pg_catalog.text, correlation pg_catalog.float4, most_common_elems pg_catalog.text, most_common_elem_freqs pg_catalog.text,
    elem_count_histogram pg_catalog.text, range_length_histogram pg_catalog.text, range_empty_frac pg_catalog.float4,
    range_bounds_histogram pg_catalog.text
  )
  join pg_catalog.pg_namespace namespace on namespace.nspname = wanted.schema
  join pg_catalog.pg_class class on class.relnamespace = namespace.oid and class.relname = wanted."table"
  join pg_catalog.pg_attribute attribute on attribute.attrelid = class.oid and attribute.attname = wanted."column" and not attribute.attisdropped
)
select pg_catalog.json_build_object(
  'relations', (select pg_catalog.count(*) from relations where done),
  'columns', (select pg_catalog.count(*) from columns where done)
)::text
