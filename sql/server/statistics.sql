-- What ANALYZE has found out about some tables: their rows, and of their columns the most common values and a histogram. A table
-- whose statistics the role may not see, or that was never analyzed, has none. $1: [[schema, table], ...] as JSON. The version of a
-- table changes whenever it is analyzed, or grows; $2, as JSON by "schema.table", holds those that are known: these tables are left out.
select coalesce(json_agg(json_build_object('schema', t.schema, 'table', t.name, 'version', t.version, 'rows', t.rows, 'bytes', t.bytes, 'columns', c.columns)), '[]')::text
from (
  select n.nspname as schema, r.relname as name, greatest(r.reltuples, -1)::float8 as rows, r.relkind,
    case when r.relkind in ('r', 'm') then pg_relation_size(r.oid) end as bytes,
    concat_ws(' ', r.oid, greatest(s.last_analyze, s.last_autoanalyze), r.reltuples::bigint) as version
  from json_array_elements($1::json) w
  join pg_namespace n on n.nspname = (w ->> 0)
  join pg_class r on r.relnamespace = n.oid and r.relname = (w ->> 1)
  left join pg_stat_all_tables s on s.relid = r.oid
) t
cross join lateral (
  select json_agg(json_build_array(p.attname, p.null_frac, p.n_distinct, p.most_common_vals::text::text[], p.most_common_freqs, p.histogram_bounds::text::text[])) as columns
  from pg_stats p
  where p.schemaname = t.schema and p.tablename = t.name and p.inherited = (t.relkind = 'p')
) c
where ($2::json ->> (t.schema || '.' || t.name)) is distinct from t.version::text
