/** Tools that read: items, aggregates, searches, functions, the plan of a read, and the model. */

import { invalidPayload, invalidQuery } from '../../base/errors.js';
import { writeJson } from '../../base/exact-json.js';
import { type Collection, type Field, type Model, needsValue, type Overload } from '../../compiler/model/model.js';
import type { Parsed } from '../../compiler/request/ast.js';
import { parseSearch } from '../../compiler/request/rest.js';
import { mayExplain } from '../../server/access/view-as.js';
import { BOOLEAN, INTEGER, list, RECORD, type Schema, STRING } from '../../server/api/openapi/json-schema.js';
import type { PreparedRead } from '../../server/execute/reads/reads.js';
import { dataOf, flagIn, given, numberIn, type Tool, type ToolCall, textIn, visibleModel } from './tool.js';

const FILTER: Schema = {
  ...RECORD,
  description:
    'Conditions such as {"status": {"_eq": "open"}}, {"_or": [...]}, {"author": {"name": {"_contains": "x"}}}. For lists of related items: {"orders": {"_some": {...}}}, and {"orders": {"_none": {"ordered": {"_gte": "2026-01-01"}}}} for items without any. "$NOW" is the current time, "$NOW(-1 year)" a year ago.',
};
const FIELDS: Schema = {
  ...list(STRING),
  description: 'Such as ["id", "title", "author.name"]; few fields keep answers small',
};
const SORT: Schema = { ...list(STRING), description: 'Such as ["-created", "name"]' };
export const PAGE = { limit: INTEGER, offset: INTEGER };
const COLLECTION = { collection: STRING };

const DEFAULT_ROWS = 20;

export async function prepare(call: ToolCall, query: Parsed): Promise<PreparedRead<Parsed>> {
  const { client, services } = call;
  const caller = await services.reads.conditioned(query, call.caller, client);
  return { query, compiled: await services.reads.prepare(query, caller, client), caller, origin: client };
}

/** Refuses a read whose estimated cost is too high. */
export async function checkCost(prepared: PreparedRead, { services, limits, caller }: ToolCall): Promise<void> {
  const { plan } = await services.reads.explain(prepared, false);
  const cost = plan?.[0].Plan['Total Cost'] ?? 0;
  if (cost <= limits.cost) return;
  // The estimate counts all rows, also those that a rule hides.
  const figure = caller.administrator ? `${Math.round(cost)}, ` : '';
  const exceeded = { option: 'MCP_MAX_QUERY_COST', limit: limits.cost };
  throw invalidQuery(`The estimated cost is ${figure}above ${limits.cost}: filter by an indexed field`, exceeded);
}

interface Page {
  readonly limit: number;
  readonly offset: number;
  /** Asks for one more row, to know whether there are more. */
  readonly query: Readonly<Record<string, number>>;
}

export function pageIn({ input, limits }: ToolCall): Page {
  const limit = Math.min(numberIn(input, 'limit', DEFAULT_ROWS), limits.rows);
  if (limit === 0) throw invalidPayload('"limit" must be at least 1');
  const offset = numberIn(input, 'offset', 0);
  return { limit, offset, query: { limit: limit + 1, ...(offset > 0 && { offset }) } };
}

export function pageOf(data: unknown, { limit, offset }: Page): object {
  if (!Array.isArray(data) || data.length <= limit) return { data };
  return { data: data.slice(0, limit), more: moreAfter(offset + limit) };
}

function moreAfter(offset: number): string {
  return `There are more: ask again with "offset": ${offset}`;
}

async function readPage(call: ToolCall, query: Readonly<Record<string, unknown>>): Promise<unknown> {
  const { input, services } = call;
  const page = pageIn(call);
  const body = { query: { ...query, ...page.query } };
  const prepared = await prepare(call, parseSearch(textIn(input, 'collection'), body, '', services.limits));
  await checkCost(prepared, call);
  return pageOf(dataOf(await services.reads.run(prepared, call.client)), page);
}

const read: Tool = {
  name: 'read',
  description: 'Read items of a collection, with fields of related items. Returns {"data": [...]}.',
  writes: 'never',
  properties: { ...COLLECTION, fields: FIELDS, filter: FILTER, sort: SORT, ...PAGE },
  required: ['collection'],
  run: (call) => readPage(call, given(call.input, ['fields', 'filter', 'sort'])),
};

const search: Tool = {
  name: 'search',
  description: 'Find items of a collection whose texts contain the words.',
  writes: 'never',
  properties: { ...COLLECTION, text: STRING, fields: FIELDS, filter: FILTER, ...PAGE },
  required: ['collection', 'text'],
  run: (call) => {
    const text = textIn(call.input, 'text');
    return readPage(call, { ...given(call.input, ['fields', 'filter']), search: text });
  },
};

const aggregate: Tool = {
  name: 'aggregate',
  description:
    'Count, sum, average, minimum and maximum over items, also by groups. "aggregate" is such as {"count": "*", "sum": ["price"]}.',
  writes: 'never',
  properties: {
    ...COLLECTION,
    aggregate: RECORD,
    groupBy: { ...list(STRING), description: 'Fields, or functions such as "year(created)"' },
    filter: FILTER,
    sort: SORT,
    ...PAGE,
  },
  required: ['collection', 'aggregate'],
  run: (call) => readPage(call, given(call.input, ['aggregate', 'groupBy', 'filter', 'sort'])),
};

const explain: Tool = {
  name: 'explain',
  description: 'Show the SQL of a read, and how PostgreSQL plans it, without running it.',
  writes: 'never',
  properties: { ...COLLECTION, fields: FIELDS, filter: FILTER, sort: SORT, limit: INTEGER },
  required: ['collection'],
  run: async (call) => {
    const { input, caller, services } = call;
    if (!mayExplain(caller)) throw invalidPayload('Only administrators may see the SQL of a read');
    const query = given(input, ['fields', 'filter', 'sort', 'limit']);
    const prepared = await prepare(call, parseSearch(textIn(input, 'collection'), { query }, '', services.limits));
    const { sql, parameters, plan } = await services.reads.explain(prepared, false);
    return { sql, parameters, cost: plan?.[0].Plan['Total Cost'], plan: plan?.[0].Plan };
  },
};

const describe: Tool = {
  name: 'describe',
  description:
    'List the collections, their relations and the functions that you may use, or describe one collection: its fields, types, relations and notes. Call this first.',
  writes: 'never',
  properties: {
    collection: STRING,
    offset: { ...INTEGER, description: 'Leave out so many entries, if the answer before says that there are more' },
    system: { ...BOOLEAN, description: 'List the collections of the service as well' },
  },
  required: [],
  run: async (call) => {
    const model = visibleModel(call);
    const { collection: name } = call.input;
    if (name === undefined || name === null) return listModel(call, model, flagIn(call.input, 'system'));
    const collection = model.collections.get(textIn(call.input, 'collection'));
    if (!collection) throw invalidPayload(`You may not read "${String(name)}", or it does not exist`);
    return describeCollection(call, collection, model);
  },
};

/** Entries from the offset on, as many as fit into half of an answer; at least one. */
function somePart(entries: readonly object[], { input, limits }: ToolCall): { shown: readonly object[]; more: object } {
  const offset = numberIn(input, 'offset', 0);
  let bytes = 0;
  let end = offset;
  for (const entry of entries.slice(offset)) {
    bytes += Buffer.byteLength(writeJson(entry));
    if (bytes > limits.bytes / 2 && end > offset) break;
    end++;
  }
  return { shown: entries.slice(offset, end), more: end < entries.length ? { more: moreAfter(end) } : {} };
}

function listModel(call: ToolCall, model: Model, hasSystem: boolean): unknown {
  const listed = [...model.collections.values()].filter(({ system }) => hasSystem || !system);
  const collections = listed.map(({ name, key, fields, meta, comment }) => ({
    collection: name,
    key: key.map((field) => field.name),
    fields: fields.size,
    ...relationsIn(fields, model),
    ...note(meta?.['note'] ?? comment),
  }));
  const functions = [...model.functions.values()].flatMap(({ overloads, note: text }) =>
    overloads.map((overload) => describeFunction(overload, text)),
  );
  const { shown, more } = somePart([...collections, ...functions], call);
  return {
    collections: shown.filter((entry) => 'collection' in entry),
    functions: shown.filter((entry) => 'function' in entry),
    ...more,
    next: 'Describe one collection with {"collection": "..."}',
  };
}

function describeFunction({ name, arguments: taken, volatile, comment }: Overload, text: string | null): object {
  return {
    function: name,
    arguments: taken.map((each) => ({
      name: each.name,
      type: each.field.type,
      ...(each.required && { required: true }),
    })),
    ...(volatile && { may_write: true }),
    ...note(text ?? comment),
  };
}

/** The collections that relations lead to, by field. */
function relationsIn(fields: Collection['fields'], model: Model): object {
  const found = [...fields.values()].flatMap((field): [string, string][] => {
    const target = targetOf(field, model);
    return target === null ? [] : [[field.name, target]];
  });
  return found.length === 0 ? {} : { relations: Object.fromEntries(found) };
}

function describeCollection(call: ToolCall, { name, key, fields, meta, comment }: Collection, model: Model): unknown {
  const described = [...fields.values()].map((field) => ({
    field: field.name,
    type: field.type,
    ...(field.column && needsValue(field.column) && { required: true }),
    ...(field.column?.enum_values && { values: field.column.enum_values }),
    ...relationOf(field, model),
    ...note(field.meta?.['note'] ?? field.column?.comment),
  }));
  const { shown, more } = somePart(described, call);
  return {
    collection: name,
    key: key.map((field) => field.name),
    ...note(meta?.['note'] ?? comment),
    fields: shown,
    ...more,
  };
}

function relationOf(field: Field, model: Model): object {
  const { relation } = field;
  if (!relation) return {};
  if (relation.kind === 'many-to-any') return { relation: relation.kind };
  const target = targetOf(field, model);
  return target === null ? {} : { relation: relation.kind, to: target };
}

/** The collection that the relation of a field leads to, or null if there is none or the caller may not read it. */
function targetOf({ name, relation }: Field, { collections }: Model): string | null {
  if (!relation || relation.kind === 'many-to-any') return null;
  const isOne = relation.kind === 'many-to-one' && relation.manyField === name;
  const target = isOne ? relation.oneCollection : relation.manyCollection;
  return collections.has(target) ? target : null;
}

const MAX_NOTE = 1_000;

function note(text: unknown): object {
  return typeof text === 'string' && text !== '' ? { note: text.slice(0, MAX_NOTE) } : {};
}

export const READ_TOOLS: readonly Tool[] = [describe, read, aggregate, search, explain];
