/** PATCH /server/shapes: a budget for the 99th percentile of a statement. Statements that take longer are counted for Prometheus. */

import { invalidPayload } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { parseOwnJson } from '../../base/narrow.js';
import type { Identities } from '../../server/access/identities.js';
import type { Identity } from '../../server/access/identity.js';
import { type ActionRequest, type ActionResult, type ApiRoute, actionRoutes } from '../../server/api/action.js';
import { object, orNull, STRING } from '../../server/api/openapi/json-schema.js';
import type { ShapeStats } from '../../server/batching/shape-stats.js';
import type { Database } from '../../server/postgres/pools/database.js';

interface BudgetServices {
  readonly identities: Identities;
  readonly database: Database;
  readonly shapeStats: ShapeStats;
  /** Applies the budgets, as JSON, in all threads. */
  readonly apply: (text: string) => Promise<void>;
  /** The digest of the statement with this id, or null if none of the last minutes has it. */
  readonly digestOf: (id: string) => Promise<string | null>;
}

const BUDGET = { type: 'number', exclusiveMinimum: 0 };

export function budgetRoutes(services: BudgetServices): ApiRoute[] {
  const action = actionRoutes(services);
  return [
    action('PATCH /server/shapes/:id', setBudget, {
      summary: 'Set or remove the budget of a statement, by its id or digest',
      allow: 'administrators',
      body: object(
        { budget: { ...orNull(BUDGET), description: 'Milliseconds of the 99th percentile; null for none.' } },
        ['budget'],
      ),
      data: object({ digest: STRING, budget: orNull(BUDGET) }),
    }),
  ];
}

const MAX_BUDGETS = 300;
const MAX_BUDGET_MS = 86_400_000;

async function setBudget(
  { parameters, caller, json }: ActionRequest<Identity>,
  { database, shapeStats, apply, digestOf }: BudgetServices,
): Promise<ActionResult> {
  const [id = ''] = parameters;
  const body = await json();
  const budget = isObject(body) && Object.keys(body).length === 1 ? body['budget'] : undefined;
  const isNumber = typeof budget === 'number' && budget > 0 && budget <= MAX_BUDGET_MS;
  if (budget !== null && !isNumber)
    throw invalidPayload(`"budget" must be milliseconds above 0 and up to ${MAX_BUDGET_MS}, or null`);
  if (!/^[\w-]{16}$/.test(id)) throw invalidPayload(`"${id}" is not the id or the digest of a statement`);
  const digest = (await digestOf(id)) ?? id;
  if (isNumber && !shapeStats.budgets.has(digest) && shapeStats.budgets.size >= MAX_BUDGETS)
    throw invalidPayload(`There are ${MAX_BUDGETS} budgets already: remove one first`);
  await (isNumber
    ? database.rows(SAVE, [digest, String(budget), caller.user])
    : database.rows('delete from service_shape_budgets where shape = $1', [digest]));
  await apply(await loadBudgets(database));
  return { data: { digest, budget }, secret: true };
}

const SAVE = `insert into service_shape_budgets (shape, p99, user_updated) values ($1, $2::float8, $3::uuid)
  on conflict (shape) do update set p99 = excluded.p99, user_updated = excluded.user_updated, date_updated = now()`;

/** All budgets as JSON, in milliseconds by the digest of the statement. */
export async function loadBudgets(database: Database): Promise<string> {
  const cell = await database.cell(
    "select coalesce(json_object_agg(shape, p99), '{}')::text from service_shape_budgets",
    [],
  );
  return String(cell);
}

export function applyBudgets(text: string, shapeStats: ShapeStats): void {
  shapeStats.setBudgets(new Map(Object.entries(parseOwnJson<Readonly<Record<string, number>>>(text))));
}
