/** Keys that a payload supplies although a sequence makes them too. */
import { countedKey, singleKey } from '../../model/item-key.js';
import type { PlannedWrite, WriteNode } from './write.js';

export function suppliesKeys(planned: PlannedWrite): boolean {
  return suppliedLists(planned).length > 0;
}

/** The positions of lists of new rows that bring keys which a sequence could make too. */
export function suppliedLists({ plan, input }: PlannedWrite): number[] {
  return plan.nodes.flatMap((node, position) => {
    const name = node.verb === 'update' ? null : countedName(node);
    return name !== null && input.nodes[position]?.some((row) => row[name] !== undefined) ? [position] : [];
  });
}

/** Under which name rows bring the column of their key that a sequence fills. */
function countedName({ collection, verb, conflict, columns }: WriteNode): string | null {
  const counted = countedKey(collection);
  if (!counted || singleKey(collection)) return counted && 'k';
  if (verb !== 'insert' || conflict) return `k_${collection.key.indexOf(counted)}`;
  return `c${columns.findIndex(({ field, only }) => field === counted && only !== 'key')}`;
}
