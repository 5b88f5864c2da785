/**
 * Which to-one subtrees are computed once per distinct reference of a page instead of once per row: those that hold a list or a count,
 * below rows of which there may be several. Measurements: docs/decisions/shared-subtrees.md.
 */
import type { Output, RowLevel, ToOneJoin } from '../plan/plan.js';

/** Of one-to-one relations every row has its own; a stream must not wait for its last row. */
export function sharedOutputs(level: RowLevel, isRoot: boolean): ReadonlySet<Output> {
  const shared = new Set<Output>();
  if (level.locked || !mayHaveMany(level, isRoot)) return shared;
  const visit = (outputs: readonly Output[]): void => {
    for (const output of outputs) {
      if (output.kind === 'object') visit(output.outputs);
      else if (output.kind === 'one' && mayRepeat(output.toOne) && hasLists(output.level.outputs)) shared.add(output);
    }
  };
  visit(level.outputs);
  return shared;
}

function mayHaveMany({ limit }: RowLevel, isRoot: boolean): boolean {
  if (limit.kind === 'all') return !isRoot;
  return limit.kind === 'slot' || limit.value > 1;
}

function mayRepeat(toOne: ToOneJoin): boolean {
  return toOne.kind === 'one' && !toOne.columns.some(({ column }) => column?.is_unique);
}

function hasLists(outputs: readonly Output[]): boolean {
  return outputs.some((output) => {
    switch (output.kind) {
      case 'many':
      case 'keys':
        return true;
      case 'value':
        return output.operand.kind === 'count' || output.operand.kind === 'first';
      case 'object':
        return hasLists(output.outputs);
      case 'one':
        return hasLists(output.level.outputs);
      case 'any':
        return output.targets.some(({ level }) => hasLists(level.outputs));
      default:
        return false;
    }
  });
}
