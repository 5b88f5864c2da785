/** The size of indexes that exist on the twin alone, estimated from the widths of their columns. */
import { parseOwnJson } from '../../base/narrow.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { readSql } from '../../server/postgres/read-sql.js';
import type { StatisticsFile } from './statistics-file.js';

const INDEXES = readSql('features', 'plans', 'indexes.sql');

/** An index of the twin. */
export interface TwinIndex {
  readonly schema: string;
  readonly name: string;
  readonly table: string;
  readonly method: string;
  /** The rows of its table. */
  readonly rows: number;
  readonly unique: boolean;
  readonly definition: string;
  readonly predicate: string | null;
  /** Whether a key, an exclusion constraint or the index of a partitioned table needs it. */
  readonly constraint: boolean;
  /** The columns and expressions that it is searched by. Equal texts have the same operator class, collation and order. */
  readonly keys: readonly string[];
  /** All columns and expressions in order, then the included columns. */
  readonly columns: readonly string[];
  readonly widths: readonly (number | null)[];
}

interface EstimatedIndex extends TwinIndex {
  readonly pages: number;
  /** The rows of the index: those that meet its predicate. */
  readonly reltuples: number;
}

export async function listIndexes(database: Database): Promise<readonly TwinIndex[]> {
  const schemas = JSON.stringify([...new Set([...database.schemas, database.system])]);
  return parseOwnJson<TwinIndex[]>(String(await database.own.use((session) => session.cell(INDEXES, [schemas]))));
}

/** Indexes that the statistics do not know: a migration has created them. */
export async function estimateNewIndexes(
  database: Database,
  { indexes }: StatisticsFile,
): Promise<readonly EstimatedIndex[]> {
  const known = new Set(indexes.map(({ schema, index }) => `${schema}.${index}`));
  const created = (await listIndexes(database)).filter(({ schema, name }) => !known.has(`${schema}.${name}`));
  const estimated: EstimatedIndex[] = [];
  for (const index of created) estimated.push(await estimateIndex(database, index));
  return estimated;
}

const PAGE_BYTES = 8_192;
/** Bytes of a page that hold entries, after its headers and at the usual fill factor. */
const USED_BYTES = (PAGE_BYTES - 40) * 0.9;
/** Bytes of an entry: its header and its pointer in the page. */
const ENTRY_BYTES = 12;
/** Bytes of a value of unknown width. */
const DEFAULT_WIDTH = 16;
/** Measured with pg_trgm: bytes of a GIN index for each byte of text. Elements of arrays and documents take less. */
const GIN_SHARE = 1;
const GIN_ROW_BYTES = 8;

export async function estimateIndex(database: Database, index: TwinIndex): Promise<EstimatedIndex> {
  const total = Math.max(0, index.rows);
  const reltuples = index.predicate === null ? total : Math.min(total, await rowsOf(database, index));
  const width = index.widths.reduce<number>((sum, each) => sum + (each ?? DEFAULT_WIDTH), 0);
  if (index.method === 'brin') return { ...index, reltuples, pages: 3 };
  const bytes =
    index.method === 'gin'
      ? reltuples * (GIN_ROW_BYTES + width * GIN_SHARE)
      : reltuples * (ENTRY_BYTES + Math.ceil(width / 8) * 8);
  return { ...index, reltuples, pages: Math.ceil(bytes / USED_BYTES) + 1 };
}

/** The rows that the planner expects to meet the predicate. */
async function rowsOf(database: Database, { schema, table, predicate }: TwinIndex): Promise<number> {
  const name = `${quoteIdentifier(schema)}.${quoteIdentifier(table)}`;
  const [row] = await database.own.use((session) =>
    session.query<{ 'QUERY PLAN': readonly [{ readonly Plan: { readonly 'Plan Rows': number } }] }>(
      `explain (format json) select from ${name} where ${predicate ?? 'true'}`,
    ),
  );
  return row?.['QUERY PLAN'][0].Plan['Plan Rows'] ?? 0;
}
