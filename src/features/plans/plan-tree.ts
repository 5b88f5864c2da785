/** A plan of PostgreSQL as lines of text, without values and costs: what two plans are compared by. */
import { allNodes, type PlanNode } from '../../server/postgres/generic-plan.js';

/** One line for each node, indented below its parent. */
export function planLines(node: PlanNode, depth = 0): string[] {
  return [
    `${'  '.repeat(depth)}${describeNode(node)}`,
    ...(node.Plans ?? []).flatMap((child) => planLines(child, depth + 1)),
  ];
}

export function describeNode(node: PlanNode): string {
  const { 'Node Type': type, 'Join Type': join, Strategy: strategy } = node;
  const kind = join === undefined || join === 'Inner' ? type : `${type} (${join})`;
  const how = strategy === undefined || strategy === 'Plain' ? '' : ` (${strategy})`;
  const backward = node['Scan Direction'] === 'Backward' ? ' backward' : '';
  const index = node['Index Name'] === undefined ? '' : ` using ${node['Index Name']}`;
  const source = node['Relation Name'] ?? node['CTE Name'] ?? node['Function Name'];
  const part = node['Subplan Name'] === undefined ? '' : ` [${node['Subplan Name'].replace(/ \d+$/, '')}]`;
  return `${kind}${how}${backward}${index}${source === undefined ? '' : ` on ${source}`}${part}`;
}

export function indexesOf(plan: PlanNode): string[] {
  return namesIn(plan, 'Index Name');
}

export function tablesOf(plan: PlanNode): string[] {
  return namesIn(plan, 'Relation Name');
}

function namesIn(plan: PlanNode, property: 'Index Name' | 'Relation Name'): string[] {
  return [...new Set(allNodes(plan).flatMap((node) => node[property] ?? []))].sort();
}

/** The conditions of a plan, as PostgreSQL writes them. */
export function conditionsOf(plan: PlanNode): string {
  return allNodes(plan)
    .flatMap((node) => [node.Filter, node['Index Cond'], node['Join Filter'], node['Recheck Cond']])
    .filter((each) => each !== undefined)
    .join(' ');
}
