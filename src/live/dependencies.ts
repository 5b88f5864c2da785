/** Which changes may change the answer of a read: of which tables, and of which rows where the plan says so. */
import type { CompiledRead } from '../engine/reads/compiled-read.js';
import type { ProbedKind, RowProbe } from '../plan/row-probe.js';
import { systemTables } from '../postgres/catalog/system-tables.js';
import type { LoggedChange, LoggedRow, LoggedTable } from '../postgres/changes/pgoutput.js';
import type { Source } from '../postgres/changes/publication.js';
import { splitKey } from '../sql/key-text.js';
import { type Caller, resolveVariable, type Values } from '../sql/parameter.js';
import { namesInStatement } from '../sql/verify.js';

export interface Dependencies {
  /** As schema.name. */
  readonly tables: ReadonlySet<string>;
  /** Where rows of one of the tables count only with certain values; null where all do. */
  readonly probe: RowProbe | null;
  /** What changes unseen, and why; null where everything is seen. */
  readonly unseen: string | null;
}

export function tableKey({ schema, name }: { readonly schema: string; readonly name: string }): string {
  return `${schema}.${name}`;
}

/** Of the tables that the statement names, those below them. */
export function dependenciesOf(
  { statement, rowProbe, calls }: CompiledRead,
  sources: ReadonlyMap<string, readonly Source[]>,
): Dependencies {
  const found: string[] = [];
  const unseen: string[] = [];
  if (calls.length > 0) unseen.push('a function: what it reads is not known');
  for (const { schema, name } of namesInStatement(statement.text).tables) {
    if (schema === undefined) continue;
    const served = tableKey({ schema, name });
    for (const source of sources.get(served) ?? [{ schema, name, unseen: 'it is not known what it shows' }]) {
      found.push(tableKey(source));
      if (source.unseen !== null) unseen.push(`"${tableKey(source)}": ${source.unseen}`);
    }
  }
  const probe = rowProbe();
  const probed = probe && tableKey({ schema: probe.schema, name: probe.table });
  // Where the table occurs once more, in a nested list or a rule, other rows of it count too.
  const isExact = probed !== null && found.filter((table) => table === probed).length === 1;
  return { tables: new Set(found), probe: isExact ? probe : null, unseen: unseen[0] ?? null };
}

/** The tables that a statement reads, without the rows of `own` that it is about; where `own` occurs once more, other rows of it count too. */
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

/** Whether it depends on tables of the service, where values of the caller are. */
export function readsOwnTables({ statement }: CompiledRead): boolean {
  return namesInStatement(statement.text).tables.some(({ name }) => systemTables().has(name));
}

/** The values of the probe for one request; null where any row may count. */
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

/** The values of the probe in a row that was changed, before and after; null where they are not known. */
export function changedKeys({ columns }: RowProbe, change: LoggedChange): readonly string[] | null {
  const { table, action, before, after } = change;
  const positions = columns.map(({ name }) => table.columns.findIndex((column) => column.name === name));
  const isIdentity = positions.every((position) => table.isFull || table.columns[position]?.isKey);
  // What is no part of the identity is not sent of a row as it was.
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

/** A null equals nothing. */
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

/** Equal values have equal texts; null for what is no such value. */
function normalize(text: string, kind: ProbedKind): string | null {
  if (kind === 'uuid') {
    const digits = text.replaceAll('-', '').toLowerCase();
    return /^[0-9a-f]{32}$/.test(digits) ? digits : null;
  }
  return /^[+-]?\d{1,20}$/.test(text) ? String(BigInt(text)) : null;
}

/** Which columns of the table the probes ask for. */
export function wantedColumns(table: LoggedTable, probes: Iterable<RowProbe>): readonly boolean[] {
  const names = new Set([...probes].flatMap(({ columns }) => columns.map(({ name }) => name)));
  return table.columns.map(({ name }) => names.has(name));
}
