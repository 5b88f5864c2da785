/**
 * Statistics of an index over an expression, as ANALYZE would gather them: computed from the common values and the histogram of the column
 * that the expression reads. Without them the planner assumes that half a percent of the rows have any value.
 */
import type { Database } from '../postgres/pools/database.js';
import { quoteIdentifier } from '../sql/fragment.js';
import { readSql } from '../sql/read-sql.js';
import type { TwinIndex } from './index-size.js';

const SOURCE = readSql('twin', 'expression-source.sql');
const RESTORE = readSql('twin', 'restore-expression.sql');

interface ExpressionSource {
  readonly column: string;
  readonly type: string;
  readonly expression: string;
  /** The name of the expression among the columns of the index. */
  readonly attribute: string;
}

/** Only for an index whose first key is an expression of one column that has statistics. */
export async function deriveStatistics(database: Database, { schema, name, table }: TwinIndex): Promise<void> {
  await database.own.use(async (session) => {
    const [source] = await session.query<ExpressionSource>(SOURCE, [schema, name], { prepare: true });
    if (!source) return;
    const { column, type, expression, attribute } = source;
    const sampled = sampleOf(expression, quoteIdentifier(column), type);
    const parameters = [schema, name, attribute];
    const rows = await session.query<{ sample: string | null }>(sampled, [schema, table, column]);
    const sample = rows[0]?.sample;
    if (sample) await session.query(RESTORE, [...parameters, sample], { prepare: true });
  });
}

/** The values of the expression with their shares, as a JSON list of [value, share]. All names are those of the catalog. */
function sampleOf(expression: string, column: string, type: string): string {
  return `select pg_catalog.json_agg(pg_catalog.json_build_array(value, share))::pg_catalog.text as sample
    from (
      select (${expression})::pg_catalog.text as value, pg_catalog.sum(share) as share
      from pg_catalog.pg_stats found
      cross join lateral (
        select * from rows from (pg_catalog.unnest(found.most_common_vals::pg_catalog.text::${type}[]),
          pg_catalog.unnest(found.most_common_freqs::pg_catalog.float8[])) common
        union all
        select bound, (1::pg_catalog.float8 operator(pg_catalog.-) found.null_frac::pg_catalog.float8 operator(pg_catalog.-)
          coalesce((select pg_catalog.sum(frequency) from pg_catalog.unnest(found.most_common_freqs::pg_catalog.float8[]) frequency), 0::pg_catalog.float8))
          operator(pg_catalog./) pg_catalog.cardinality(found.histogram_bounds::pg_catalog.text::${type}[])::pg_catalog.float8
        from pg_catalog.unnest(found.histogram_bounds::pg_catalog.text::${type}[]) bound
      ) sampled (${column}, share)
      where found.schemaname operator(pg_catalog.=) $1::pg_catalog.name and found.tablename operator(pg_catalog.=) $2::pg_catalog.name
        and found.attname operator(pg_catalog.=) $3::pg_catalog.name and not found.inherited
      group by 1
    ) computed`;
}
