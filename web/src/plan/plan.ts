/** PostgreSQL's plan of a statement: its nodes, their times, and hints. */
import type { Collection, Model } from '../model';

export type PlanJson = Readonly<Record<string, unknown>>;

export interface Explanation {
  readonly sql: string;
  readonly parameters: readonly (string | null)[];
  /** How PostgreSQL plans reads of this shape; the plan here is made for the values. */
  readonly plan_kind: 'generic' | 'custom' | 'fenced';
  /** Indexes that could serve the request. If an entry has several indexes, the read needs all of them. */
  readonly indexes: readonly (readonly ProposedIndex[])[];
  readonly plan: readonly [
    { readonly Plan: PlanJson; readonly 'Execution Time'?: number; readonly 'Planning Time'?: number },
  ];
}

interface ProposedIndex {
  readonly table: string;
  readonly columns: readonly string[];
  /** The extension that it needs, or null. */
  readonly extension: string | null;
  readonly statement: string;
}

export interface PlanNode {
  readonly type: string;
  /** The table, index or alias of the node. */
  readonly about: string;
  readonly table: string | null;
  readonly details: readonly string[];
  readonly cost: number;
  readonly expected: number;
  /** Over all loops, or null if the statement was not run. */
  readonly found: number | null;
  readonly loops: number;
  /** Milliseconds of this node without its children, or null if the statement was not run. */
  readonly own: number | null;
  readonly total: number | null;
  readonly buffers: string | null;
  readonly children: readonly PlanNode[];
  readonly raw: PlanJson;
}

export function readPlan(json: PlanJson): PlanNode {
  const children = (Array.isArray(json['Plans']) ? (json['Plans'] as PlanJson[]) : []).map(readPlan);
  const loops = number(json['Actual Loops']) ?? 1;
  const time = number(json['Actual Total Time']);
  const total = time === null ? null : time * Math.max(1, loops);
  const below = children.reduce((sum, child) => sum + (child.total ?? 0), 0);
  const rows = number(json['Actual Rows']);
  const table = text(json['Relation Name']);
  const about = [table, text(json['Index Name']), text(json['CTE Name']), text(json['Function Name'])].filter(
    (each) => each !== null,
  );
  return {
    type: String(json['Node Type']),
    about: about.join(' · '),
    table,
    details: detailsOf(json),
    cost: number(json['Total Cost']) ?? 0,
    expected: (number(json['Plan Rows']) ?? 0) * Math.max(1, loops),
    found: rows === null ? null : rows * loops,
    loops,
    own: total === null ? null : Math.max(0, total - below),
    total,
    buffers: buffersOf(json),
    children,
    raw: json,
  };
}

const CONDITIONS = [
  'Index Cond',
  'Recheck Cond',
  'Hash Cond',
  'Merge Cond',
  'Join Filter',
  'Filter',
  'Sort Key',
  'Group Key',
  'One-Time Filter',
];

function detailsOf(json: PlanJson): string[] {
  const details = CONDITIONS.flatMap((name) => {
    const value = json[name];
    return value === undefined ? [] : [`${name}: ${Array.isArray(value) ? value.join(', ') : String(value)}`];
  });
  const removed = number(json['Rows Removed by Filter']);
  const method = text(json['Sort Method']);
  return [
    ...details,
    ...(removed ? [`Rows removed by the filter: ${removed}`] : []),
    ...(method
      ? [`Sort: ${method}, ${String(json['Sort Space Used'])} kB ${String(json['Sort Space Type']).toLowerCase()}`]
      : []),
  ];
}

function buffersOf(json: PlanJson): string | null {
  const [hit, read] = [number(json['Shared Hit Blocks']), number(json['Shared Read Blocks'])];
  if (hit === null || read === null) return null;
  return `pages: ${hit.toLocaleString('en')} cached${read > 0 ? `, ${read.toLocaleString('en')} read` : ''}`;
}

function number(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}

function text(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

function allNodes(node: PlanNode): PlanNode[] {
  return [node, ...node.children.flatMap(allNodes)];
}

/** The node with the longest time of its own; without a run, the one with the highest estimated cost. */
export function slowest(root: PlanNode): PlanNode {
  const weigh = (node: PlanNode): number =>
    node.own ?? node.cost - node.children.reduce((sum, child) => sum + child.cost, 0);
  return allNodes(root).reduce((worst, node) => (weigh(node) > weigh(worst) ? node : worst), root);
}

export interface Hint {
  readonly text: string;
  readonly sql: string | null;
}

const MANY_ROWS = 1_000;
/** The cost of an expensive plan that was not run. `lateral advise` has the same limit. */
const LEAST_COST = 100;

export function hintsFor(root: PlanNode, model: Model, proposed: Explanation['indexes']): Hint[] {
  const hints = [
    ...unindexed(root, model, proposed),
    ...fullyRead(root).flatMap(misjudged),
    ...allNodes(root).flatMap(spilled),
  ];
  const seen = new Set<string>();
  return hints.filter((hint) => !seen.has(hint.text) && seen.add(hint.text));
}

/** The text for a plan without findings. A scan of a whole table may well be the best plan. */
export function goodNews(root: PlanNode): string {
  const scanned = [...new Set(allNodes(root).flatMap(({ type, table }) => (/Seq Scan$/.test(type) ? [table] : [])))];
  const expected = 'The planner expected about as many rows as it found.';
  if (scanned.length === 0) return `Indexes serve the query. ${expected}`;
  return `PostgreSQL scans ${scanned.join(', ')} without an index, and no filter needs one. ${expected}`;
}

/** The plan is made for the values of this query. The note says whether reads use such a plan, or a generic one. */
export function planningNote({ plan_kind, parameters }: Explanation): string | null {
  if (parameters.length === 0) return null;
  return plan_kind === 'generic'
    ? 'Reads use a generic plan: the statement is prepared, and planned once for all values. This plan is made for the values of this query and may differ from it.'
    : 'PostgreSQL plans these reads for their values, as it did here: a generic plan for all values would be too slow for some of them.';
}

interface FilteredScan {
  readonly table: string;
  readonly collection: Collection;
  readonly columns: readonly string[];
  readonly read: number;
  readonly found: number | null;
  readonly cost: number;
}

/** Scans of partitions with one filter count together: the table is as large as all of them. */
function unindexed(root: PlanNode, model: Model, proposed: Explanation['indexes']): Hint[] {
  const scans = new Map<string, FilteredScan[]>();
  for (const node of allNodes(root)) {
    const scan = filteredScan(node, model);
    if (!scan) continue;
    const id = JSON.stringify([scan.collection.name, scan.columns]);
    scans.set(id, [...(scans.get(id) ?? []), scan]);
  }
  return [...scans.values()].flatMap((group) => missingIndex(group, proposed));
}

function filteredScan(node: PlanNode, model: Model): FilteredScan | null {
  const filter = text(node.raw['Filter']);
  const { table } = node;
  if (node.type !== 'Seq Scan' || filter === null || table === null) return null;
  const collection = model.get(table) ?? parentOf(table, model);
  const columns = columnsIn(filter, collection);
  if (!collection || columns.length === 0) return null;
  const read = (node.found ?? node.expected) + (number(node.raw['Rows Removed by Filter']) ?? 0) * node.loops;
  return { table, collection, columns, read, found: node.found, cost: node.cost };
}

/** A plan does not name the parent of a partition: names of partitions begin with that of their table. */
function parentOf(table: string, model: Model): Collection | undefined {
  const names = [...model.keys()].filter((name) => table.startsWith(`${name}_`));
  return model.get(names.sort((one, other) => other.length - one.length)[0] ?? '');
}

/** The service proposes the index: it knows what the request asks. */
function missingIndex(scans: readonly FilteredScan[], proposed: Explanation['indexes']): Hint[] {
  const [first] = scans;
  if (!first) return [];
  const sum = (pick: (scan: FilteredScan) => number): number => scans.reduce((total, scan) => total + pick(scan), 0);
  const tables = [...new Set(scans.map(({ table }) => table))];
  const name = tables.length === 1 ? first.table : `${first.collection.name} (${tables.length} partitions)`;
  const columns = first.columns.join(', ');
  const read = sum(({ read: each }) => each);
  const isExpected = first.found === null;
  if (read < MANY_ROWS && !(isExpected && sum(({ cost }) => cost) >= LEAST_COST))
    return [
      {
        text: `All rows of ${name} are scanned for the filter on ${columns}. The table is small: an index would not help yet.`,
        sql: null,
      },
    ];
  const found = isExpected ? ' (expected)' : ` to find ${rounded(sum((scan) => scan.found ?? 0))}`;
  return [
    {
      text: `No index serves the filter on ${columns}: ${rounded(read)} rows of ${name} are read${found}.`,
      sql: statementsFor(first, proposed),
    },
  ];
}

/** The first proposal for a column of the filter. */
function statementsFor({ table, collection, columns }: FilteredScan, proposed: Explanation['indexes']): string | null {
  const names = [table, collection.name];
  const found = proposed.find((group) =>
    group.some((index) => names.includes(index.table) && index.columns.some((column) => columns.includes(column))),
  );
  if (!found) return null;
  const extensions = new Set(found.flatMap(({ extension }) => extension ?? []));
  const needed = [...extensions].map((extension) => `create extension if not exists ${extension};`);
  return [...needed, ...found.map(({ statement }) => statement)].join('\n');
}

function rounded(count: number): string {
  return Math.round(count).toLocaleString('en');
}

/** The columns in a condition, in their order. */
function columnsIn(condition: string, collection: Collection | undefined): string[] {
  const bare = condition.replace(/'(?:[^']|'')*'/g, '');
  const names = [...bare.matchAll(/"((?:[^"]|"")+)"|\b([a-z_][\w$]*)\b/gi)].map(([, quoted, plain]) => quoted ?? plain);
  return [...new Set(names)].flatMap((name) => (name && collection?.fields.get(name)?.column ? [name] : []));
}

/** Nodes that read all of their input before they return a row. */
const WHOLE = new Set(['Sort', 'Aggregate', 'Hash', 'Materialize', 'CTE Scan']);

/** The nodes that ran to their end: a limit stops those below it as soon as it has enough rows. */
function fullyRead(node: PlanNode, isLimited = false): PlanNode[] {
  const isStopped = node.type === 'Limit' || (isLimited && !WHOLE.has(node.type));
  const isShort = isLimited && (node.found ?? 0) < node.expected;
  return [...(isShort ? [] : [node]), ...node.children.flatMap((child) => fullyRead(child, isStopped))];
}

function misjudged(node: PlanNode): Hint[] {
  if (node.found === null || node.type === 'Limit') return [];
  const [low, high] = [Math.min(node.found, node.expected), Math.max(node.found, node.expected)];
  const factor = high / Math.max(1, low);
  if (factor < 100) return [];
  const what = node.about === '' ? node.type : `${node.type} of ${node.about}`;
  return [
    {
      text: `${what}: ${rounded(node.expected)} rows were expected and ${rounded(node.found)} found, ${Math.round(factor)} times off. Fresh statistics may lead to a better plan.`,
      sql: node.table === null ? null : `analyze ${quote(node.table)};`,
    },
  ];
}

function spilled(node: PlanNode): Hint[] {
  if (node.raw['Sort Space Type'] !== 'Disk') return [];
  return [
    {
      text: `The sort did not fit into memory and used ${String(node.raw['Sort Space Used'])} kB of disk. An index in this order, or more work_mem, avoids that.`,
      sql: null,
    },
  ];
}

function quote(name: string): string {
  return /^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}
