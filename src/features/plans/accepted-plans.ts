/** The file of accepted plans: one entry for each shape and kind of plan, in an order that makes differences easy to review. */
import { readFile, writeFile } from 'node:fs/promises';
import { StartError } from '../../base/errors.js';
import { isRecord, messageOf, parseOwnJson } from '../../base/narrow.js';
import { writeYaml } from '../../base/yaml.js';
import type { PlanKind } from '../../server/batching/shape-stats.js';
import { digestOf } from '../../server/batching/shape-stats.js';
import { parseDocumentText } from '../snapshots/parse-document.js';
import { replaceFile } from '../traffic/replace-file.js';
import type { TwinIndex } from './index-size.js';
import type { PlannedClass } from './plan-requests.js';
import { conditionsOf, indexesOf, planLines, tablesOf } from './plan-tree.js';
import type { RecordedRequest } from './requests.js';
import type { PlannerFacts, StatisticsFile, TableFacts } from './statistics-file.js';

const PLANS_VERSION = 1;

export interface AcceptedPlan {
  /** The method and the path of the request that stands for the shape. */
  readonly request: string;
  readonly body?: string;
  /** The name of the role, "public" or "administrator". */
  readonly role: string;
  /** The ids of the caller, unless an administrator has sent the request. */
  readonly caller?: { readonly user: string | null; readonly role: string | null };
  readonly shape: string;
  readonly kind: PlanKind;
  readonly cost: number;
  readonly indexes: readonly string[];
  readonly tables: readonly string[];
  /** Digest of the statement. */
  readonly statement: string;
  readonly plan: readonly string[];
}

interface AcceptedTable {
  readonly rows: number;
  readonly columns: Readonly<Record<string, string>>;
}

export interface AcceptedFile {
  readonly version: number;
  readonly server: number;
  /** The planner's settings that differ from PostgreSQL's defaults. */
  readonly settings: Readonly<Record<string, string>>;
  readonly tables: Readonly<Record<string, AcceptedTable>>;
  readonly indexes: Readonly<Record<string, string>>;
  readonly plans: readonly AcceptedPlan[];
}

export async function readAccepted(path: string): Promise<AcceptedFile | null> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    if (isRecord(error) && error['code'] === 'ENOENT') return null;
    throw new StartError(`"${path}" cannot be read: ${messageOf(error)}`);
  });
  if (text === null) return null;
  let found: unknown;
  try {
    found = parseDocumentText(text);
  } catch (error) {
    throw new StartError(`"${path}": ${messageOf(error)}`);
  }
  if (!isRecord(found) || !Array.isArray(found['plans']))
    throw new StartError(`"${path}" is not a file of accepted plans`);
  if (found['version'] !== PLANS_VERSION)
    throw new StartError(
      `"${path}" has version ${String(found['version'])}, and this program reads version ${PLANS_VERSION}: accept the plans again`,
    );
  const parts = ['settings', 'tables', 'indexes'].filter((name) => !isRecord(found[name]));
  const damaged = found['plans'].findIndex((plan) => !isPlan(plan));
  if (parts.length > 0 || damaged >= 0)
    throw new StartError(
      `"${path}" is damaged: ${parts.length > 0 ? `it has no "${parts[0]}"` : `plan ${damaged + 1} is not complete`}. Restore it, or accept the plans again`,
    );
  return parseOwnJson<AcceptedFile>(JSON.stringify(found));
}

/** Whether an entry has all that a check reads. */
function isPlan(value: unknown): boolean {
  if (!isRecord(value)) return false;
  const { request, body, caller } = value;
  return (
    typeof request === 'string' &&
    (body === undefined || typeof body === 'string') &&
    (caller === undefined || isRecord(caller)) &&
    ['role', 'shape', 'kind', 'statement'].every((name) => typeof value[name] === 'string') &&
    typeof value['cost'] === 'number' &&
    ['indexes', 'tables', 'plan'].every((name) => Array.isArray(value[name]))
  );
}

export async function writeAccepted(path: string, file: AcceptedFile): Promise<void> {
  const notice = '# Plans that were accepted with "lateral plans check --accept". Review its changes like code.\n';
  await replaceFile(path, (path) => writeFile(path, notice + writeYaml(file))).catch((error: unknown) => {
    throw new StartError(`"${path}" cannot be written: ${messageOf(error)}`);
  });
}

/** The state of the twin that plans depend on. */
export interface PlannedState {
  readonly statistics: StatisticsFile;
  /** The types of the twin's columns, by schema.table. */
  readonly columns: ReadonlyMap<string, Readonly<Record<string, string>>>;
  readonly indexes: readonly TwinIndex[];
}

export function acceptedFile(planned: readonly PlannedClass[], state: PlannedState): AcceptedFile {
  const plans = planned.map(acceptedPlan).sort(inOrder);
  const used = new Set(plans.flatMap(({ tables }) => tables));
  const tables = state.statistics.tables
    .filter(({ table, own }) => used.has(table) && !own)
    .map((table): [string, AcceptedTable] => {
      const name = `${table.schema}.${table.table}`;
      return [name, { rows: Math.round(rowsOf(table)), columns: state.columns.get(name) ?? {} }];
    });
  const indexes = state.indexes
    .filter(({ table }) => used.has(table))
    .map(({ name, definition }): [string, string] => [name, definition]);
  return {
    version: PLANS_VERSION,
    server: state.statistics.server,
    settings: changedSettings(state.statistics),
    tables: Object.fromEntries(tables.sort(byName)),
    indexes: Object.fromEntries(indexes.sort(byName)),
    plans,
  };
}

function byName([one]: readonly [string, unknown], [other]: readonly [string, unknown]): number {
  return one < other ? -1 : 1;
}

function acceptedPlan({ id, request, role, kind, sent, plan, cost }: PlannedClass): AcceptedPlan {
  return {
    request: `${request.method} ${request.path}`,
    ...(request.body === null ? {} : { body: request.body }),
    role,
    ...(request.caller === null ? {} : { caller: request.caller }),
    shape: id,
    kind,
    cost,
    indexes: indexesOf(plan),
    tables: tablesOf(plan),
    statement: digestOf(sent.shape.statement.text),
    plan: planLines(plan),
  };
}

function inOrder(one: AcceptedPlan, other: AcceptedPlan): number {
  const key = ({ request, body = '', role, kind }: AcceptedPlan): string => `${request}\0${body}\0${role}\0${kind}`;
  return key(one) < key(other) ? -1 : 1;
}

/** The request of an entry, to plan it again. */
export function requestOf({ request, body, caller }: AcceptedPlan): RecordedRequest {
  const [method = 'GET', path = ''] = request.split(/ (.*)/s);
  return { method, path, body: body ?? null, caller: caller ?? null, ms: 0 };
}

/** The rows that the planner assumes: the density of the last ANALYZE times the pages of today. */
function rowsOf({ pages, relpages, reltuples }: TableFacts): number {
  if (reltuples < 0) return 0;
  return relpages > 0 && pages > 0 ? (reltuples / relpages) * pages : reltuples;
}

/** Why a plan may be worse than it was, most likely reasons first. Without a plan of today the request is refused. */
export function reasonsFor(
  before: AcceptedPlan,
  now: PlannedClass | null,
  file: AcceptedFile,
  state: PlannedState,
): string[] {
  const conditions = now ? conditionsOf(now.plan) : null;
  const lost = before.indexes.filter((name) => !now || !indexesOf(now.plan).includes(name));
  const tables = [...new Set([...before.tables, ...(now ? tablesOf(now.plan) : [])])];
  const changes = [
    ...lost.flatMap((name) => indexReason(name, file, state)),
    ...tables.flatMap((table) => typeReasons(table, conditions, file, state)),
  ];
  if (!now) return changes;
  const isOtherStatement = before.kind === now.kind && before.statement !== digestOf(now.sent.shape.statement.text);
  const reasons = [
    ...changes,
    ...tables.flatMap((table) => tableReasons(table, file, state)),
    ...settingReasons(file, state),
    ...(isOtherStatement && changes.length === 0
      ? ['the statement changed: the permissions, the metadata or the version of the service differ']
      : []),
  ];
  return reasons.length > 0 ? reasons : ['the planner chose another plan for the same schema and statistics'];
}

function indexReason(name: string, file: AcceptedFile, { indexes }: PlannedState): string[] {
  const present = indexes.find((index) => index.name === name);
  const definition = file.indexes[name];
  if (!present) return [`index "${name}" no longer exists${definition === undefined ? '' : ` (${definition})`}`];
  return present.definition === definition
    ? []
    : [`index "${name}" changed: ${definition} became ${present.definition}`];
}

/** A type counts if a condition of the plan names the column. Without a plan all of them count. */
function typeReasons(
  table: string,
  conditions: string | null,
  file: AcceptedFile,
  { columns }: PlannedState,
): string[] {
  return Object.entries(file.tables).flatMap(([name, before]) => {
    if (!name.endsWith(`.${table}`)) return [];
    const types = columns.get(name);
    if (!types) return [`table "${table}" no longer exists`];
    return Object.entries(before.columns).flatMap(([column, type]) => {
      if (types[column] === type || conditions?.includes(column) === false) return [];
      if (types[column] === undefined) return [`column "${table}"."${column}" no longer exists`];
      return [`the type of "${table}"."${column}" changed from ${type} to ${types[column]}`];
    });
  });
}

/** A table that grew by this factor explains a higher cost. */
const GROWTH = 1.5;
/** Statistics are stale if this share of the rows has changed: twice the share at which autovacuum analyzes a table. */
const STALE_SHARE = 0.2;

function tableReasons(table: string, file: AcceptedFile, { statistics }: PlannedState): string[] {
  return statistics.tables.flatMap((facts) => {
    if (facts.table !== table) return [];
    const before = file.tables[`${facts.schema}.${table}`]?.rows;
    const rows = Math.round(rowsOf(facts));
    const grown = before !== undefined && rows > GROWTH * Math.max(1, before);
    return [
      ...(grown ? [`table "${table}" grew from ${figure(before)} to ${figure(rows)} rows`] : []),
      ...staleness(facts),
    ];
  });
}

/** Tables with rows that PostgreSQL has no statistics of, as one sentence or none. */
export function neverAnalyzed(facts: Pick<PlannerFacts, 'tables' | 'columns'>): string[] {
  const names = unmeasured(facts).flatMap(({ table, analyzed }) => (analyzed === null ? [table] : []));
  return names.length === 0
    ? []
    : [`no statistics, because ANALYZE has not run or the role may not read the tables: ${names.join(', ')}`];
}

/** Served tables with rows and without statistics. An index that is created counts the rows, but measures no columns. */
export function unmeasured({ tables, columns }: Pick<PlannerFacts, 'tables' | 'columns'>): readonly TableFacts[] {
  const measured = new Set(columns.map(({ schema, table }) => `${schema}.${table}`));
  return tables.filter(
    ({ own, schema, table, reltuples, pages }) =>
      !own && pages > 0 && (reltuples < 0 || (reltuples > 0 && !measured.has(`${schema}.${table}`))),
  );
}

/** Old statistics of a table, or none at all. */
export function staleness({ table, reltuples, changed, analyzed, pages }: TableFacts): string[] {
  if (reltuples < 0) return pages > 0 ? [`table "${table}" was never analyzed: run ANALYZE`] : [];
  if (changed <= 50 + STALE_SHARE * reltuples) return [];
  const since = analyzed === null ? 'ANALYZE' : `ANALYZE on ${analyzed.slice(0, 10)}`;
  return [
    `the statistics of "${table}" are old: ${figure(changed)} rows changed since ${since}, when it had ${figure(reltuples)}`,
  ];
}

function settingReasons({ settings }: AcceptedFile, { statistics }: PlannedState): string[] {
  const now = changedSettings(statistics);
  return [...new Set([...Object.keys(settings), ...Object.keys(now)])].flatMap((name) => {
    const [before = 'its default', after = 'its default'] = [settings[name], now[name]];
    return before === after ? [] : [`${name} changed from ${before} to ${after}`];
  });
}

function changedSettings({ settings, changed }: StatisticsFile): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(settings).filter(([name]) => changed.includes(name)));
}

function figure(count: number): string {
  return Math.round(count).toLocaleString('en');
}
