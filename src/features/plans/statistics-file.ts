/** The file of `lateral statistics`: the structure of a database and all that its planner knows, without its rows. */
import { open, readFile } from 'node:fs/promises';
import { gunzipSync, gzipSync } from 'node:zlib';
import { StartError } from '../../base/errors.js';
import { isRecord, messageOf, parseOwnJson } from '../../base/narrow.js';
import { replaceFile } from '../traffic/replace-file.js';

export const STATISTICS_FORMAT = 'lateral-statistics';
export const STATISTICS_VERSION = 1;

/** A statement that builds a part of the structure again. */
export type StructureStatement = readonly [kind: string, name: string, statement: string];

export interface TableFacts {
  readonly schema: string;
  readonly table: string;
  /** Whether it is one of the service's own tables. */
  readonly own: boolean;
  /** `r` for a table, `p` for a partitioned one, `m` for a materialized view. */
  readonly kind: string;
  /** The length of its file; `relpages` is what it was when the table was last analyzed. */
  readonly pages: number;
  readonly relpages: number;
  /** Below 0 if the table was never analyzed. */
  readonly reltuples: number;
  readonly relallvisible: number;
  readonly secured: boolean;
  /** Schema and name of the tables that it is a partition of, or inherits from. */
  readonly ancestors?: readonly (readonly [schema: string, table: string])[];
  readonly analyzed: string | null;
  /** Rows that were written since. */
  readonly changed: number;
  /** Rows that were written since the counters of PostgreSQL were reset. */
  readonly written: number;
  readonly columns: Readonly<Record<string, string>>;
}

interface IndexFacts {
  readonly schema: string;
  readonly table: string;
  readonly index: string;
  readonly own: boolean;
  readonly definition: string;
  readonly unique: boolean;
  readonly pages: number;
  readonly relpages: number;
  readonly reltuples: number;
  readonly scans: number;
  /** The columns that the values of an index over an expression come from. */
  readonly sources: readonly string[];
}

/** A row of pg_stats. Lists of values are PostgreSQL's text of an array. */
export interface ColumnFacts {
  readonly schema: string;
  /** A table, or an index over an expression. */
  readonly table: string;
  readonly column: string;
  readonly inherited: boolean;
  readonly null_frac: number;
  readonly avg_width: number;
  readonly n_distinct: number;
  readonly most_common_vals: string | null;
  readonly most_common_freqs: string | null;
  readonly histogram_bounds: string | null;
  readonly correlation: number | null;
  readonly most_common_elems: string | null;
  readonly most_common_elem_freqs: string | null;
  readonly elem_count_histogram: string | null;
  readonly range_length_histogram: string | null;
  readonly range_empty_frac: number | null;
  readonly range_bounds_histogram: string | null;
}

/** The result of sql/features/plans/statistics.sql. */
export interface PlannerFacts {
  /** As `server_version_num`. */
  readonly server: number;
  readonly database: {
    /** `c` for the C library, `i` for ICU, `b` for PostgreSQL's own. */
    readonly provider: string;
    readonly collate: string;
    readonly ctype: string;
    readonly locale: string | null;
    readonly encoding: string;
  };
  readonly settings: Readonly<Record<string, string>>;
  /** The names of settings that do not have PostgreSQL's own value. */
  readonly changed: readonly string[];
  readonly tables: readonly TableFacts[];
  readonly indexes: readonly IndexFacts[];
  readonly columns: readonly ColumnFacts[];
  readonly extended: readonly { readonly table: string; readonly name: string; readonly definition: string }[];
}

export interface StatisticsFile extends PlannerFacts {
  readonly format: typeof STATISTICS_FORMAT;
  readonly version: number;
  readonly taken: string;
  readonly schemas: readonly string[];
  /** The schema of the service's own tables, or null if there are none. */
  readonly system: string | null;
  readonly structure: readonly StructureStatement[];
  /** Rows of the service's tables that describe collections and permissions, as JSON, by table. */
  readonly metadata: Readonly<Record<string, string>>;
  /** Columns whose values were left out. */
  readonly redacted: readonly string[];
}

/** The facts of the served tables: without those of the service's own. */
export function servedFacts({
  tables,
  indexes,
  columns,
}: PlannerFacts): Pick<PlannerFacts, 'tables' | 'indexes' | 'columns'> {
  const own = new Set([
    ...tables.flatMap(({ own, schema, table }) => (own ? [`${schema}.${table}`] : [])),
    ...indexes.flatMap(({ own, schema, index }) => (own ? [`${schema}.${index}`] : [])),
  ]);
  return {
    tables: tables.filter((each) => !each.own),
    indexes: indexes.filter((each) => !each.own),
    columns: columns.filter(({ schema, table }) => !own.has(`${schema}.${table}`)),
  };
}

/** Compressed if the name ends in `.gz`. Common values of columns are data: only the owner may read the file. */
export async function writeStatistics(path: string, file: StatisticsFile): Promise<number> {
  const text = `${JSON.stringify(file)}\n`;
  const bytes = path.endsWith('.gz') ? gzipSync(text) : Buffer.from(text);
  await replaceFile(path, (file) => writePrivate(file, bytes)).catch((error: unknown) => {
    throw new StartError(`"${path}" cannot be written: ${messageOf(error)}`);
  });
  return bytes.length;
}

const PRIVATE = 0o600;

async function writePrivate(path: string, bytes: Buffer): Promise<void> {
  const file = await open(path, 'w', PRIVATE);
  try {
    // The mode of a file that exists stays as it is otherwise.
    if ((await file.stat()).isFile()) await file.chmod(PRIVATE);
    await file.writeFile(bytes);
  } finally {
    await file.close();
  }
}

export async function readStatistics(path: string): Promise<StatisticsFile> {
  const bytes = await readFile(path).catch((error: unknown) => {
    throw new StartError(`"${path}" cannot be read: ${messageOf(error)}`);
  });
  const found = parse(bytes);
  if (!isRecord(found) || found['format'] !== STATISTICS_FORMAT)
    throw new StartError(`"${path}" is not a file of "lateral statistics", or is damaged`);
  if (found['version'] !== STATISTICS_VERSION)
    throw new StartError(
      `"${path}" has version ${String(found['version'])} of the format, and this program reads version ${STATISTICS_VERSION}: run "lateral statistics" again`,
    );
  const missing = PARTS.find((name) => !isRecord(found[name]));
  if (missing !== undefined)
    throw new StartError(`"${path}" is damaged: it has no "${missing}". Run "lateral statistics" again`);
  return parseOwnJson<StatisticsFile>(JSON.stringify(found));
}

/** Lists and objects that each file has. */
const PARTS = [
  ...['database', 'settings', 'changed', 'tables', 'indexes', 'columns', 'extended'],
  ...['schemas', 'structure', 'metadata', 'redacted'],
] as const;

function parse(bytes: Buffer): unknown {
  try {
    const isCompressed = bytes[0] === 0x1f && bytes[1] === 0x8b;
    return JSON.parse((isCompressed ? gunzipSync(bytes) : bytes).toString());
  } catch {
    return null;
  }
}
