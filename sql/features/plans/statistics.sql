-- What the planner knows about the served tables and their indexes, as one document. $1: the schemas that are served, a JSON list; $2: the
-- schema of the service's own tables, or ''; $3: their names, a JSON list. pg_stats leaves out columns that the role may not read.
with relations as materialized (
  select class.oid, class.relname, class.relkind, class.relpages, class.reltuples, class.relallvisible, class.relrowsecurity, namespace.nspname,
    namespace.nspname = $2::text and class.relname in (select pg_catalog.json_array_elements_text($3::json)) as own
  from pg_catalog.pg_class class
  join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
  where class.relkind in ('r', 'p', 'm')
    and (
      namespace.nspname in (select pg_catalog.json_array_elements_text($1::json))
      or (namespace.nspname = $2::text and class.relname in (select pg_catalog.json_array_elements_text($3::json)))
    )
),
indexes as materialized (
  select index.indexrelid, index.indrelid, index.indisunique, index.indisvalid, index.indexprs is not null as computed, relations.nspname, relations.own,
    class.relname, class.relkind, class.relpages, class.reltuples
  from relations
  join pg_catalog.pg_index index on index.indrelid = relations.oid
  join pg_catalog.pg_class class on class.oid = index.indexrelid
)
select pg_catalog.json_build_object(
  'server', pg_catalog.current_setting('server_version_num')::pg_catalog.int4,
  'database', (
    select pg_catalog.json_build_object(
      'provider', found.datlocprovider,
      'collate', found.datcollate,
      'ctype', found.datctype,
      'locale', coalesce(pg_catalog.to_jsonb(found) ->> 'datlocale', pg_catalog.to_jsonb(found) ->> 'daticulocale'),
      'encoding', pg_catalog.pg_encoding_to_char(found.encoding)
    )
    from pg_catalog.pg_database found where found.datname = pg_catalog.current_database()
  ),
  'settings', (
    select pg_catalog.json_object_agg(setting.name, setting.setting order by setting.name)
    from pg_catalog.pg_settings setting
    where setting.name ~ '^(enable_|cpu_|parallel_|geqo|min_parallel_|max_parallel_workers)'
      or setting.name::pg_catalog.text in (
        'work_mem', 'hash_mem_multiplier', 'effective_cache_size', 'effective_io_concurrency', 'random_page_cost', 'seq_page_cost',
        'default_statistics_target', 'constraint_exclusion', 'cursor_tuple_fraction', 'from_collapse_limit', 'join_collapse_limit',
        'recursive_worktable_factor', 'jit_above_cost', 'default_text_search_config'
      )
  ),
  -- Those of them that somebody has changed.
  'changed', (
    select coalesce(pg_catalog.json_agg(setting.name order by setting.name), '[]')
    from pg_catalog.pg_settings setting where setting.setting <> setting.boot_val
  ),
  'tables', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', relations.nspname,
      'table', relations.relname,
      'own', relations.own,
      'kind', relations.relkind,
      'pages', case when relations.relkind = 'p' then 0 else pg_catalog.pg_relation_size(relations.oid) / pg_catalog.current_setting('block_size')::pg_catalog.int8 end,
      'relpages', relations.relpages,
      'reltuples', relations.reltuples,
      'relallvisible', relations.relallvisible,
      'secured', relations.relrowsecurity,
      'analyzed', greatest(activity.last_analyze, activity.last_autoanalyze),
      'changed', coalesce(activity.n_mod_since_analyze, 0),
      'written', coalesce(activity.n_tup_ins + activity.n_tup_upd + activity.n_tup_del, 0),
      -- The tables that it is a partition of, or inherits from.
      'ancestors', (
        with recursive above (oid) as (
          select inherits.inhparent from pg_catalog.pg_inherits inherits where inherits.inhrelid = relations.oid
          union
          select inherits.inhparent from above join pg_catalog.pg_inherits inherits on inherits.inhrelid = above.oid
        )
        select coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(namespace.nspname, class.relname)), '[]')
        from above
        join pg_catalog.pg_class class on class.oid = above.oid
        join pg_catalog.pg_namespace namespace on namespace.oid = class.relnamespace
      ),
      'columns', (
        select coalesce(pg_catalog.json_object_agg(attribute.attname, pg_catalog.format_type(attribute.atttypid, attribute.atttypmod) order by attribute.attnum), '{}')
        from pg_catalog.pg_attribute attribute
        where attribute.attrelid = relations.oid and attribute.attnum > 0 and not attribute.attisdropped
      )
    ) order by relations.nspname, relations.relname), '[]')
    from relations
    left join pg_catalog.pg_stat_all_tables activity on activity.relid = relations.oid
  ),
  'indexes', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', indexes.nspname,
      'table', relations.relname,
      'index', indexes.relname,
      'own', indexes.own,
      'definition', pg_catalog.pg_get_indexdef(indexes.indexrelid),
      'unique', indexes.indisunique,
      'pages', case when indexes.relkind = 'I' then 0 else pg_catalog.pg_relation_size(indexes.indexrelid) / pg_catalog.current_setting('block_size')::pg_catalog.int8 end,
      'relpages', indexes.relpages,
      'reltuples', indexes.reltuples,
      'scans', coalesce(activity.idx_scan, 0),
      -- Of an index over an expression: the columns that its values come from.
      'sources', case when indexes.computed then (
        select coalesce(pg_catalog.json_agg(distinct attribute.attname), '[]')
        from pg_catalog.pg_depend depend
        join pg_catalog.pg_attribute attribute on attribute.attrelid = indexes.indrelid and attribute.attnum = depend.refobjsubid
        where depend.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and depend.objid = indexes.indexrelid
          and depend.refobjid = indexes.indrelid and depend.refobjsubid > 0
      ) else '[]'::json end
    ) order by indexes.nspname, relations.relname, indexes.relname), '[]')
    from indexes
    join relations on relations.oid = indexes.indrelid
    left join pg_catalog.pg_stat_all_indexes activity on activity.indexrelid = indexes.indexrelid
    where indexes.indisvalid
  ),
  'columns', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', found.schemaname,
      'table', found.tablename,
      'column', found.attname,
      'inherited', found.inherited,
      'null_frac', found.null_frac,
      'avg_width', found.avg_width,
      'n_distinct', found.n_distinct,
      'most_common_vals', found.most_common_vals::pg_catalog.text,
      'most_common_freqs', found.most_common_freqs::pg_catalog.text,
      'histogram_bounds', found.histogram_bounds::pg_catalog.text,
      'correlation', found.correlation,
      'most_common_elems', found.most_common_elems::pg_catalog.text,
      'most_common_elem_freqs', found.most_common_elem_freqs::pg_catalog.text,
      'elem_count_histogram', found.elem_count_histogram::pg_catalog.text,
      'range_length_histogram', ranges.lengths,
      'range_empty_frac', ranges.empty,
      'range_bounds_histogram', ranges.bounds
    ) order by found.schemaname, found.tablename, found.attname, found.inherited), '[]')
    from (
      select oid, nspname, relname from relations
      union all
      select indexrelid, nspname, relname from indexes where computed
    ) wanted
    join pg_catalog.pg_stats found on found.schemaname = wanted.nspname and found.tablename = wanted.relname
    join pg_catalog.pg_attribute attribute on attribute.attrelid = wanted.oid and attribute.attname = found.attname
    join pg_catalog.pg_type type on type.oid = attribute.atttypid
    -- Only of PostgreSQL 17 and later: older views do not have these columns.
    cross join lateral (
      select pg_catalog.to_jsonb(found) as document where type.typtype in ('r', 'm')
      union all
      select '{}'::pg_catalog.jsonb where type.typtype not in ('r', 'm')
    ) whole
    cross join lateral (
      select (
          select pg_catalog.array_agg(bound)::pg_catalog.text
          from pg_catalog.jsonb_array_elements_text(case when pg_catalog.jsonb_typeof(whole.document -> 'range_length_histogram') = 'array' then whole.document -> 'range_length_histogram' else '[]' end) bound
        ) as lengths,
        (whole.document ->> 'range_empty_frac')::pg_catalog.float4 as empty,
        (
          select pg_catalog.array_agg(bound)::pg_catalog.text
          from pg_catalog.jsonb_array_elements_text(case when pg_catalog.jsonb_typeof(whole.document -> 'range_bounds_histogram') = 'array' then whole.document -> 'range_bounds_histogram' else '[]' end) bound
        ) as bounds
    ) ranges
  ),
  'extended', (
    select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object(
      'table', pg_catalog.format('%I.%I', relations.nspname, relations.relname),
      'name', extended.stxname,
      'definition', pg_catalog.pg_get_statisticsobjdef(extended.oid)
    ) order by extended.stxname), '[]')
    from relations
    join pg_catalog.pg_statistic_ext extended on extended.stxrelid = relations.oid
  )
)::text
