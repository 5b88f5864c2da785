/**
 * Smaller requests and fewer rows that still fail. Requests are JSON: parts are taken away one after the other as long as
 * the answer stays wrong. Then rows are, as long as the database lets them go.
 */
import type { Sql } from '../../../support/service.js';
import { deleteRow, insertRows } from './database.js';
import type { Model } from './model.js';
import type { Query, ReadRequest } from './requests.js';

/** What is wrong with the answer to a request; null where nothing is, or where the request has no answer. */
export type Check = (request: ReadRequest) => Promise<string | null>;

const MOST_ATTEMPTS = 600;

/** `least` is what a request that selects as little as possible selects. */
export async function shrinkRequest(
  request: ReadRequest,
  least: readonly string[],
  check: Check,
): Promise<ReadRequest> {
  let smallest = request;
  let attempts = 0;
  for (let progress = true; progress; ) {
    progress = false;
    for (const candidate of candidates(smallest, least)) {
      if (++attempts > MOST_ATTEMPTS) return smallest;
      if ((await check(candidate)) === null) continue;
      smallest = candidate;
      progress = true;
      break;
    }
  }
  return smallest;
}

function* candidates(request: ReadRequest, least: readonly string[]): Generator<ReadRequest> {
  if (request.walk !== null) yield { ...request, walk: null };
  if (request.keys !== null) yield { ...request, keys: null };
  const { fields } = request.query;
  if (!Array.isArray(fields) || fields[0] !== least[0])
    yield { ...request, query: { ...request.query, fields: least } };
  for (const query of without(request.query) as Generator<Query>) {
    if (query['fields'] !== undefined) yield { ...request, query };
  }
}

/** The value with one part less: outer parts first. */
function* without(value: unknown): Generator<unknown> {
  if (value === null || typeof value !== 'object') return;
  if (Array.isArray(value)) {
    for (const position of value.keys()) yield value.filter((_, each) => each !== position);
    for (const [position, part] of value.entries()) {
      for (const smaller of without(part)) yield value.map((each, at) => (at === position ? smaller : each));
    }
    return;
  }
  const entries = Object.entries(value);
  for (const [name] of entries) yield Object.fromEntries(entries.filter(([each]) => each !== name));
  for (const [name, part] of entries) for (const smaller of without(part)) yield { ...value, [name]: smaller };
}

/** Takes rows out of the tables and of the model alike. */
export async function shrinkRows(sql: Sql, model: Model, request: ReadRequest, check: Check): Promise<void> {
  for (const table of [...model.tables].reverse()) {
    if (table.key.length === 0) continue;
    for (const row of [...table.rows]) {
      if (!(await deleteRow(sql, table, row))) continue;
      const before = table.rows;
      table.rows = before.filter((each) => each !== row);
      if ((await check(request)) !== null) continue;
      table.rows = before;
      await insertRows(sql, table, [row]);
    }
  }
}
