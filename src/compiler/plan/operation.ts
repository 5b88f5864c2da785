/** Several reads become one plan. They share one budget: it does not grow with the number of parts. */
import type { Model } from '../model/model.js';
import type { OperationRequest } from '../request/ast.js';
import { LIST_WEIGHT, spend } from './filter.js';
import type { Planner } from './outputs.js';
import type { OperationPlan, PartPlan } from './plan.js';
import { type PlanLimits, planRead } from './read.js';

/** A part that cannot be planned, and why. */
interface FailedPart {
  readonly position: number;
  readonly cause: unknown;
}

/** Some parts cannot be planned: says which, all of them at once, so that the caller can do without them. */
export class FailedParts extends Error {
  constructor(readonly parts: readonly FailedPart[]) {
    super('parts of the operation failed');
  }
}

export function planOperation(request: OperationRequest, model: Model, limits: PlanLimits): OperationPlan {
  const planner: Planner = { model, ...limits, nodes: 0 };
  const failed: FailedPart[] = [];
  const parts: PartPlan[] = [];
  for (const [position, part] of request.parts.entries()) {
    if (part.kind === 'json') {
      parts.push(part);
      continue;
    }
    try {
      spend(planner, LIST_WEIGHT);
      const plan = planRead(part.request, model, limits, { planner });
      parts.push({ kind: 'read', name: part.name, plan, missing: part.missing });
    } catch (error) {
      failed.push({ position, cause: error });
      // The shared budget is spent: the following parts fail as well.
      const isSpent = planner.nodes > planner.maxNodes;
      for (let next = position + 1; isSpent && next < request.parts.length; next++)
        if (request.parts[next]?.kind === 'read') failed.push({ position: next, cause: error });
      if (isSpent) break;
    }
  }
  if (failed.length > 0) throw new FailedParts(failed);
  return { kind: 'operation', parts };
}
