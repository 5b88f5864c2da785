/** An index that could serve reads, and the statement that creates it. */
import { constraintName } from '../../compiler/sql/constraint-name.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';

export type CandidateKind =
  | 'equality'
  | 'range'
  | 'reference'
  | 'trigram'
  | 'array'
  | 'document'
  | 'words'
  | 'partial'
  | 'covering'
  | 'expression';

export interface IndexCandidate {
  readonly kind: CandidateKind;
  readonly schema: string;
  readonly table: string;
  readonly partitioned: boolean;
  readonly method: 'btree' | 'gin' | 'gist';
  /** Columns and expressions as SQL, with operator classes and directions. */
  readonly keys: readonly string[];
  readonly include: readonly string[];
  readonly where: string | null;
  /** For its name. */
  readonly names: readonly string[];
  /** The extension that it needs, or null. */
  readonly extension: string | null;
}

export const BTREE = { method: 'btree', include: [], where: null, extension: null } as const;

/** The index of a reference whose columns no index begins with. */
export function referenceCandidate(table: {
  readonly schema: string;
  readonly table: string;
  readonly columns: readonly string[];
  readonly partitioned: boolean;
}): IndexCandidate {
  const { schema, columns, partitioned } = table;
  const keys = columns.map(quoteIdentifier);
  return { kind: 'reference', schema, table: table.table, partitioned, ...BTREE, keys, names: columns };
}

/** As `create index` takes it, after the name: what distinguishes one index from another. */
export function definitionOf({ schema, table, method, keys, include, where }: IndexCandidate): string {
  const using = method === 'btree' ? '' : ` using ${method}`;
  const included = include.length === 0 ? '' : ` include (${include.join(', ')})`;
  const filtered = where === null ? '' : ` where ${where}`;
  return `on ${quoteIdentifier(schema)}.${quoteIdentifier(table)}${using} (${keys.join(', ')})${included}${filtered}`;
}

/** An index of a partitioned table cannot be created concurrently with writes. */
export function candidateStatement(candidate: IndexCandidate): string {
  const concurrently = candidate.partitioned ? '' : 'concurrently ';
  return `create index ${concurrently}${quoteIdentifier(candidateName(candidate))} ${definitionOf(candidate)};`;
}

function candidateName({ table, names, where, include, method, extension }: IndexCandidate): string {
  const kind = extension === 'pg_trgm' ? ['trigram'] : method === 'btree' ? [] : [method];
  const forms = [...kind, ...(include.length > 0 ? ['covering'] : []), ...(where === null ? [] : ['partial'])];
  return constraintName(table, [...names, ...forms].join('_'), 'index');
}
