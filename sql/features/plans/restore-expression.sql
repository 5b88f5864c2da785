-- Gives the column $3 of the index $2 in the schema $1 the statistics of a sample, $4: a JSON list of [value, share]. Values that repeat in
-- the sample are common ones. If hardly any does, they are the bounds of a histogram.
with sample as materialized (
  select entry ->> 0 as value, (entry ->> 1)::pg_catalog.float8 as share from pg_catalog.json_array_elements($4::json) entry
),
counted as (
  select pg_catalog.count(value) as distinct_values, coalesce(pg_catalog.sum(share) filter (where value is null), 0) as missing,
    coalesce(pg_catalog.max(share), 0) as largest, coalesce(pg_catalog.avg(pg_catalog.length(value)), 8)::pg_catalog.int4 as width
  from sample
),
common as (
  select pg_catalog.array_agg(value order by share desc, value)::pg_catalog.text as vals, pg_catalog.array_agg(share::pg_catalog.float4 order by share desc, value) as freqs
  from (select value, share from sample where value is not null order by share desc, value limit 100) most
)
select pg_catalog.pg_restore_attribute_stats(
  'schemaname', $1::pg_catalog.text, 'relname', $2::pg_catalog.text, 'attname', $3::pg_catalog.text, 'inherited', false,
  'null_frac', counted.missing::pg_catalog.float4, 'avg_width', counted.width,
  'n_distinct', case when counted.distinct_values < 60 then counted.distinct_values::pg_catalog.float4 else (-0.5)::pg_catalog.float4 end,
  'most_common_vals', case when counted.distinct_values < 60 then common.vals end,
  'most_common_freqs', case when counted.distinct_values < 60 then common.freqs end
)
from counted, common
