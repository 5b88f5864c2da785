/** A read of a new shape becomes a statement: what the caller may see, the plan of the request, the SQL of the plan. */
import type { Steps } from '../../../base/time-slices.js';
import { compileBatchRead, compileRead } from '../../../compiler/compile/read.js';
import type { Field, Model } from '../../../compiler/model/model.js';
import { callOf } from '../../../compiler/plan/call.js';
import type { Level, OperationPlan, Output, ReadPlan, RowLevel } from '../../../compiler/plan/plan.js';
import { type RowProbe, rowProbe } from '../../../compiler/plan/row-probe.js';
import { fencedRead, type UnevenRead, unevenRead } from '../../../compiler/plan/uneven.js';
import type { OperationRequest, ReadRequest } from '../../../compiler/request/ast.js';
import type { Statement } from '../../../compiler/sql/fragment.js';
import {
  plansOf,
  type ReadContext,
  type ReadQuery,
  type ReadStatement,
  readBackStatement,
  readStatement,
  type SelectionPurpose,
} from '../../../compiler/statements/read.js';
import { qualified, usedCollections } from '../../../compiler/statements/used-tables.js';
import { type CallerScope, readScope } from '../caller-scope.js';
import type { RequestClient } from '../stages.js';

export interface CompiledRead extends ReadStatement {
  readonly result: ReadPlan['result'] | 'operation';
  readonly stream: boolean;
  /** For a stream: whether its first row is the text before the items. */
  readonly opening: boolean;
  /** For an export: the columns of a flat file. */
  readonly columns: readonly (readonly string[])[];
  /** For an export: the fields that hold a geometry, and the key field. */
  readonly geometryFields: readonly string[];
  readonly keyField: string | null;
  /** The version of the model that it was compiled for. */
  readonly version: number;
  /** The write that the items are selected for. */
  readonly selectedFor: SelectionPurpose | null;
  /** Whether only the primary may serve it: a function may write, or it shows tables of the service, which follow no caller. */
  readonly primaryOnly: boolean;
  /** Whether it carries the settings of its caller. */
  readonly callerScope: () => CallerScope;
  /** Why its answer must not be kept in memory, apart from changes that are not reported; null if it may. */
  readonly uncacheable: () => string | null;
  /** Whether it is a page of a list that is read with cursors. */
  readonly paged: boolean;
  /** The text that reads for many requests at once. */
  readonly batchText: () => string;
  /** Why its values may need different plans, or null if one plan serves all. */
  readonly uneven: UnevenRead | null;
  /** The same read in a form that selects the rows before it sorts them, or null if the read has no such form. */
  readonly fenced: () => FencedRead | null;
  /** The read-back: the statement that reads the items of the preceding write. */
  readonly readBack: () => Statement;
  /** The values by which rows take part in the answer, or null if any row may. */
  readonly rowProbe: () => RowProbe | null;
}

interface FencedRead {
  readonly statement: Statement;
  readonly result: CompiledRead['result'];
  readonly isFenced: true;
  readonly batchText: () => string;
}

interface ShapeContext extends Omit<ReadContext, 'staged'> {
  readonly client: RequestClient;
}

export function* compileShape(query: ReadQuery, context: ShapeContext): Steps<CompiledRead> {
  const { selectedFor, model, client } = context;
  const read = yield* readStatement(query, { ...context, staged: (stage) => client.staged(stage) });
  const { plan, statement, calls } = read;
  // PostgreSQL has no statistics of the rows that a function returns.
  const uneven = calls.length > 0 ? null : unevenRead(plan);
  return {
    ...read,
    ...describeResult(query.request, plan),
    ...describeServers(plan),
    version: model.version,
    selectedFor,
    // Citus asks one worker for one value; a statement for several it refuses.
    batchText: model.extensions.has('citus')
      ? () => ''
      : once(() => qualified(compileBatchRead(plan), 'read', model).text),
    uneven,
    callerScope: once(() => readScope(statement.text, calls.length > 0, model)),
    uncacheable: once(() => uncacheable(statement.text, plan, calls.length > 0, model)),
    rowProbe: once(() => rowProbe(plan)),
    fenced: once(() => compileFenced(plan, statement, uneven, model)),
    readBack: once(() => readBackStatement(plan, model)),
  };
}

/** The fenced statement must have the same parameters. */
function compileFenced(
  plan: ReadPlan | OperationPlan,
  { parameters }: Statement,
  uneven: UnevenRead | null,
  model: Model,
): FencedRead | null {
  if (!uneven?.page || uneven.page.level.locked) return null;
  const fenced = fencedRead(plan, uneven.page.level);
  const statement = qualified(compileRead(fenced), 'read', model);
  if (JSON.stringify(statement.parameters) !== JSON.stringify(parameters)) return null;
  const batchText = once(() => qualified(compileBatchRead(fenced), 'read', model).text);
  return { statement, result: plan.kind === 'operation' ? 'operation' : plan.result, isFenced: true, batchText };
}

function describeResult(
  request: ReadRequest | OperationRequest,
  plan: ReadPlan | OperationPlan,
): Pick<CompiledRead, 'result' | 'stream' | 'opening' | 'columns' | 'geometryFields' | 'keyField'> {
  if (plan.kind === 'operation' || request.kind === 'operation')
    return { result: 'operation', stream: false, opening: false, columns: [], geometryFields: [], keyField: null };
  const columns = request.export ? columnsOf(plan.level) : [];
  const { geometryFields, keyField } = request.export ? featureOf(plan.level) : { geometryFields: [], keyField: null };
  return { result: plan.result, stream: plan.stream, opening: plan.meta.length > 0, columns, geometryFields, keyField };
}

function describeServers(plan: ReadPlan | OperationPlan): Pick<CompiledRead, 'primaryOnly' | 'paged'> {
  const plans = plansOf(plan);
  return {
    primaryOnly: plans.some(
      ({ level: { collection } }) => collection.system || callOf(collection)?.overload.volatile === true,
    ),
    paged: plans.some(({ cursor }) => cursor),
  };
}

function uncacheable(text: string, plan: ReadPlan | OperationPlan, isCalling: boolean, model: Model): string | null {
  if (plansOf(plan).some(({ stream }) => stream)) return 'it is streamed';
  if (text.includes('service_estimate')) return 'it has an estimate of the planner';
  if (readScope(text, isCalling, model) !== 'plain')
    return 'a view, a function, a computed field or row-level security may depend on more than its tables';
  const used = usedCollections(text, model);
  const excluded = used.find(({ system, meta }) => !system && meta?.['cache'] === 'off');
  if (excluded) return `the collection "${excluded.name}" has "cache": "off"`;
  const divided = used.find(({ kind, distributed }) => kind === 'partitioned' || distributed);
  if (divided) return `the rows of "${divided.name}" are in several tables, and some of their changes are not reported`;
  // An insert into a hypertable may create a table whose changes are not reported yet.
  return model.extensions.has('timescaledb') ? 'TimescaleDB moves rows to tables that are not served' : null;
}

/** Computes the value at its first use: most shapes never need it. */
function once<Result>(make: () => Result): () => Result {
  let created: { readonly result: Result } | null = null;
  return () => {
    created ??= { result: make() };
    return created.result;
  };
}

/** The columns of an exported file, as paths into the item: fields of nested items are separate columns, a list is one. */
function columnsOf(level: Level): string[][] {
  if (level.kind === 'rows') return level.outputs.flatMap((output) => outputColumns(output));
  const groups = level.groups.map(({ name }) => [name]);
  return [
    ...groups,
    ...level.aggregates.map(({ function: name, name: field }) => (field === null ? [name] : [name, field])),
  ];
}

function outputColumns(output: Output): string[][] {
  if (output.kind !== 'one') return [[output.name]];
  return nested(output.level).map((path) => [output.name, ...path]);
}

function nested(level: RowLevel): string[][] {
  return level.outputs.flatMap((output) => outputColumns(output));
}

/** The fields of an item that can be the geometry and the id of a GeoJSON feature. */
function featureOf(level: Level): { geometryFields: readonly string[]; keyField: string | null } {
  if (level.kind !== 'rows') return { geometryFields: [], keyField: null };
  const values = level.outputs.flatMap((output) =>
    output.kind === 'value' && output.operand.kind === 'field'
      ? [{ name: output.name, field: output.operand.field }]
      : [],
  );
  const isKey = (field: Field): boolean => level.collection.key.length === 1 && field === level.collection.key[0];
  return {
    geometryFields: values.filter(({ field }) => field.type.startsWith('geometry')).map(({ name }) => name),
    keyField: values.find(({ field }) => isKey(field))?.name ?? null,
  };
}
