/** Compares the plans of today with those that were accepted. */
import { parseOwnJson } from '../../base/narrow.js';
import { readSql } from '../../server/postgres/read-sql.js';
import {
  type AcceptedFile,
  type AcceptedPlan,
  neverAnalyzed,
  type PlannedState,
  reasonsFor,
  requestOf,
  staleness,
  unmeasured,
} from './accepted-plans.js';
import { listIndexes } from './index-size.js';
import { type PlannedClass, RequestPlanner, reasonOf, type UnplannedRequest } from './plan-requests.js';
import { indexesOf, planLines } from './plan-tree.js';
import type { RecordedRequest } from './requests.js';
import type { StatisticsFile, TableFacts } from './statistics-file.js';
import type { Twin } from './twin.js';

const FACTS = readSql('features', 'plans', 'statistics.sql');

/** An accepted plan and the plan of today. */
export interface ComparedPlan {
  readonly before: AcceptedPlan;
  /** The plan of today, or null if the request can no longer be planned. */
  readonly now: PlannedClass | null;
  readonly verdict: 'same' | 'changed' | 'worse';
  /** The respects in which it is worse. */
  readonly complaints: readonly string[];
  readonly reasons: readonly string[];
}

export interface CheckedPlans {
  readonly compared: readonly ComparedPlan[];
  /** Shapes, or kinds of plans of a shape, that the file does not have. */
  readonly added: readonly PlannedClass[];
  readonly unplanned: readonly UnplannedRequest[];
  readonly state: PlannedState;
}

interface CheckOptions {
  /** A plan is worse if its cost has grown by this factor. */
  readonly factor: number;
  readonly onProgress?: (done: number, all: number) => void;
}

export async function checkPlans(
  twin: Twin,
  accepted: AcceptedFile | null,
  requests: readonly RecordedRequest[],
  { factor, onProgress }: CheckOptions,
): Promise<CheckedPlans> {
  const planner = new RequestPlanner(twin);
  const state = await stateOf(twin);
  const { planned, unplanned } = await planner.planAll(requests, onProgress);
  const compared: ComparedPlan[] = [];
  for (const before of accepted?.plans ?? []) {
    if (accepted) compared.push(await compare(planner, before, { file: accepted, state, factor }));
  }
  const known = new Set((accepted?.plans ?? []).map(({ shape, kind }) => `${shape} ${kind}`));
  const replanned = new Set(compared.flatMap(({ now }) => (now ? [`${now.id} ${now.kind}`] : [])));
  const added = planned.filter(({ id, kind }) => !known.has(`${id} ${kind}`) && !replanned.has(`${id} ${kind}`));
  const refused = new Set(compared.flatMap(({ before, now }) => (now ? [] : [before.request])));
  const others = unplanned.filter(({ request }) => !refused.has(`${request.method} ${request.path}`));
  return { compared, added, unplanned: others, state };
}

async function stateOf({ core: { database }, statistics }: Twin): Promise<PlannedState> {
  const text = await database.own.use((session) => session.cell(FACTS, [JSON.stringify(database.schemas), '', '[]']));
  const { tables } = parseOwnJson<{ tables: readonly TableFacts[] }>(String(text));
  const columns = new Map(tables.map(({ schema, table, columns: types }) => [`${schema}.${table}`, types]));
  return { statistics, columns, indexes: await listIndexes(database) };
}

/** Costs differ a little by the height of indexes. */
const NOISE = 1.01;
/** Below this growth of the cost a factor means nothing: a hundredth of a millisecond. */
const LEAST_GROWTH = 2;

interface Comparison {
  readonly file: AcceptedFile;
  readonly state: PlannedState;
  readonly factor: number;
}

async function compare(planner: RequestPlanner, before: AcceptedPlan, comparison: Comparison): Promise<ComparedPlan> {
  const { file, state, factor } = comparison;
  let now: PlannedClass;
  try {
    now = await planner.plan(requestOf(before));
  } catch (error) {
    const complaints = [`the request cannot be planned: ${reasonOf(error)}`];
    return { before, now: null, verdict: 'worse', complaints, reasons: reasonsFor(before, null, file, state) };
  }
  const { cost } = now;
  const growth = cost / Math.max(before.cost, 0.01);
  const lost = before.indexes.filter((name) => !indexesOf(now.plan).includes(name));
  const complaints = [
    ...(growth >= factor && cost - before.cost >= LEAST_GROWTH
      ? [
          `the cost grew ${growth < 10 ? growth.toFixed(1) : Math.round(growth).toLocaleString('en')} times, from ${before.cost} to ${cost}`,
        ]
      : []),
    ...(growth > NOISE ? lost.map((name) => `the plan lost the index "${name}"`) : []),
  ];
  if (complaints.length > 0)
    return { before, now, verdict: 'worse', complaints, reasons: reasonsFor(before, now, file, state) };
  const isSame = planLines(now.plan).join('\n') === before.plan.join('\n');
  return { before, now, verdict: isSame ? 'same' : 'changed', complaints: [], reasons: [] };
}

/** Where the plans of older versions differ from those of 18, by measurement (test/features/plans/twin-fidelity.test.ts). */
const SINCE_18 = 'semi joins, skip scans';
const SINCE_17 = `joins with pages, duplicates, ${SINCE_18}`;
const OLDEST = `incremental sorts of lists, ${SINCE_17}`;
const OLDER: Readonly<Record<number, string>> = { 16: SINCE_17, 17: SINCE_18 };

/** The oldest version whose statistics are restored without loss. */
const TWIN_SERVER = 180_000;

/** Known reasons why a plan of the twin may differ from a plan of the original. */
export function differencesOf({ statistics, unbuilt, unknown }: Twin): string[] {
  const { server, extended, redacted, tables } = statistics;
  const major = Math.floor(server / 10_000);
  const unseen = unmeasured(statistics).filter(({ analyzed }) => analyzed !== null);
  const secured = tables.filter((table) => table.secured && !table.own);
  return [
    ...(server < TWIN_SERVER
      ? [
          `the database has PostgreSQL ${major}, and the twin plans with 18, which differs in places (docs/plan-checks.md): ${OLDER[major] ?? OLDEST}`,
        ]
      : []),
    ...extended.map(({ table, name }) => `extended statistics "${name}" of ${table} cannot be restored`),
    ...unbuilt.map(({ kind, name, reason }) => `${kind} ${name} could not be built: ${reason}`),
    ...unknown.map((name) => `index ${name} is not in the statistics: its size is estimated`),
    ...unseen.map(({ schema, table }) => `the role may not see the statistics of ${schema}.${table}`),
    ...secured.map(({ schema, table }) => `row-level security of ${schema}.${table} is not applied on the twin`),
    ...(redacted.length === 0 ? [] : [`values were left out of the statistics: ${redacted.join(', ')}`]),
    ...neverAnalyzed(statistics),
    ...tables.filter(({ own, reltuples }) => !own && reltuples >= 0).flatMap(staleness),
  ];
}

export function describeAge({ taken }: StatisticsFile): string {
  const days = (Date.now() - Date.parse(taken)) / 86_400_000;
  return days < 1 ? 'taken today' : `taken ${Math.floor(days)} ${days < 2 ? 'day' : 'days'} ago`;
}
