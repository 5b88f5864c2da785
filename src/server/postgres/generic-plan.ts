/** The generic plan of a shape, and the risks that PostgreSQL's explanation of it shows. */

import { withCatalog } from '../../compiler/sql/catalog-names.js';
import type { Database } from './pools/database.js';

export interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Parent Relationship'?: string;
  readonly 'Startup Cost': number;
  readonly 'Total Cost': number;
  readonly 'Plan Rows': number;
  readonly Filter?: string;
  readonly 'Join Filter'?: string;
  readonly 'Index Cond'?: string;
  readonly 'Recheck Cond'?: string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'CTE Name'?: string;
  readonly 'Function Name'?: string;
  readonly 'Subplan Name'?: string;
  readonly 'Join Type'?: string;
  readonly 'Scan Direction'?: string;
  readonly Strategy?: string;
  readonly Plans?: readonly PlanNode[];
}

/** A node of a plan for the values of one request; after an execution with the rows and times. */
export interface ExplainedNode extends PlanNode {
  readonly 'Actual Total Time'?: number;
  readonly 'Actual Rows'?: number;
  readonly 'Actual Loops'?: number;
  readonly 'Rows Removed by Filter'?: number;
  readonly 'Hash Cond'?: string;
  readonly 'Merge Cond'?: string;
  readonly 'Sort Key'?: readonly string[];
  readonly Plans?: readonly ExplainedNode[];
}

/** As `explain (format json)` writes it. */
export interface ExplainedPlan {
  readonly Plan: ExplainedNode;
  readonly 'Planning Time'?: number;
  readonly 'Execution Time'?: number;
}

/**
 * The plan of a statement for no values in particular, as connections for reads make it. PostgreSQL 16 can explain it at once, but
 * this way is the same for every version.
 */
export async function explainGeneric(
  database: Database,
  { text, parameters }: { readonly text: string; readonly parameters: { readonly length: number } },
): Promise<PlanNode> {
  const name = `lateral_explained_${++explained}`;
  const values = parameters.length === 0 ? '' : `(${new Array(parameters.length).fill('null').join(', ')})`;
  const rows = await database.own.use(async (session) => {
    try {
      return await session.transaction(async () => {
        await session.query(`${SETTINGS}; prepare ${name} as ${text}`);
        return await session.query<Explained>(`explain (format json) execute ${name}${values}`);
      });
    } finally {
      await session.query(`deallocate ${name}`).catch(() => {});
    }
  });
  return planOf(rows);
}

/** The plan of a statement for these values, as connections for reads make it. */
export async function explainCustom(
  database: Database,
  text: string,
  values: readonly (string | null)[],
): Promise<PlanNode> {
  const rows = await database.own.use((session) =>
    session.transaction(async () => {
      await session.query(SETTINGS);
      return session.query<Explained>(`explain (format json) ${text}`, values);
    }),
  );
  return planOf(rows);
}

function planOf([row]: readonly Explained[]): PlanNode {
  const plan = row?.['QUERY PLAN'][0]?.Plan;
  if (!plan) throw new Error('PostgreSQL explained nothing');
  return plan;
}

interface Explained {
  readonly 'QUERY PLAN': readonly { readonly Plan: PlanNode }[];
}

let explained = 0;

/** Until the end of the transaction. */
const SETTINGS = withCatalog(
  "select set_config('plan_cache_mode', 'force_generic_plan', true), set_config('max_parallel_workers_per_gather', '0', true)",
);

/** The value of a request, which a generic plan does not know. */
const VALUE = /\$\d/;

/**
 * The most that a page can cost beyond its estimate: the planner expects to meet a limit soon, but if a condition on values
 * discards rows on the way, all rows may have to be read. `condition` finds such conditions: those on values if it is absent.
 */
export function stretchOf(node: PlanNode, condition = VALUE): number {
  const below = Math.max(0, ...(node.Plans ?? []).map((child) => stretchOf(child, condition)));
  if (node['Node Type'] !== 'Limit') return below;
  const [child] = node.Plans ?? [];
  if (!child || !discards(child, condition)) return below;
  return Math.max(below, child['Total Cost'] - child['Startup Cost']);
}

/** `drives`: whether it is the scan that the rows come from. Only its index condition bounds what is read. */
function discards(node: PlanNode, condition: RegExp, drives = true): boolean {
  const isMet = (text: string | undefined): boolean => text !== undefined && condition.test(text);
  if (isMet(node.Filter) || isMet(node['Join Filter'])) return true;
  if (!drives && (isMet(node['Index Cond']) || isMet(node['Recheck Cond']))) return true;
  return (node.Plans ?? []).some((child) => {
    const relationship = child['Parent Relationship'];
    return discards(child, condition, drives && relationship !== 'Inner' && relationship !== 'SubPlan');
  });
}

/** A scan of all rows that costs less is no loss. */
const SMALL_SCAN_COST = 200;

/** Whether the plan finds rows by the values in an index, and reads no large table as a whole. */
export function findsByIndex(plan: PlanNode): boolean {
  const nodes = allNodes(plan);
  const isWhole = (node: PlanNode): boolean => node['Node Type'] === 'Seq Scan' && node['Total Cost'] > SMALL_SCAN_COST;
  return nodes.some((node) => VALUE.test(node['Index Cond'] ?? '')) && !nodes.some(isWhole);
}

export function allNodes(node: PlanNode): PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(allNodes)];
}
