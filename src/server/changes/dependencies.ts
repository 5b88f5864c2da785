/** Finds the tables, and for some plans the rows, whose changes may change the answer of a read. */
import { type LinkPlan, linkPlan, type Place } from '../../compiler/plan/links.js';
import { type ProbedKind, type RowProbe, rowProbe } from '../../compiler/plan/row-probe.js';
import { splitKey } from '../../compiler/sql/key-text.js';
import { type Caller, resolveVariable, type Values } from '../../compiler/sql/parameter.js';
import { namesInStatement } from '../../compiler/sql/verify.js';
import { readScope } from '../execute/caller-scope.js';
import { type CompiledRead, factOf } from '../execute/reads/compiled-read.js';
import { systemTables } from '../postgres/catalog/system-tables.js';
import type { LoggedRow, Source } from './change-source.js';

export interface Dependencies {
  /** As schema.name. */
  readonly tables: ReadonlySet<string>;
  /** The tables of which any row may matter. */
  readonly whole: ReadonlySet<string>;
  /** If only rows of the first table with certain values matter: these columns. Otherwise null. */
  readonly probe: RowProbe | null;
  /** Where tables are read by values that come with the answer: only rows with these values matter. */
  readonly places: readonly Place[];
  /** The sets of these values. */
  readonly sets: LinkPlan['sets'];
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

const NO_LINKS: LinkPlan = { places: [], sets: [] };

/** Other reads have functions, views or policies, whose tables are not known. */
const linksOf = factOf<LinkPlan>((compiled) => (readScope(compiled) === 'plain' ? linkPlan(compiled.plan) : NO_LINKS));

/** The tables below the ones that the statement names. */
export function dependenciesOf(compiled: CompiledRead, sources: ReadonlyMap<string, readonly Source[]>): Dependencies {
  const { statement, plan, calls } = compiled;
  const found: string[] = [];
  const unseen: string[] = [];
  /** Tables that are read through others, or with others below them. */
  const composed = new Set<string>();
  let incomplete: string | null = null;
  if (calls.length > 0) unseen.push('a function: its tables are not known');
  for (const { schema, name } of namesInStatement(statement.text).tables) {
    if (schema === undefined) continue;
    const served = tableKey({ schema, name });
    for (const source of sources.get(served) ?? [{ schema, name, unseen: 'its tables are not known' }]) {
      found.push(tableKey(source));
      if (source.unseen !== null) unseen.push(`"${tableKey(source)}": ${source.unseen}`);
      if (source.insertsOnly) incomplete = `"${tableKey(source)}": ${INSERTS_ONLY}`;
      if (tableKey(source) === served) continue;
      incomplete = `"${served}": ${INHERITED}`;
      for (const table of [served, tableKey(source)]) composed.add(table);
    }
  }
  const probe = rowProbe(plan);
  const probed = probe && tableKey({ schema: probe.schema, name: probe.table });
  const { places, sets } = linksOf(compiled);
  const placed = [...places.map(tableOfPlace), ...(probed === null ? [] : [probed])];
  // If the table occurs again, in a filter, a rule or a count, other rows of it matter too.
  const isExact = (table: string): boolean => {
    const occurrences = found.filter((each) => each === table).length;
    return occurrences === placed.filter((each) => each === table).length && !composed.has(table);
  };
  const tables = new Set(found);
  return {
    tables,
    whole: new Set([...tables].filter((table) => !isExact(table))),
    probe: probed !== null && isExact(probed) ? probe : null,
    places: places.filter((place) => isExact(tableOfPlace(place))),
    sets,
    unseen: unseen[0] ?? null,
    incomplete,
  };
}

export function tableOfPlace({ schema, table }: Pick<Place, 'schema' | 'table'>): string {
  return tableKey({ schema, name: table });
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

/** The values of columns, as one: equal values are equal texts or numbers, and numbers need less memory. */
export type LinkValue = string | number;

/** The values of the probe for one request, or null if any row may matter. */
export function probeKey({ columns }: RowProbe, values: Values, caller: Caller): LinkValue | null {
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
  return linkValue(parts.join(' '));
}

/** Where the first row of an answer may begin: each row is an object. */
const FIRST_ROW = '{"data":'.length;
const FIRST_ROW_OF_OPERATION = '{"data":{'.length;

/** Whether an answer that depends on certain rows has none, which may be because its caller may not see them. */
export function mayHideRows(
  { compiled, dependencies }: { readonly compiled: CompiledRead; readonly dependencies: Dependencies },
  cell: Buffer | null,
): boolean {
  if (dependencies.probe?.isRestricted !== true) return false;
  return !cell?.includes('{', compiled.result === 'operation' ? FIRST_ROW_OF_OPERATION : FIRST_ROW);
}

/** The text for null. No normalized value equals it. */
const NO_VALUE = '-';

/** The value of the columns in a row; null if it is not known. */
export function valueIn(
  row: LoggedRow,
  positions: readonly number[],
  columns: readonly { readonly kind: ProbedKind }[],
): LinkValue | null {
  const parts: string[] = [];
  for (const [index, { kind }] of columns.entries()) {
    const value = row[positions[index] ?? -1];
    if (value === undefined) return null;
    const normal = value === null ? NO_VALUE : normalize(value, kind);
    if (normal === null) return null;
    parts.push(normal);
  }
  return linkValue(parts.join(' '));
}

/** Equal values get equal texts; other texts get null. */
function normalize(text: string, kind: ProbedKind): string | null {
  if (kind === 'uuid') {
    const digits = text.replaceAll('-', '').toLowerCase();
    return /^[0-9a-f]{32}$/.test(digits) ? digits : null;
  }
  return /^[+-]?\d{1,20}$/.test(text) ? String(BigInt(text)) : null;
}

const SMALL = /^-?\d{1,15}$/;

function linkValue(text: string): LinkValue {
  return SMALL.test(text) ? Number(text) : text;
}

/** Values of a set above which any row of its table matters, and characters of all sets. */
const MAX_VALUES = 1_000;
const MAX_TEXT = 65_536;

/** The values of each set in the links of an answer, null for too many. `links`: as `compile/links.ts` makes them, or null if there is no row. */
export function linkValues(links: string | null, { sets, places }: Dependencies): readonly (LinkValue[] | null)[] {
  if (links === null) return sets.map(() => []);
  if (links.length > MAX_TEXT) return sets.map(() => null);
  const texts = links.split(';');
  return sets.map((_, set) => {
    const text = texts[set];
    if (text === undefined) return null;
    const values = text === '' ? [] : text.split(',');
    const distinct = values.length > 1 ? new Set(values) : values;
    const size = distinct instanceof Set ? distinct.size : distinct.length;
    return size > MAX_VALUES ? null : [...distinct].flatMap((value) => readValue(value, set, places));
  });
}

/** A value of a row as PostgreSQL writes it. References of many-to-any relations may be other texts. */
function readValue(text: string, set: number, places: readonly Place[]): readonly LinkValue[] {
  if (SMALL.test(text) && !text.startsWith('0') && !text.startsWith('-0')) return [Number(text)];
  const kinds = new Set<string>();
  const read: LinkValue[] = [];
  for (const { link, keys } of places)
    for (const side of [link, keys]) {
      if (side?.set !== set) continue;
      const kind = side.columns.map((column) => column.kind).join();
      if (kinds.has(kind)) continue;
      kinds.add(kind);
      const parts = text.split(' ').map((part, position) => normalize(part, side.columns[position]?.kind ?? 'integer'));
      if (parts.length === side.columns.length && !parts.includes(null)) read.push(linkValue(parts.join(' ')));
    }
  return read;
}
