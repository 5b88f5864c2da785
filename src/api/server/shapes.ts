/** GET /server/shapes: the statements that took the most time in the last minutes, and the plan of one of them. */
import type { Identities } from '../../access/identities.js';
import { forbidden, invalidQuery } from '../../base/errors.js';
import { addReports, digestOf, p99, type ShapeReport } from '../../batching/shape-stats.js';
import { explainGeneric, type PlanNode } from '../../engine/reads/generic-plan.js';
import type { Database } from '../../postgres/pools/database.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../action.js';
import { INTEGER, list, object, oneOf, orNull, RECORD, STRING } from '../openapi/json-schema.js';
import { queryParameter } from '../openapi/parameters.js';

export interface ShapesServices {
  readonly identities: Identities;
  readonly database: Database;
  /** The statistics of all threads. */
  readonly shapes: () => Promise<readonly ShapeReport[]>;
}

/** Times are milliseconds. */
interface ShapeSummary {
  readonly id: string;
  /** The digest of the text, which is the attribute lateral.shape of traces. */
  readonly digest: string;
  readonly text: string;
  readonly plan: ShapeReport['plan'];
  readonly calls: number;
  readonly statements: number;
  readonly failed: number;
  readonly total: number;
  readonly mean: number;
  readonly p99: number;
  readonly max: number;
  /** Rows per answer on average, or null if none were counted. */
  readonly rows: number | null;
}

const SHAPE = {
  id: STRING,
  digest: STRING,
  text: STRING,
  plan: oneOf('generic', 'custom', 'fenced'),
  calls: INTEGER,
  statements: INTEGER,
  failed: INTEGER,
  total: { type: 'number' },
  mean: { type: 'number' },
  p99: { type: 'number' },
  max: { type: 'number' },
  rows: orNull({ type: 'number' }),
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
  const shapes = (await merged(services)).map(describe).sort((one, other) => other.total - one.total);
  return { data: shapes.slice(0, limit), secret: true };
}

/** With its generic plan. */
async function show({ parameters }: ActionRequest, services: ShapesServices): Promise<ActionResult> {
  const [id] = parameters;
  const report = (await merged(services)).find((each) => idOf(each) === id);
  if (!report) throw forbidden(`No statement of the last minutes has the id "${id}"`);
  return { data: { ...describe(report), explain: [{ Plan: await planOf(report, services.database) }] }, secret: true };
}

function planOf({ text, parameters }: ShapeReport, database: Database): Promise<PlanNode> {
  return explainGeneric(database, { text, parameters: { length: parameters } });
}

function readLimit(queryString: string): number {
  const limitText = new URLSearchParams(queryString).get('limit') ?? String(DEFAULT_LIMIT);
  const limit = /^\d{1,9}$/.test(limitText) ? Number(limitText) : 0;
  if (limit < 1 || limit > MAX_LIMIT) throw invalidQuery(`"limit" must be a whole number from 1 to ${MAX_LIMIT}`);
  return limit;
}

/** Adds the statistics that several threads have of the same statement. */
async function merged({ shapes }: ShapesServices): Promise<ShapeReport[]> {
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

function describe(report: ShapeReport): ShapeSummary {
  const { text, plan, calls, statements, failed, totalMs, maxMs, samples, sampledRows } = report;
  return {
    id: idOf(report),
    digest: digestOf(text),
    text,
    plan,
    calls,
    statements,
    failed,
    total: rounded(totalMs),
    mean: rounded(statements === 0 ? 0 : totalMs / statements),
    p99: rounded(p99(report)),
    max: rounded(maxMs),
    rows: samples === 0 ? null : Math.round((sampledRows / samples) * 10) / 10,
  };
}

function rounded(ms: number): number {
  return Math.round(ms * 1_000) / 1_000;
}
