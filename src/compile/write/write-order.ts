/** Which parts of a write chain stand behind which: lists of new rows, and what refers to them. */
import { elementAt } from '../../base/narrow.js';
import type { WriteColumn, WriteNode, WritePlan } from '../../plan/write/write.js';

/** Where new rows of a table are made. */
export function makerOf({ nodes }: WritePlan, name: string): number {
  return nodes.findIndex((each) => each.verb === 'insert' && each.collection.name === name);
}

export function makersOf(plan: WritePlan, columns: readonly WriteColumn[]): number[] {
  return columns.flatMap((column) => column.references.map(({ collection }) => makerOf(plan, collection)));
}

/** A part stands behind those it waits for; none may wait for itself. */
export function inOrder({ nodes }: WritePlan, awaited: (node: WriteNode) => Iterable<number>): number[] {
  const order = new Set<number>();
  const visit = (position: number): void => {
    if (order.has(position)) return;
    for (const earlier of awaited(elementAt(nodes, position))) visit(earlier);
    order.add(position);
  };
  for (const position of nodes.keys()) visit(position);
  return [...order];
}

/** The statements that make the rows a list refers to; two tables whose new rows refer to each other cannot wait for each other. */
export function awaitedBy(plan: WritePlan, node: WriteNode): Set<number> {
  const positions = makersOf(plan, node.columns);
  return new Set(positions.filter((position) => plan.nodes[position] !== node && !refersBack(plan, position, node)));
}

function refersBack(plan: WritePlan, position: number, node: WriteNode): boolean {
  const seen = new Set<number>();
  const reaches = (from: number): boolean => {
    if (plan.nodes[from] === node) return true;
    if (seen.has(from)) return false;
    seen.add(from);
    return makersOf(plan, elementAt(plan.nodes, from).columns).some(reaches);
  };
  return reaches(position);
}
