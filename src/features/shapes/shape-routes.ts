/** GET /server/shapes: the statements that took the most time. */
import { forbidden, invalidQuery } from '../../base/errors.js';
import type { Identities } from '../../server/access/identities.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../../server/api/action.js';
import {
  BOOLEAN,
  INTEGER,
  list,
  object,
  oneOf,
  orNull,
  queryParameter,
  RECORD,
  STRING,
} from '../../server/api/openapi/json-schema.js';
import { addReports, digestOf, p99, type ShapeReport, type ShapeStats } from '../../server/batching/shape-stats.js';
import { explainGeneric } from '../../server/postgres/generic-plan.js';
import type { Database } from '../../server/postgres/pools/database.js';

interface ShapesServices {
  readonly identities: Identities;
  readonly database: Database;
  /** The statistics of all threads. */
  readonly shapes: () => Promise<readonly ShapeReport[]>;
  readonly shapeStats: ShapeStats;
}

/** Times are milliseconds. The digest of the text is the attribute lateral.shape of traces. */
const SHAPE = {
  id: STRING,
  digest: STRING,
  text: STRING,
  plan: oneOf('generic', 'custom', 'fenced'),
  calls: INTEGER,
  statements: INTEGER,
  failed: INTEGER,
  hits: INTEGER,
  total: { type: 'number' },
  mean: { type: 'number' },
  p99: { type: 'number' },
  max: { type: 'number' },
  rows: orNull({ type: 'number' }),
  budget: orNull({ type: 'number' }),
  exceeded: BOOLEAN,
};

export function shapesRoutes(services: ShapesServices): ApiRoute[] {
  const action = actionRoutes(services);
  return [
    action('GET /server/shapes', listShapes, {
      summary: 'The statements with the largest total time in the last five minutes',
      allow: 'administrators',
      parameters: [queryParameter('limit', INTEGER, 'Maximum number, at most 1,000; 20 by default.')],
      data: list(object(SHAPE)),
      graphql: { name: 'server_shapes' },
    }),
    action('GET /server/shapes/:id', show, {
      summary: 'One of these statements, with its plan',
      allow: 'administrators',
      data: object({ ...SHAPE, explain: list(RECORD) }),
      graphql: { name: 'server_shapes_by_id' },
    }),
  ];
}

const DEFAULT_LIMIT = 20;
const MAX_LIMIT = 1_000;

async function listShapes({ queryString }: ActionRequest, services: ShapesServices): Promise<ActionResult> {
  const limit = readLimit(queryString);
  const shapes = (await merged(services))
    .map((report) => describe(report, services))
    .sort((one, other) => other.total - one.total);
  return { data: shapes.slice(0, limit), secret: true };
}

/** With its generic plan. */
async function show({ parameters }: ActionRequest, services: ShapesServices): Promise<ActionResult> {
  const [id] = parameters;
  const report = (await merged(services)).find((each) => idOf(each) === id);
  if (!report) throw forbidden(`No statement of the last minutes has the id "${id}"`);
  const { text, parameters: length } = report;
  const plan = await explainGeneric(services.database, { text, parameters: { length } });
  return { data: { ...describe(report, services), explain: [{ Plan: plan }] }, secret: true };
}

function readLimit(queryString: string): number {
  const limitText = new URLSearchParams(queryString).get('limit') ?? String(DEFAULT_LIMIT);
  const limit = /^\d{1,9}$/.test(limitText) ? Number(limitText) : 0;
  if (limit < 1 || limit > MAX_LIMIT) throw invalidQuery(`"limit" must be a whole number from 1 to ${MAX_LIMIT}`);
  return limit;
}

/** Adds the statistics that several threads have of the same statement. */
async function merged({ shapes }: Pick<ShapesServices, 'shapes'>): Promise<ShapeReport[]> {
  const byStatement = new Map<string, ShapeReport>();
  for (const report of await shapes()) {
    const name = `${report.plan} ${report.text}`;
    const cached = byStatement.get(name);
    byStatement.set(name, cached ? addReports(cached, report) : report);
  }
  return [...byStatement.values()];
}

function idOf({ plan, text }: ShapeReport): string {
  return digestOf(`${plan} ${text}`);
}

/** The digest of the statement with this id, or null if none of the last minutes has it. */
export async function digestOfShape(id: string, services: Pick<ShapesServices, 'shapes'>): Promise<string | null> {
  const report = (await merged(services)).find((each) => idOf(each) === id);
  return report ? digestOf(report.text) : null;
}

function describe(report: ShapeReport, { shapeStats }: ShapesServices) {
  const { text, plan, calls, statements, failed, hits, totalMs, maxMs, samples, sampledRows } = report;
  const budget = shapeStats.budgets.get(digestOf(text))?.p99 ?? null;
  return {
    id: idOf(report),
    digest: digestOf(text),
    text,
    plan,
    calls,
    statements,
    failed,
    // Requests that were answered from memory; `calls` does not count them.
    hits,
    total: rounded(totalMs),
    mean: rounded(statements === 0 ? 0 : totalMs / statements),
    p99: rounded(p99(report)),
    max: rounded(maxMs),
    // Rows per answer on average.
    rows: samples === 0 ? null : Math.round((sampledRows / samples) * 10) / 10,
    budget,
    exceeded: budget !== null && p99(report) > budget,
  };
}

function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
