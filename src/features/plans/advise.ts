/**
 * Advice about indexes. Candidates come from the plans of recorded requests (compile/index-candidates.ts). Each is created on the twin, with
 * its estimated size, alone and together with the others. It is kept only if a plan uses it and the cost of that plan falls clearly.
 */

import { createHash } from 'node:crypto';
import type { Field, Model } from '../../compiler/model/model.js';
import { quoteIdentifier } from '../../compiler/sql/fragment.js';
import type { Parameter } from '../../compiler/sql/parameter.js';
import { allNodes, explainCustom, type PlanNode, stretchOf } from '../../server/postgres/generic-plan.js';
import type { Database } from '../../server/postgres/pools/database.js';
import { readSql } from '../../server/postgres/read-sql.js';
import { candidateStatement, definitionOf, type IndexCandidate } from '../../server/schema/index-statement.js';
import { indexCandidates, type KnownValue } from '../index-candidates/index-candidates.js';
import { estimateIndex, listIndexes, type TwinIndex } from './index-size.js';
import { explainSent, type PlannedClass, RequestPlanner, type UnplannedRequest } from './plan-requests.js';
import { indexesOf } from './plan-tree.js';
import type { RecordedRequest } from './requests.js';
import type { Twin } from './twin.js';

interface GainingShape {
  readonly planned: PlannedClass;
  /** The part of the time of all requests. */
  readonly share: number;
  readonly before: number;
  readonly after: number;
}

export interface IndexAdvice {
  readonly candidate: IndexCandidate;
  readonly statement: string;
  /** The estimated size. */
  readonly bytes: number;
  /** Rows of its table that were written since the counters of PostgreSQL were reset. */
  readonly written: number;
  readonly shapes: readonly GainingShape[];
}

export interface IndexComplaint {
  readonly kind: 'redundant' | 'unused';
  readonly index: string;
  readonly reason: string;
  readonly bytes: number;
  readonly statement: string;
}

export interface AdviceReport {
  readonly advice: readonly IndexAdvice[];
  readonly complaints: readonly IndexComplaint[];
  readonly planned: readonly PlannedClass[];
  readonly unplanned: readonly UnplannedRequest[];
}

/** Costs of the planner: 100 to 280 of them take a millisecond. Cheaper reads are fine. */
const LEAST_COST = 100;
/** A candidate must make a read so many times cheaper. */
const LEAST_FACTOR = 3;
/** A simpler index is preferred if reads cost at most so many times more with it. */
const SIMILAR = 3;

/** A read, and its plan with the indexes that were chosen so far. */
interface Target {
  readonly planned: PlannedClass;
  readonly weight: number;
  readonly before: Explained;
  now: Explained;
}

interface Explained extends Pick<PlannedClass, 'plan' | 'cost'> {
  /** The cost of a plan for the values of the request, whatever plan the service uses. */
  readonly costOfValues: number;
}

/** Conditions that the planner can estimate for a value, and hardly at all without one. */
const OF_VALUES: ReadonlySet<string> = new Set(['trigram', 'array', 'document', 'words']);
const ANY_CONDITION = /./;

/**
 * The cost of a read, as far as the condition that the candidates are for can be estimated. How many rows have some words is a guess
 * without an index over them: a page that the planner expects to fill soon may have to read everything.
 */
function costOf({ plan, cost, costOfValues }: Explained, group: readonly IndexCandidate[]): number {
  const risk = group.some(({ kind }) => kind === 'words') ? stretchOf(plan, ANY_CONDITION) : 0;
  return (group.some(({ kind }) => OF_VALUES.has(kind)) ? costOfValues : cost) + risk;
}

/** Whether the indexes make a read clearly cheaper, and its plan uses one of them. */
function gains(bench: TrialBench, group: readonly IndexCandidate[], before: Explained, after: Explained): boolean {
  const isCheaper = costOf(after, group) * LEAST_FACTOR <= costOf(before, group);
  return isCheaper && group.some((candidate) => bench.uses(after.plan, candidate));
}

/** Indexes that are tried together, and the reads that they may serve. */
interface Trial {
  readonly group: readonly IndexCandidate[];
  readonly targets: readonly Target[];
}

export async function advise(
  twin: Twin,
  requests: readonly RecordedRequest[],
  onProgress: (done: number, all: number) => void = () => {},
): Promise<AdviceReport> {
  const { planned, unplanned } = await new RequestPlanner(twin).planAll(requests, onProgress);
  const existing = await listIndexes(twin.core.database);
  const bench = new TrialBench(twin);
  const targets = await targetsOf(bench, planned);
  const chosen = await chooseIndexes(bench, await usefulTrials(bench, targets));
  const advice = await describeChosen(bench, chosen, targets);
  return { advice, complaints: complaintsAbout(twin, existing, planned), planned, unplanned };
}

async function targetsOf(bench: TrialBench, planned: readonly PlannedClass[]): Promise<Target[]> {
  const isTimed = planned.some(({ ms }) => ms > 0);
  const weigh = ({ ms, calls, cost }: PlannedClass): number => (isTimed ? ms : calls * cost);
  const total = planned.reduce((sum, each) => sum + weigh(each), 0) || 1;
  const targets: Target[] = [];
  for (const each of planned) {
    const before = await bench.plan({ planned: each });
    targets.push({ planned: each, weight: weigh(each) / total, before, now: before });
  }
  return targets;
}

/** Creates indexes on the twin, and plans reads with them. */
class TrialBench {
  readonly sizes = new Map<string, number>();

  constructor(readonly twin: Twin) {}

  /** The name under which it is created: one that no other index has. */
  named(candidate: IndexCandidate): string {
    return `lateral_trial_${createHash('sha256').update(definitionOf(candidate)).digest('hex').slice(0, 16)}`;
  }

  /** Answers whether all could be created. */
  async create(group: readonly IndexCandidate[]): Promise<boolean> {
    const { database } = this.twin.core;
    for (const candidate of group) {
      const name = quoteIdentifier(this.named(candidate));
      const extension = candidate.extension === null ? '' : `create extension if not exists ${candidate.extension}; `;
      const isCreated = await database.own.use((session) =>
        session.query(`${extension}create index ${name} ${definitionOf(candidate)}`).then(
          () => true,
          () => false,
        ),
      );
      if (!isCreated) return false;
    }
    const names = new Map(group.map((candidate) => [`${candidate.schema}.${this.named(candidate)}`, candidate]));
    for (const index of await listIndexes(database)) {
      const candidate = names.get(`${index.schema}.${index.name}`);
      if (!candidate) continue;
      const estimated = await estimateIndex(database, index);
      this.sizes.set(definitionOf(candidate), estimated.pages * PAGE_BYTES);
      await this.twin.lengthen([estimated]);
      if (candidate.kind === 'expression') await deriveStatistics(database, index);
    }
    return true;
  }

  async drop(group: readonly IndexCandidate[]): Promise<void> {
    const names = group.map((each) => `${quoteIdentifier(each.schema)}.${quoteIdentifier(this.named(each))}`);
    await this.twin.core.database.own.use((session) => session.query(`drop index if exists ${names.join(', ')}`));
  }

  /** The plan that the service would have now: another index may lead to another kind of plan. */
  async plan({ planned }: Pick<Target, 'planned'>): Promise<Explained> {
    const { reads, database } = this.twin.core;
    reads.executor.chooseAgain();
    const sent = await reads.chosenShape(planned.read);
    const explained = await explainSent(this.twin, sent);
    const { 'Total Cost': costOfValues } = await explainCustom(database, sent.shape.statement.text, sent.values);
    return { ...explained, costOfValues };
  }

  uses(plan: PlanNode, candidate: IndexCandidate): boolean {
    return indexesOf(plan).includes(this.named(candidate));
  }
}

const PAGE_BYTES = 8_192;

/** Bytes of columns that an index may hold in addition to its keys. */
const MOST_INCLUDED_BYTES = 32;

/** Whether a covering index would be nearly as large as its table. */
function isWide({ statistics }: Twin, { schema, table, include }: IndexCandidate): boolean {
  const widths = statistics.columns.filter(
    (each) => each.schema === schema && each.table === table && include.includes(quoteIdentifier(each.column)),
  );
  return widths.reduce((sum, { avg_width }) => sum + avg_width, 0) > MOST_INCLUDED_BYTES;
}

/** Every candidate alone, for the reads that it comes from. */
async function usefulTrials(bench: TrialBench, targets: readonly Target[]): Promise<Trial[]> {
  const trials = new Map<string, { group: readonly IndexCandidate[]; targets: Target[] }>();
  for (const target of targets) {
    for (const group of indexCandidates(target.planned.read.compiled.plan, knownValues(bench.twin, target.planned))) {
      if (group.some((candidate) => isWide(bench.twin, candidate))) continue;
      if (costOf(target.before, group) < LEAST_COST) continue;
      const key = group.map(definitionOf).join('; ');
      const trial = trials.get(key) ?? { group, targets: [] };
      trials.set(key, trial);
      trial.targets.push(target);
    }
  }
  const useful: Trial[] = [];
  for (const { group, targets: candidates } of trials.values()) {
    const found = await tryGroup(bench, group, candidates);
    if (found) useful.push(found);
  }
  return useful;
}

async function tryGroup(
  bench: TrialBench,
  group: readonly IndexCandidate[],
  targets: readonly Target[],
): Promise<Trial | null> {
  const plans = await plansWith(bench, { group, targets });
  const used = group.filter((candidate) => [...plans.values()].some(({ plan }) => bench.uses(plan, candidate)));
  return used.length === 0 ? null : { group: used, targets: [...plans.keys()] };
}

/** The trial that saves most, then the one that saves most of what is left, and so on. */
async function chooseIndexes(bench: TrialBench, trials: readonly Trial[]): Promise<readonly IndexCandidate[]> {
  const chosen = new Map<string, IndexCandidate>();
  let left = trials;
  while (left.length > 0) {
    const measured: MeasuredTrial[] = [];
    for (const trial of left) {
      const plans = await plansWith(bench, trial);
      if (plans.size > 0) measured.push(measure(bench, trial, plans));
    }
    const best = bestOf(measured);
    if (!best) break;
    await bench.create(best.trial.group);
    for (const candidate of best.trial.group) chosen.set(definitionOf(candidate), candidate);
    for (const [target, plan] of best.plans) target.now = plan;
    // Others may gain no more, and are not tried again.
    left = measured.flatMap(({ trial }) => {
      const group = trial.group.filter((each) => !chosen.has(definitionOf(each)));
      return trial === best.trial || group.length === 0 ? [] : [{ ...trial, group }];
    });
  }
  return [...chosen.values()];
}

/**
 * The plans of today. Without an index over an expression the planner assumes that few rows have any value of it. An index that no plan can use
 * gives it the statistics of the expression, so that the costs before and after can be compared.
 */
async function plansWithout(bench: TrialBench, { group, targets }: Trial): Promise<Map<Target, Explained>> {
  if (!group.some(({ kind }) => kind === 'expression')) return new Map(targets.map((target) => [target, target.now]));
  const unusable = group.map((candidate) => ({ ...candidate, where: 'false' }));
  const plans = new Map<Target, Explained>();
  try {
    if (await bench.create(unusable)) for (const target of targets) plans.set(target, await bench.plan(target));
  } finally {
    await bench.drop(unusable);
  }
  return plans;
}

/** The plans of the reads that a trial makes clearly cheaper than they are now. */
async function plansWith(bench: TrialBench, { group, targets }: Trial): Promise<Map<Target, Explained>> {
  const plans = new Map<Target, Explained>();
  const before = await plansWithout(bench, { group, targets });
  try {
    if (!(await bench.create(group))) return plans;
    for (const [target, now] of before) {
      if (costOf(now, group) < LEAST_COST) continue;
      const plan = await bench.plan(target);
      if (gains(bench, group, now, plan)) plans.set(target, plan);
    }
  } finally {
    await bench.drop(group);
  }
  return plans;
}

function measure(bench: TrialBench, trial: Trial, plans: Map<Target, Explained>): MeasuredTrial {
  const sum = (value: (target: Target, plan: Explained) => number): number =>
    [...plans].reduce((total, [target, plan]) => total + value(target, plan), 0);
  return {
    trial,
    plans,
    saved: sum(({ weight, now }, { cost }) => weight * (1 - Math.min(1, cost / now.cost))),
    cost: sum(({ weight }, { cost }) => weight * cost),
    bytes: trial.group.reduce((total, each) => total + (bench.sizes.get(definitionOf(each)) ?? 0), 0),
  };
}

interface MeasuredTrial {
  readonly trial: Trial;
  readonly plans: ReadonlyMap<Target, Explained>;
  readonly saved: number;
  readonly cost: number;
  readonly bytes: number;
}

/** Trials that save so much of the most are as good. */
const NEARLY = 0.95;

/** The trial that saves most. If several save about the same, the one with the fewest indexes, then the smallest. */
function bestOf(measured: readonly MeasuredTrial[]): MeasuredTrial | null {
  const most = Math.max(0, ...measured.map(({ saved }) => saved));
  const best = measured.filter(({ saved }) => saved >= most * NEARLY);
  const least = Math.min(...best.map(({ cost }) => cost));
  const similar = best.filter(({ cost }) => cost <= least * SIMILAR);
  const [first] = similar.sort(
    (one, other) =>
      one.trial.group.length - other.trial.group.length || one.bytes - other.bytes || columnsOf(one) - columnsOf(other),
  );
  return first ?? null;
}

function columnsOf({ trial }: MeasuredTrial): number {
  return trial.group.reduce((sum, { keys, include }) => sum + keys.length + include.length, 0);
}

/** All that were chosen, together: those that no plan uses are left out. */
async function describeChosen(
  bench: TrialBench,
  chosen: readonly IndexCandidate[],
  targets: readonly Target[],
): Promise<readonly IndexAdvice[]> {
  if (chosen.length === 0) return [];
  const plans: [Target, Explained][] = [];
  for (const target of targets) plans.push([target, await bench.plan(target)]);
  const { tables } = bench.twin.statistics;
  return chosen.flatMap((candidate) => {
    const shapes = plans.flatMap(([target, after]): GainingShape[] => {
      if (!bench.uses(after.plan, candidate)) return [];
      return [
        {
          planned: target.planned,
          share: target.weight,
          before: Math.round(100 * costOf(target.before, [candidate])) / 100,
          after: Math.round(100 * costOf(after, [candidate])) / 100,
        },
      ];
    });
    if (shapes.length === 0) return [];
    const facts = tables.find(({ schema, table }) => schema === candidate.schema && table === candidate.table);
    const bytes = bench.sizes.get(definitionOf(candidate)) ?? 0;
    return [{ candidate, statement: candidateStatement(candidate), bytes, written: facts?.written ?? 0, shapes }];
  });
}

/** A column with more different values has no value that deserves an index of its own. */
const MOST_VALUES = 100;
/** The largest part of the rows that such an index may have. */
const LARGEST_SHARE = 0.1;

/** Whether few rows have the value although the column has few values. */
function isSkewed({ statistics }: Twin, { collection, column }: Field, value: string): boolean {
  const facts = statistics.columns.find((each) => each.table === collection && each.column === column?.name);
  if (!facts || facts.n_distinct <= 0 || facts.n_distinct > MOST_VALUES) return false;
  const values = splitArray(facts.most_common_vals ?? '');
  const shares = splitArray(facts.most_common_freqs ?? '').map(Number);
  return (shares[values.indexOf(value)] ?? 0) <= LARGEST_SHARE;
}

/** The entries of an array as PostgreSQL writes it. */
function splitArray(text: string): string[] {
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|([^{},"]+)/g)].map(
    ([, quoted, plain]) => quoted?.replace(/\\(.)/g, '$1') ?? plain ?? '',
  );
}

/** The values of a read, for indexes that hold for one value alone. */
function knownValues(twin: Twin, { read, sent }: PlannedClass): KnownValue {
  const slots = new Map<string, string | null>();
  const keyOf = (parameter: Parameter): string =>
    'slot' in parameter ? `${parameter.kind} ${JSON.stringify(parameter.slot)}` : '';
  read.compiled.statement.parameters.forEach((parameter, position) => {
    slots.set(keyOf(parameter), sent.values[position] ?? null);
  });
  return (parameter, field) => {
    const value = slots.get(keyOf(parameter)) ?? null;
    return value === null || (field && !isSkewed(twin, field, value)) ? null : value;
  };
}

/** Tables of fewer pages gain nothing if an index is dropped. */
const SMALL_PAGES = 100;

/** Indexes that another one makes superfluous, and those that no read has used. */
function complaintsAbout(
  { statistics, core }: Twin,
  indexes: readonly TwinIndex[],
  planned: readonly PlannedClass[],
): IndexComplaint[] {
  const used = new Set(planned.flatMap(({ plan }) => allNodes(plan).flatMap((node) => node['Index Name'] ?? [])));
  const references = referringColumns(core.mirror.model);
  const facts = new Map(statistics.indexes.map((index) => [`${index.schema}.${index.index}`, index]));
  return indexes.flatMap((index): IndexComplaint[] => {
    const known = facts.get(`${index.schema}.${index.name}`);
    if (!known || known.own || index.constraint || index.unique || known.pages < SMALL_PAGES) return [];
    const name = `${quoteIdentifier(index.schema)}.${quoteIdentifier(index.name)}`;
    const shared = {
      index: index.name,
      bytes: known.pages * PAGE_BYTES,
      statement: `drop index concurrently ${name};`,
    };
    const longer = indexes.find((other) => includes(other, index));
    if (longer) return [{ kind: 'redundant', reason: `"${longer.name}" begins with the same columns`, ...shared }];
    const [first = ''] = index.columns;
    const isReference = references.has(`${index.schema}.${index.table}.${first.replaceAll('"', '')}`);
    if (known.scans > 0 || used.has(index.name) || isReference) return [];
    return [
      { kind: 'unused', reason: 'no statement has used it since the counters of PostgreSQL were reset', ...shared },
    ];
  });
}

/** Columns of foreign keys: PostgreSQL searches them when a row that they refer to is deleted. */
function referringColumns({ collections }: Model): ReadonlySet<string> {
  const names = [...collections.values()].flatMap(({ schema, table, fields, references }) => [
    ...[...fields.values()].flatMap(({ column }) =>
      column?.foreign_keys.length ? [`${schema}.${table}.${column.name}`] : [],
    ),
    ...references.flatMap(({ columns }) => columns.map(({ column }) => `${schema}.${table}.${column}`)),
  ]);
  return new Set(names);
}

function includes(longer: TwinIndex, index: TwinIndex): boolean {
  if (longer.name === index.name || longer.schema !== index.schema || longer.table !== index.table) return false;
  if (longer.method !== 'btree' || index.method !== 'btree' || longer.predicate !== index.predicate) return false;
  const isPrefix = index.keys.every((key, position) => longer.keys[position] === key);
  const hasColumns = index.columns.every((column) => longer.columns.includes(column));
  // If two are equal, the later by name is redundant.
  return isPrefix && hasColumns && (longer.columns.length > index.columns.length || longer.name < index.name);
}

const SOURCE = readSql('features', 'plans', 'expression-source.sql');
const RESTORE = readSql('features', 'plans', 'restore-expression.sql');

interface ExpressionSource {
  readonly column: string;
  readonly type: string;
  readonly expression: string;
  /** The name of the expression among the columns of the index. */
  readonly attribute: string;
}

/**
 * Sets the statistics of an index over an expression, as ANALYZE would gather them: computed from the common values and the histogram of the
 * column that the expression reads. Without them the planner assumes that half a percent of the rows have any value. Only for an index whose
 * first key is an expression of one column that has statistics.
 */
async function deriveStatistics(database: Database, { schema, name, table }: TwinIndex): Promise<void> {
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
