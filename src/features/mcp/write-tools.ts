/** Tools that may write, in one transaction each. With `dry_run` the transaction is rolled back, and the answer is the same. */

import { invalidPayload, methodNotAllowed, ServiceError, unprocessable } from '../../base/errors.js';
import { isObject, writeJson } from '../../base/exact-json.js';
import type { Collection, Overload } from '../../compiler/model/model.js';
import { checkArguments } from '../../compiler/plan/call-arguments.js';
import type { Parsed } from '../../compiler/request/ast.js';
import type { Input } from '../../compiler/request/parse-context.js';
import { parseMessageReadBack, parseRpcSearch, parseSearch } from '../../compiler/request/rest.js';
import type { Selected, WriteRequest } from '../../compiler/request/write.js';
import { isVolatile } from '../../compiler/statements/read.js';
import { viewWrites } from '../../server/access/view-as.js';
import { isOpen } from '../../server/api/accounts/me.js';
import { BOOLEAN, list, RECORD, type Schema, STRING } from '../../server/api/openapi/json-schema.js';
import type { PreparedRead } from '../../server/execute/reads/reads.js';
import { countOf } from '../../server/execute/reads/session-reads.js';
import type { Writes } from '../../server/execute/writes/writes.js';
import type { Session } from '../../server/postgres/pools/sessions.js';
import { checkCost, PAGE, pageIn, pageOf, prepare } from './read-tools.js';
import { dataOf, flagIn, given, resultText, type Tool, type ToolCall, textIn, visibleModel } from './tool.js';

const DRY_RUN = { dry_run: { ...BOOLEAN, description: 'Only show the rows that would change' } };
const KEYS: Schema = {
  type: 'array',
  items: { type: ['string', 'integer', 'object'] },
  description: 'The keys of the items',
};
const FILTER: Schema = { ...RECORD, description: 'In place of "keys"' };
const FIELDS: Schema = { ...list(STRING), description: 'The fields of the answer' };

/** Ends a transaction that must not be committed. */
class DryRun extends Error {
  constructor(readonly result: unknown) {
    super('dry run');
  }
}

interface Written {
  readonly data: readonly unknown[];
  /** How many items were written. The caller may not be able to read all of them. */
  readonly count: number;
}

type Work = (writes: Writes, session: Session) => Promise<Written>;

async function write(call: ToolCall, done: string, work: Work): Promise<unknown> {
  const { writer, client, services, limits } = call;
  if (call.caller.isView) throw viewWrites();
  const isDry = flagIn(call.input, 'dry_run');
  try {
    return await services.writes.inOneTransaction({ writer, client }, async (writes, session) => {
      const { data, count } = await work(writes, session);
      checkRows(Math.max(count, data.length), call);
      if (isDry) {
        // The commit would check the others.
        await session.query('set constraints all immediate');
        throw new DryRun(resultText({ dry_run: true, [`would_be_${done}`]: count, data }, limits, TOO_LARGE));
      }
      // An answer that is too large must not follow a commit.
      return resultText({ [done]: count, data }, limits, TOO_LARGE);
    });
  } catch (error) {
    if (error instanceof DryRun) return error.result;
    throw error;
  }
}

const TOO_LARGE = 'nothing was changed. Name few "fields" of the answer';

function checkRows(count: number, { limits }: ToolCall): void {
  if (count > limits.rows)
    throw unprocessable(`One call may change ${limits.rows} items (MCP_MAX_ROWS), and these are more`);
}

async function run(call: ToolCall, writes: Writes, request: WriteRequest): Promise<readonly unknown[]> {
  const { writer, client } = call;
  const data = dataOf(await writes.run(await writes.prepare(request, writer), writer, client));
  return Array.isArray(data) ? data : [];
}

function readBackOf({ input, services }: ToolCall, collection: string): Parsed {
  return parseMessageReadBack(collection, false, given(input, ['fields']), services.limits);
}

/** One more than allowed is selected, so that too many are noticed. */
function selectedIn({ input, limits }: ToolCall): Selected {
  const { keys, filter } = input;
  if (Array.isArray(keys) && keys.length > 0 && filter === undefined) return { kind: 'shown', keys };
  if (keys === undefined && isObject(filter) && Object.keys(filter).length > 0)
    return { kind: 'query', query: { filter, limit: limits.rows + 1 } };
  throw invalidPayload('Either "keys" must be a list of keys, or "filter" must have conditions');
}

function objectIn(input: Input, name: string): Input {
  const value = input[name];
  if (!isObject(value)) throw invalidPayload(`"${name}" must be an object`);
  return value;
}

/** The items that a change selects: their number if they are named by keys, or the read that counts them. */
type Selection = number | PreparedRead<Parsed>;

/** Refuses a filter that costs too much, or too many keys. It counts only the items that the caller may change in this way. */
async function checkSelection(call: ToolCall, action: 'update' | 'delete'): Promise<Selection> {
  const { input, client, services } = call;
  const selected = selectedIn(call);
  if (selected.kind !== 'query') {
    const { size } = new Set(selected.keys.map((key) => writeJson(key)));
    checkRows(size, call);
    return size;
  }
  const body = { query: { filter: input['filter'], aggregate: { count: '*' } } };
  const query = parseSearch(textIn(input, 'collection'), body, '', services.limits);
  const caller = await services.reads.conditioned(query, call.caller, client);
  const compiled = services.reads.compile(query, caller, { selectedFor: action, client });
  const prepared = { query, compiled, caller, origin: client, selectedFor: action };
  await checkCost(prepared, call);
  return prepared;
}

async function countIn(session: Session, selection: Selection, { services }: ToolCall): Promise<number> {
  return typeof selection === 'number' ? selection : countOf(await services.reads.cellIn(session, selection));
}

const create: Tool = {
  name: 'create',
  description: 'Create items in a collection, with related items nested in them. Returns them.',
  writes: 'adds',
  properties: { collection: STRING, items: list(RECORD), fields: FIELDS, ...DRY_RUN },
  required: ['collection', 'items'],
  run: (call) => {
    const { items } = call.input;
    const collection = textIn(call.input, 'collection');
    if (!Array.isArray(items) || items.length === 0 || !items.every(isObject))
      throw invalidPayload('"items" must be a list of objects');
    checkRows(items.length, call);
    const request = { kind: 'create', collection, items, many: true, idempotencyKey: null, onConflict: null } as const;
    return write(call, 'created', async (writes) => {
      const data = await run(call, writes, { ...request, readBack: readBackOf(call, collection) });
      return { data, count: items.length };
    });
  },
};

const update: Tool = {
  name: 'update',
  description: 'Change the same fields of items, found by their keys or by a filter. Returns them.',
  writes: 'changes',
  properties: { collection: STRING, keys: KEYS, filter: FILTER, data: RECORD, fields: FIELDS, ...DRY_RUN },
  required: ['collection', 'data'],
  run: async (call) => {
    const collection = textIn(call.input, 'collection');
    const data = objectIn(call.input, 'data');
    const selection = await checkSelection(call, 'update');
    const request = { kind: 'update-selected', collection, selected: selectedIn(call), data } as const;
    return write(call, 'updated', async (writes, session) => {
      const count = await countIn(session, selection, call);
      return { data: await run(call, writes, { ...request, readBack: readBackOf(call, collection) }), count };
    });
  },
};

const remove: Tool = {
  name: 'delete',
  description: 'Delete items, found by their keys or by a filter. Returns them as they were.',
  writes: 'changes',
  properties: { collection: STRING, keys: KEYS, filter: FILTER, fields: FIELDS, ...DRY_RUN },
  required: ['collection'],
  run: async (call) => {
    const { input, client, services, limits } = call;
    const collection = textIn(input, 'collection');
    const selected = selectedIn(call);
    const query = { ...given(input, ['fields', 'filter']), limit: limits.rows + 1 };
    const body = selected.kind === 'shown' ? { keys: selected.keys, query } : { query };
    const before = parseSearch(collection, body, '', services.limits);
    const selection = await checkSelection(call, 'delete');
    return write(call, 'deleted', async (writes, session) => {
      const caller = await services.reads.conditioned(before, call.caller, client);
      const compiled = services.reads.compile(before, caller, { client });
      const data = dataOf(await services.reads.cellIn(session, { query: before, compiled, caller, origin: client }));
      const count = await countIn(session, selection, call);
      await run(call, writes, { kind: 'delete', collection, selected });
      return { data: Array.isArray(data) ? data : [], count };
    });
  },
};

const callFunction: Tool = {
  name: 'call',
  description: 'Call a function of the database. One that may write needs the mode "write".',
  writes: 'maybe',
  properties: { function: STRING, arguments: RECORD, fields: FIELDS, filter: RECORD, ...PAGE, ...DRY_RUN },
  required: ['function'],
  run: async (call) => {
    const { input, writer, client, services, limits } = call;
    const name = textIn(input, 'function');
    const overloads = services.mirror.model.functions.get(name)?.overloads ?? [];
    const page = overloads.some(returnsList) ? pageIn(call) : null;
    // PostgreSQL takes a part of rows, and this tool takes a part of values.
    const isOfRows =
      page !== null && overloads.every(({ returns }) => returns.kind === 'record' || returns.kind === 'items');
    const query = {
      ...given(input, ['fields', 'filter', ...(page ? [] : ['limit', 'offset'])]),
      ...(isOfRows && page.query),
    };
    const body = { arguments: input['arguments'] ?? {}, query };
    const prepared = await prepare(call, parseRpcSearch(name, body, '', services.limits));
    const { compiled } = prepared;
    checkArguments(compiled.calls, prepared.query.values);
    if (!isVolatile(compiled)) {
      await checkCost(prepared, call);
      const data = dataOf(await services.reads.run(prepared, client));
      if (page === null) return { data };
      return pageOf(isOfRows || !Array.isArray(data) ? data : data.slice(page.offset), page);
    }
    if (!limits.mayWrite) throw methodNotAllowed(`The function "${name}" may write, and MCP=read does not allow that`);
    return write(call, 'returned', async (writes) => {
      const result = dataOf(await writes.call({ query: prepared.query, writer, client, idempotencyKey: null }));
      const data = Array.isArray(result) ? result : [result];
      return { data, count: data.length };
    });
  },
};

function returnsList({ returns }: Overload): boolean {
  return returns.kind !== 'nothing' && returns.set;
}

const ACTIONS = ['read', 'create', 'update', 'delete'] as const;

const why: Tool = {
  name: 'why',
  description: 'Show which permission rules allow or deny an action of yours on a collection, and on one item of it.',
  writes: 'never',
  properties: {
    collection: STRING,
    action: { type: 'string', enum: ACTIONS },
    key: { type: ['string', 'integer'], description: 'The key of an item' },
  },
  required: ['collection', 'action'],
  run: async (call) => {
    const { input, caller, services } = call;
    const name = textIn(input, 'collection');
    const action = ACTIONS.find((each) => each === input['action']);
    if (!action) throw invalidPayload(`"action" must be one of ${ACTIONS.join(', ')}`);
    const access = services.policies.accessOf(caller);
    if (access === null) return { allowed: true, reason: 'An administrator may do everything' };
    const rules = access.permitted(action, name, services.mirror.model);
    const collection = services.mirror.model.collections.get(name);
    if (rules.length === 0 || !collection)
      return {
        allowed: false,
        reason: `No rule of your policies grants "${action}" on "${name}", or it does not exist`,
      };
    const shown = rules.map(({ text, fields }) => ({
      items: text === '' || text === 'null' ? 'all' : text,
      fields: fields === null ? 'all' : [...fields],
    }));
    const { key } = input;
    if (key === undefined || key === null || action === 'create') return { allowed: true, rules: shown };
    const allowed = await isIncluded(call, collection, action, key);
    return {
      allowed,
      rules: shown,
      ...(!allowed && { reason: `The item does not exist, or no rule for "${action}" includes it` }),
    };
  },
};

/** Decides as the read or the write itself would. */
async function isIncluded(
  call: ToolCall,
  collection: Collection,
  action: 'read' | 'update' | 'delete',
  key: unknown,
): Promise<boolean> {
  if (action === 'read') return isReadable(call, collection.name, key);
  if (typeof key !== 'string' && !Number.isSafeInteger(key)) throw invalidPayload('"key" must be a string or a number');
  const { client, caller, services } = call;
  return isOpen({ collection, key: String(key), exchange: client, caller }, action, services);
}

async function isReadable(call: ToolCall, name: string, key: unknown): Promise<boolean> {
  const collection = visibleModel(call).collections.get(name);
  if (!collection) return false;
  try {
    const body = { keys: [key], query: { fields: collection.key.map((field) => field.name) } };
    const prepared = await prepare(call, parseSearch(name, body, '', call.services.limits));
    const data = dataOf(await call.services.reads.run(prepared, call.client));
    return Array.isArray(data) && data.length > 0;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'FORBIDDEN') return false;
    throw error;
  }
}

export const WRITE_TOOLS: readonly Tool[] = [create, update, remove, callFunction, why];
