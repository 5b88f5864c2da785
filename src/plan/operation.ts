/** Several reads become one plan. They share one budget: what a request may ask for does not grow with the number of its parts. */
import type { Model } from '../mirror/model.js';
import type { OperationRequest } from '../request/ast.js';
import type { Planner } from './outputs.js';
import type { OperationPlan, PartPlan } from './plan.js';
import { type PlanLimits, planRead } from './read.js';

/** One part cannot be planned: says which, so that the caller can name it. */
export class FailedPart extends Error {
  readonly position: number;
  override readonly cause: unknown;

  constructor(position: number, cause: unknown) {
    super('a part of the operation failed');
    this.position = position;
    this.cause = cause;
  }
}

export function planOperation(request: OperationRequest, model: Model, limits: PlanLimits): OperationPlan {
  const planner: Planner = { model, ...limits, nodes: 0 };
  const parts = request.parts.map((part, position): PartPlan => {
    if (part.kind === 'json') return part;
    try {
      return {
        kind: 'read',
        name: part.name,
        plan: planRead(part.request, model, limits, null, planner),
        missing: part.missing,
      };
    } catch (error) {
      throw new FailedPart(position, error);
    }
  });
  return { kind: 'operation', parts };
}
