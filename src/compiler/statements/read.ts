/** A read becomes a statement: the model that the caller may see, the plan of the request, the SQL of the plan. */
import { forbiddenCollection } from '../../base/errors.js';
import type { Steps } from '../../base/time-slices.js';
import { compileCall } from '../compile/call.js';
import { compileBatchRead, compileRead, compileReadBack, type LinkedForm } from '../compile/read.js';
import type { Model } from '../model/model.js';
import { isLockable } from '../model/write-facts.js';
import type { Access, WriteAction } from '../plan/access.js';
import { callOf } from '../plan/call.js';
import { linkPlan } from '../plan/links.js';
import { planOperation } from '../plan/operation.js';
import type { CallPlan, Condition, OperationPlan, ReadPlan } from '../plan/plan.js';
import { type PlanLimits, planRead } from '../plan/read.js';
import { anyRule } from '../plan/write/guard.js';
import type { Parsed, ParsedOperation, ReadRequest } from '../request/ast.js';
import type { Statement } from '../sql/fragment.js';
import { checked, qualified } from './used-tables.js';

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

export interface ReadContext {
  /** The permissions of the caller, or null for all. */
  readonly access: Access | null;
  readonly selectedFor: SelectionPurpose | null;
  readonly model: Model;
  readonly limits: PlanLimits;
  /** Called at the end of each stage. */
  readonly staged: (stage: 'restrict' | 'plan' | 'compile') => void;
}

export interface ReadStatement {
  readonly statement: Statement;
  readonly plan: ReadPlan | OperationPlan;
  /** The calls of functions in it: their arguments are checked before it runs. */
  readonly calls: readonly CallPlan[];
}

/** Other requests may run between the stages: those of a large shape take tens of milliseconds each. */
export function* readStatement({ request }: ReadQuery, context: ReadContext): Steps<ReadStatement> {
  const { access, selectedFor, model, limits, staged } = context;
  const visible = access && !selectedFor?.startsWith('any ') ? access.view(model) : model;
  const selection =
    access && selectedFor && request.kind === 'read' ? writable(access, selectedFor, request, model) : null;
  staged('restrict');
  const plan =
    request.kind === 'operation'
      ? planOperation(request, visible, limits)
      : planRead(request, visible, limits, { writableRows: selection, locks: mayLock(request, context) });
  staged('plan');
  yield;
  const compiled = compileRead(plan);
  yield;
  const statement = qualified(compiled, 'read', model);
  staged('compile');
  const calls = plansOf(plan).flatMap(({ level }) => callOf(level.collection) ?? []);
  return { statement, plan, calls };
}

/** The text that reads for many sets of values, or '' if there is none: Citus asks one worker for one value, and refuses it. */
export function batchText(
  { plan, model }: Pick<CompiledReadBack, 'plan' | 'model'>,
  linked?: LinkedForm | null,
): string {
  return model.extensions.has('citus') ? '' : qualified(compileBatchRead(plan, linked), 'read', model).text;
}

/** The statement that returns the links before the cell, with the same parameters; null if the plan has no links. */
export function linkedStatement({ plan, model, statement }: CompiledReadBack): (Statement & LinkedForm) | null {
  const links = linkPlan(plan);
  if (links.sets.length === 0) return null;
  const { text, parameters } = qualified(compileRead(plan, { links, parameters: statement.parameters }), 'read', model);
  return parameters.length === statement.parameters.length ? { text, parameters, links } : null;
}

/** The statement that reads the items of the preceding write. */
export function readBackStatement({ plan, model }: CompiledReadBack): Statement {
  const known = readBacks.get(plan);
  if (known) return known;
  if (plan.kind === 'operation') throw new Error('a GraphQL operation has no read-back');
  const statement = qualified(compileReadBack(plan), 'read', model);
  readBacks.set(plan, statement);
  return statement;
}

/** The statements for plans that read what writes have written. */
const readBacks = new WeakMap<ReadPlan | OperationPlan, Statement>();

/** The read of what a write has written. */
export interface CompiledReadBack extends Pick<ReadStatement, 'statement' | 'plan'> {
  readonly model: Model;
}

function mayLock({ collection: name }: ReadRequest, { access, selectedFor, model }: ReadContext): boolean {
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

export function plansOf(plan: ReadPlan | OperationPlan): readonly ReadPlan[] {
  return plan.kind === 'read' ? [plan] : plan.parts.flatMap((part) => (part.kind === 'read' ? [part.plan] : []));
}

/** Whether the read calls a function that may write. */
export function isVolatile({ calls }: Pick<ReadStatement, 'calls'>): boolean {
  return calls.some(({ overload }) => overload.volatile);
}

/** The statement before the read in its transaction, or null: the call of a function whose items it reads. */
export function callBefore({ calls }: Pick<ReadStatement, 'calls'>, model: Model): Statement | null {
  const kept = calls.find((call) => call.fromSetting);
  return kept ? checked(compileCall(kept, model), 'read', model) : null;
}
