/** Finds the tables, and for some plans the rows, whose changes may change the answer of a read. */

import { type ProbedKind, type RowProbe, rowProbe } from '../../compiler/plan/row-probe.js';
import { splitKey } from '../../compiler/sql/key-text.js';
import { type Caller, resolveVariable, type Values } from '../../compiler/sql/parameter.js';
import { namesInStatement } from '../../compiler/sql/verify.js';
import type { CompiledRead } from '../execute/reads/compiled-read.js';
import { systemTables } from '../postgres/catalog/system-tables.js';
import type { LoggedChange, LoggedRow, LoggedTable, Source } from './change-source.js';

export interface Dependencies {
  /** As schema.name. */
  readonly tables: ReadonlySet<string>;
  /** If only rows of one table with certain values matter: these columns. Otherwise null. */
  readonly probe: RowProbe | null;
  /** Data whose changes are not reported, and why; null if there is none. */
  readonly unseen: string | null;
  /** A table of which only some changes are reported, and why; null if there is none. */
  readonly incomplete: string | null;
}

export function tableKey({ schema, name }: { readonly schema: string; readonly name: string }): string {
  return `${schema}.${name}`;
}

const INHERITED = 'other tables inherit from it, and not all changes of them are reported';
const INSERTS_ONLY = 'it has no key, so its updates and deletions are not in the log';

/** The tables below the ones that the statement names. */
export function dependenciesOf(
  { statement, plan, calls }: CompiledRead,
  sources: ReadonlyMap<string, readonly Source[]>,
): Dependencies {
  const found: string[] = [];
  const unseen: string[] = [];
  let incomplete: string | null = null;
  if (calls.length > 0) unseen.push('a function: its tables are not known');
  for (const { schema, name } of namesInStatement(statement.text).tables) {
    if (schema === undefined) continue;
    const served = tableKey({ schema, name });
    for (const source of sources.get(served) ?? [{ schema, name, unseen: 'its tables are not known' }]) {
      found.push(tableKey(source));
      if (source.unseen !== null) unseen.push(`"${tableKey(source)}": ${source.unseen}`);
      if (source.insertsOnly) incomplete = `"${tableKey(source)}": ${INSERTS_ONLY}`;
      if (tableKey(source) !== served) incomplete = `"${served}": ${INHERITED}`;
    }
  }
  const probe = rowProbe(plan);
  const probed = probe && tableKey({ schema: probe.schema, name: probe.table });
  // If the table occurs again, in a nested list or a rule, other rows of it matter too.
  const isExact = probed !== null && found.filter((table) => table === probed).length === 1;
  return { tables: new Set(found), probe: isExact ? probe : null, unseen: unseen[0] ?? null, incomplete };
}

/** The tables that a statement reads, without one occurrence of `own`: if it occurs again, other rows of it matter too. */
export function relatedTables(
  { statement }: CompiledRead,
  own: string,
  sources: ReadonlyMap<string, readonly Source[]> | null,
): ReadonlySet<string> {
  const found = namesInStatement(statement.text).tables.flatMap(({ schema, name }) => {
    if (schema === undefined) return [];
    const served = tableKey({ schema, name });
    return sources?.get(served)?.map(tableKey) ?? [served];
  });
  const position = found.indexOf(own);
  return new Set(found.filter((_, index) => index !== position));
}

/** Whether it reads the service's own tables, which hold values of the caller. */
export function readsOwnTables({ statement }: CompiledRead): boolean {
  return namesInStatement(statement.text).tables.some(({ name }) => systemTables().has(name));
}

/** The values of the probe for one request, or null if any row may matter. */
export function probeKey({ columns }: RowProbe, values: Values, caller: Caller): string | null {
  const parts: string[] = [];
  for (const { slot, kind, part } of columns) {
    const given = typeof slot === 'number' ? values[slot] : slot.constant;
    const isVariable = typeof given === 'object' && given !== null && 'variable' in given;
    const value = isVariable ? resolveVariable(given.variable, caller) : given;
    if (value === undefined || value === null || typeof value === 'object') return null;
    const text = part ? splitKey(String(value), part.count)?.[part.position] : String(value);
    const normal = text === undefined ? null : normalize(text, kind);
    if (normal === null) return null;
    parts.push(normal);
  }
  return parts.join(' ');
}

/** Where the first row of an answer may begin: each row is an object. */
const FIRST_ROW = '{"data":'.length;
const FIRST_ROW_OF_OPERATION = '{"data":{'.length;

/** Whether an answer that depends on certain rows has none, which may be because its caller may not see them. */
export function mayHideRows(
  { compiled, dependencies }: { readonly compiled: CompiledRead; readonly dependencies: Dependencies },
  cell: Buffer,
): boolean {
  if (dependencies.probe?.isRestricted !== true) return false;
  return !cell.includes('{', compiled.result === 'operation' ? FIRST_ROW_OF_OPERATION : FIRST_ROW);
}

/** The values of the probe in a changed row, before and after; null if they are not known. */
export function changedKeys({ columns }: RowProbe, change: LoggedChange): readonly string[] | null {
  const { table, action, before, after } = change;
  const positions = columns.map(({ name }) => table.columns.findIndex((column) => column.name === name));
  const isIdentity = positions.every((position) => table.isFull || table.columns[position]?.isKey);
  // PostgreSQL sends only the replica identity of the row before the change.
  if (action !== 'create' && !isIdentity) return null;
  const keys: string[] = [];
  for (const row of [before, after]) {
    if (row === null) continue;
    const key = keyIn(row, positions, columns);
    if (key === null) return null;
    keys.push(key);
  }
  return keys.length > 0 ? keys : null;
}

/** The text for null. No normalized value equals it. */
const NO_VALUE = '-';

function keyIn(
  row: LoggedRow,
  positions: readonly number[],
  columns: readonly { readonly kind: ProbedKind }[],
): string | null {
  const parts: string[] = [];
  for (const [index, { kind }] of columns.entries()) {
    const value = row[positions[index] ?? -1];
    if (value === undefined) return null;
    const normal = value === null ? NO_VALUE : normalize(value, kind);
    if (normal === null) return null;
    parts.push(normal);
  }
  return parts.join(' ');
}

/** Equal values get equal texts; other texts get null. */
function normalize(text: string, kind: ProbedKind): string | null {
  if (kind === 'uuid') {
    const digits = text.replaceAll('-', '').toLowerCase();
    return /^[0-9a-f]{32}$/.test(digits) ? digits : null;
  }
  return /^[+-]?\d{1,20}$/.test(text) ? String(BigInt(text)) : null;
}

/** The columns of the table that the probes need. */
export function wantedColumns(table: LoggedTable, probes: Iterable<RowProbe>): readonly boolean[] {
  const names = new Set([...probes].flatMap(({ columns }) => columns.map(({ name }) => name)));
  return table.columns.map(({ name }) => names.has(name));
}
