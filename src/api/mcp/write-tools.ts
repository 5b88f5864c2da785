/** Tools that may write, in one transaction each. With `dry_run` the transaction is rolled back, and the answer is the same. */
import { forbidden, invalidPayload, methodNotAllowed, unprocessable } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import type { Writes } from '../../engine/writes/writes.js';
import { checkArguments } from '../../plan/call-arguments.js';
import type { Session } from '../../postgres/pools/sessions.js';
import type { Parsed } from '../../request/ast.js';
import type { Input } from '../../request/parse-context.js';
import { parseMessageReadBack, parseRpcSearch, parseSearch } from '../../request/rest.js';
import type { Selected, WriteRequest } from '../../request/write.js';
import { BOOLEAN, list, RECORD, type Schema, STRING } from '../openapi/json-schema.js';
import { checkCost, prepare } from './read-tools.js';
import { dataOf, flagIn, given, type Tool, type ToolCall, textIn, visibleModel } from './tool.js';

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

type Work = (writes: Writes, session: Session) => Promise<readonly unknown[]>;

async function write(call: ToolCall, done: string, work: Work): Promise<unknown> {
  const { writer, client, services, limits } = call;
  const isDry = flagIn(call.input, 'dry_run');
  try {
    return await services.writes.inOneTransaction({ writer, client }, async (writes, session) => {
      const data = await work(writes, session);
      if (data.length > limits.rows)
        throw unprocessable(`One call may change ${limits.rows} items (MCP_MAX_ROWS), not ${data.length}`);
      if (isDry) throw new DryRun({ dry_run: true, [`would_be_${done}`]: data.length, data });
      return { [done]: data.length, data };
    });
  } catch (error) {
    if (error instanceof DryRun) return error.result;
    throw error;
  }
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

const create: Tool = {
  name: 'create',
  description: 'Create items in a collection, with related items nested in them. Returns them.',
  isWrite: true,
  properties: { collection: STRING, items: list(RECORD), fields: FIELDS, ...DRY_RUN },
  required: ['collection', 'items'],
  run: (call) => {
    const { items } = call.input;
    const collection = textIn(call.input, 'collection');
    if (!Array.isArray(items) || items.length === 0 || !items.every(isObject))
      throw invalidPayload('"items" must be a list of objects');
    const request = { kind: 'create', collection, items, many: true, idempotencyKey: null, onConflict: null } as const;
    return write(call, 'created', (writes) =>
      run(call, writes, { ...request, readBack: readBackOf(call, collection) }),
    );
  },
};

const update: Tool = {
  name: 'update',
  description: 'Change the same fields of items, found by their keys or by a filter. Returns them.',
  isWrite: true,
  properties: { collection: STRING, keys: KEYS, filter: FILTER, data: RECORD, fields: FIELDS, ...DRY_RUN },
  required: ['collection', 'data'],
  run: (call) => {
    const collection = textIn(call.input, 'collection');
    const request = {
      kind: 'update-selected',
      collection,
      selected: selectedIn(call),
      data: objectIn(call.input, 'data'),
    } as const;
    return write(call, 'updated', (writes) =>
      run(call, writes, { ...request, readBack: readBackOf(call, collection) }),
    );
  },
};

const remove: Tool = {
  name: 'delete',
  description: 'Delete items, found by their keys or by a filter. Returns them as they were.',
  isWrite: true,
  properties: { collection: STRING, keys: KEYS, filter: FILTER, fields: FIELDS, ...DRY_RUN },
  required: ['collection'],
  run: (call) => {
    const { input, client, services, limits } = call;
    const collection = textIn(input, 'collection');
    const selected = selectedIn(call);
    const query = { ...given(input, ['fields', 'filter']), limit: limits.rows + 1 };
    const body = selected.kind === 'shown' ? { keys: selected.keys, query } : { query };
    const before = parseSearch(collection, body, '', services.limits);
    return write(call, 'deleted', async (writes, session) => {
      const caller = await services.reads.conditioned(before, call.caller, client);
      const compiled = services.reads.compile(before, caller, { client });
      const data = dataOf(await services.reads.cellIn(session, { query: before, compiled, caller, origin: client }));
      await run(call, writes, { kind: 'delete', collection, selected });
      return Array.isArray(data) ? data : [];
    });
  },
};

const callFunction: Tool = {
  name: 'call',
  description: 'Call a function of the database. One that may write needs the mode "write".',
  isWrite: false,
  properties: { function: STRING, arguments: RECORD, fields: FIELDS, filter: RECORD, ...DRY_RUN },
  required: ['function'],
  run: async (call) => {
    const { input, writer, client, services, limits } = call;
    const name = textIn(input, 'function');
    const body = { arguments: input['arguments'] ?? {}, query: given(input, ['fields', 'filter']) };
    const prepared = await prepare(call, parseRpcSearch(name, body, '', services.limits));
    const { compiled, query } = prepared;
    checkArguments(compiled.calls, query.values);
    if (!compiled.volatile) {
      await checkCost(prepared, call);
      return { data: dataOf(await services.reads.run(prepared, client)) };
    }
    if (!limits.mayWrite) throw methodNotAllowed(`The function "${name}" may write, and MCP=read does not allow that`);
    return write(call, 'returned', async (writes) => {
      const data = dataOf(await writes.call({ query, writer, client, idempotencyKey: null }));
      return Array.isArray(data) ? data : [data];
    });
  },
};

const ACTIONS = ['read', 'create', 'update', 'delete'] as const;

const why: Tool = {
  name: 'why',
  description: 'Show which permission rules allow or deny an action of yours on a collection, and on one item of it.',
  isWrite: false,
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
    if (rules.length === 0 || !services.mirror.model.collections.has(name))
      return {
        allowed: false,
        reason: `No rule of your policies grants "${action}" on "${name}", or it does not exist`,
      };
    const shown = rules.map(({ text, fields }) => ({
      items: text === '' || text === 'null' ? 'all' : text,
      fields: fields === null ? 'all' : [...fields],
    }));
    const { key } = input;
    if (key === undefined || action === 'create') return { allowed: true, rules: shown };
    const isVisible = await isReadable(call, name, key);
    return {
      allowed: isVisible,
      rules: shown,
      ...(!isVisible && { reason: 'The item does not exist, or no rule for "read" includes it' }),
      ...(isVisible &&
        action !== 'read' && { note: `Use "dry_run" to see whether a rule for "${action}" includes the item` }),
    };
  },
};

async function isReadable(call: ToolCall, name: string, key: unknown): Promise<boolean> {
  const collection = visibleModel(call).collections.get(name);
  if (!collection) return false;
  try {
    const body = { keys: [key], query: { fields: collection.key.map((field) => field.name) } };
    const prepared = await prepare(call, parseSearch(name, body, '', call.services.limits));
    const data = dataOf(await call.services.reads.run(prepared, call.client));
    return Array.isArray(data) && data.length > 0;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === forbidden().code) return false;
    throw error;
  }
}

export const WRITE_TOOLS: readonly Tool[] = [create, update, remove, callFunction, why];
