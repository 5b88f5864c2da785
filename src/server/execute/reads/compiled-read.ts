/** A read of a new shape becomes a statement: what the caller may see, the plan of the request, the SQL of the plan. */
import { forbiddenCollection } from '../../../base/errors.js';
import type { Steps } from '../../../base/time-slices.js';
import { compileCall } from '../../../compiler/compile/call.js';
import { compileBatchRead, compileRead, compileReadBack } from '../../../compiler/compile/read.js';
import type { Field, Model } from '../../../compiler/model/model.js';
import { isLockable } from '../../../compiler/model/write-facts.js';
import type { Access, WriteAction } from '../../../compiler/plan/access.js';
import { callOf } from '../../../compiler/plan/call.js';
import { planOperation } from '../../../compiler/plan/operation.js';
import type {
  CallPlan,
  Condition,
  Level,
  OperationPlan,
  Output,
  ReadPlan,
  RowLevel,
} from '../../../compiler/plan/plan.js';
import { type PlanLimits, planRead } from '../../../compiler/plan/read.js';
import { type RowProbe, rowProbe } from '../../../compiler/plan/row-probe.js';
import { fencedRead, type UnevenRead, unevenRead } from '../../../compiler/plan/uneven.js';
import { anyRule } from '../../../compiler/plan/write/guard.js';
import type { OperationRequest, Parsed, ParsedOperation, ReadRequest } from '../../../compiler/request/ast.js';
import type { Statement } from '../../../compiler/sql/fragment.js';
import { qualify } from '../../../compiler/sql/qualify.js';
import { type CallerScope, readScope, usedCollections } from '../caller-scope.js';
import type { RequestClient } from '../stages.js';
import { checked } from '../statement-cache.js';

/** A parsed read: of REST and SEARCH, or an operation of GraphQL. */
export type ReadQuery = Parsed | ParsedOperation;

/** The write that items are selected for: among those that the caller may read, or with `any` among all, for the service itself. */
export type SelectionPurpose = WriteAction | `any ${WriteAction}`;

const ACTIONS: Readonly<Record<SelectionPurpose, WriteAction>> = {
  create: 'create',
  update: 'update',
  delete: 'delete',
  share: 'share',
  'any create': 'create',
  'any update': 'update',
  'any delete': 'delete',
  'any share': 'share',
};

export interface CompiledRead {
  readonly statement: Statement;
  readonly plan: ReadPlan | OperationPlan;
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
  /** The calls of functions in it: their arguments are checked before it runs. */
  readonly calls: readonly CallPlan[];
  /** Whether the read calls a function that may write. */
  readonly volatile: boolean;
  /** Whether only the primary may serve it: a function may write, or it shows tables of the service, which follow no caller. */
  readonly primaryOnly: boolean;
  /** Whether it carries the settings of its caller. */
  readonly callerScope: () => CallerScope;
  /** Why its answer must not be kept in memory, apart from changes that are not reported; null if it may. */
  readonly uncacheable: () => string | null;
  /** Whether it is a page of a list that is read with cursors. */
  readonly paged: boolean;
  /** The statement before it in its transaction: the call of a function whose items it reads. */
  readonly before: Statement | null;
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

interface ShapeContext {
  /** The permissions of the caller, or null for all. */
  readonly access: Access | null;
  readonly selectedFor: SelectionPurpose | null;
  readonly model: Model;
  readonly limits: PlanLimits;
  readonly client: RequestClient;
}

/** Other requests may run between the stages: those of a large shape take tens of milliseconds each. */
export function* compileShape({ request }: ReadQuery, context: ShapeContext): Steps<CompiledRead> {
  const { access, selectedFor, model, limits, client } = context;
  const visible = access && !selectedFor?.startsWith('any ') ? access.view(model) : model;
  const selection =
    access && selectedFor && request.kind === 'read' ? writable(access, selectedFor, request, model) : null;
  client.staged('restrict');
  const plan =
    request.kind === 'operation'
      ? planOperation(request, visible, limits)
      : planRead(request, visible, limits, { writableRows: selection, locks: mayLock(request, context) });
  client.staged('plan');
  yield;
  const compiled = compileRead(plan);
  yield;
  const statement = readable(compiled, model);
  client.staged('compile');
  const called = describeCalls(plan, model);
  // PostgreSQL has no statistics of the rows that a function returns.
  const uneven = called.calls.length > 0 ? null : unevenRead(plan);
  return {
    statement,
    plan,
    ...describeResult(request, plan),
    ...called,
    ...describeServers(plan),
    version: model.version,
    selectedFor,
    // Citus asks one worker for one value; a statement for several it refuses.
    batchText: model.extensions.has('citus') ? () => '' : once(() => readable(compileBatchRead(plan), model).text),
    uneven,
    callerScope: once(() => readScope(statement.text, called.calls.length > 0, model)),
    uncacheable: once(() => uncacheable(statement.text, plan, called.calls.length > 0, model)),
    rowProbe: once(() => rowProbe(plan)),
    fenced: once(() => compileFenced(plan, statement, uneven, model)),
    readBack: once(() => {
      if (plan.kind === 'operation') throw new Error('a GraphQL operation has no read-back');
      return readable(compileReadBack(plan), model);
    }),
  };
}

/** Functions of the service are in a schema that is known with the model. */
function readable({ text, parameters }: Statement, model: Model): Statement {
  return checked({ text: qualify(text, model.system), parameters }, 'read', model);
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
  const statement = readable(compileRead(fenced), model);
  if (JSON.stringify(statement.parameters) !== JSON.stringify(parameters)) return null;
  const batchText = once(() => readable(compileBatchRead(fenced), model).text);
  return { statement, result: plan.kind === 'operation' ? 'operation' : plan.result, isFenced: true, batchText };
}

function mayLock({ collection: name }: ReadRequest, { access, selectedFor, model }: ShapeContext): boolean {
  const collection = model.collections.get(name);
  if (collection?.hasLockableRows === false) return false;
  if (collection === undefined || selectedFor !== 'delete') return true;
  return isLockable(collection, access?.privileges(collection, model) ?? null);
}

/** The rows that the caller may write, for a query that selects items for a write. */
function writable(access: Access, purpose: SelectionPurpose, request: ReadRequest, model: Model): Condition | null {
  const collection = model.collections.get(request.collection);
  const grant = collection && access.grant(ACTIONS[purpose], collection, model);
  if (!grant) throw forbiddenCollection(request.collection);
  return anyRule(grant.rules);
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

function plansOf(plan: ReadPlan | OperationPlan): readonly ReadPlan[] {
  return plan.kind === 'read' ? [plan] : plan.parts.flatMap((part) => (part.kind === 'read' ? [part.plan] : []));
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

function describeCalls(
  plan: ReadPlan | OperationPlan,
  model: Model,
): Pick<CompiledRead, 'calls' | 'volatile' | 'before'> {
  const calls = plansOf(plan).flatMap(({ level }) => callOf(level.collection) ?? []);
  const kept = calls.find((call) => call.fromSetting);
  return {
    calls,
    volatile: calls.some((call) => call.overload.volatile),
    before: kept ? checked(compileCall(kept, model), 'read', model) : null,
  };
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
