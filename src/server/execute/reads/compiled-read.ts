/** A read of a new shape becomes a statement: what the caller may see, the plan of the request, the SQL of the plan. */
import type { Steps } from '../../../base/time-slices.js';
import type { Model } from '../../../compiler/model/model.js';
import type { ReadPlan } from '../../../compiler/plan/plan.js';
import {
  type ReadContext,
  type ReadQuery,
  type ReadStatement,
  readStatement,
} from '../../../compiler/statements/read.js';
import type { RequestClient } from '../stages.js';

/** The statement of a shape, its plan and its calls. Users of it derive what they need besides, and keep it by `factOf`. */
export interface CompiledRead extends ReadStatement {
  readonly result: ReadPlan['result'] | 'operation';
  /** The model that it was compiled for. */
  readonly model: Model;
}

interface ShapeContext extends Omit<ReadContext, 'staged'> {
  readonly client: RequestClient;
}

export function* compileShape(query: ReadQuery, context: ShapeContext): Steps<CompiledRead> {
  const { model, client } = context;
  const { statement, plan, calls } = yield* readStatement(query, {
    ...context,
    staged: (stage) => client.staged(stage),
  });
  return { statement, plan, calls, result: plan.kind === 'operation' ? 'operation' : plan.result, model };
}

/** Computes a fact at its first use, and keeps it as long as the compiled read: most reads never need it. */
export function factOf<Fact extends object | string | boolean | null>(
  make: (compiled: CompiledRead) => Fact,
): (compiled: CompiledRead) => Fact {
  const facts = new WeakMap<CompiledRead, Fact>();
  return (compiled) => {
    const known = facts.get(compiled);
    if (known !== undefined) return known;
    const fact = make(compiled);
    facts.set(compiled, fact);
    return fact;
  };
}

/** Whether its items are sent as they arrive. */
export function isStream({ plan }: CompiledRead): boolean {
  return plan.kind === 'read' && plan.stream;
}

/** Whether the first row of a stream is the text before the items. */
export function hasOpening({ plan }: CompiledRead): boolean {
  return plan.kind === 'read' && plan.meta.length > 0;
}
