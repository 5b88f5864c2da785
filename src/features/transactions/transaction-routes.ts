/**
 * POST /transactions: a list of operations on items in one transaction, all or nothing. `{"$ref": "0"}` in a body or as a key stands for the
 * key of the item that operation 0 creates, `{"$ref": "0.2"}` for that of the third item of a list.
 */
import { invalidPayload, invalidQuery, ServiceError } from '../../base/errors.js';
import { isObject, parseJson } from '../../base/exact-json.js';
import { elementAt } from '../../base/narrow.js';
import type { Model } from '../../compiler/model/model.js';
import { valueReferences } from '../../compiler/plan/write/reference-places.js';
import type { Parsed } from '../../compiler/request/ast.js';
import { type ItemWrite, parseItemWrite, WRITE_METHODS } from '../../compiler/request/item-write.js';
import { limitsOf, refuseOthers } from '../../compiler/request/parse-context.js';
import { checkWriteUrl, parseReadBack } from '../../compiler/request/rest.js';
import {
  isLiteral,
  isReference,
  readReference,
  referencesIn,
  type StepReference,
} from '../../compiler/request/step-reference.js';
import { type IdempotencyKey, parseIfMatch, readKey, requireObject } from '../../compiler/request/write.js';
import { type ApiRoute, type Description, route } from '../../server/api/action.js';
import { type ItemsServices, readIdempotencyKey, wantsItems, writerOf } from '../../server/api/items/item-writes.js';
import { explainPreference, refuseSystem } from '../../server/api/items/items.js';
import { either, INTEGER, KEY, list, object, oneOf, RECORD, STRING } from '../../server/api/openapi/json-schema.js';
import { write } from '../../server/execute/pipeline.js';
import { turnOf, type Writer } from '../../server/execute/writer.js';
import type { TransactionStep } from '../../server/execute/writes/transaction.js';
import type { Exchange } from '../../server/http/exchange.js';
import { JSON_TYPE, noContent, type Reply } from '../../server/http/reply.js';
import { CallerSlice } from '../../server/node/turns.js';

const MAX_OPERATIONS = 100;

const OPERATION = object(
  {
    method: oneOf(...WRITE_METHODS),
    path: { ...STRING, description: '/items/{collection} or /items/{collection}/{key}, with or without a query.' },
    key: {
      ...either(KEY, RECORD),
      description: 'The key of the item, if the path does not name it: a value or {"$ref": "0"}.',
    },
    body: {
      ...either(RECORD, list({})),
      description: 'As for the same request over HTTP. {"$ref": "0"} is the key of the item that operation 0 creates.',
    },
    if_match: { ...STRING, description: 'PATCH and DELETE of one item: the entity tag that the item must have.' },
  },
  ['method', 'path'],
);

const TRANSACTION: Description = {
  summary: 'Run several writes of items in one transaction',
  parameters: [{ $ref: '#/components/parameters/idempotencyKey' }],
  body: object({ operations: { ...list(OPERATION), minItems: 1, maxItems: MAX_OPERATIONS } }, ['operations']),
  data: list(object({ status: { ...INTEGER, enum: [200, 204] }, data: {} }, ['status'])),
};

export function transactionsRoutes(services: ItemsServices): ApiRoute[] {
  return [route('POST /transactions', (exchange) => new Transaction(exchange, services).run(), TRANSACTION)];
}

interface ParsedTransaction {
  readonly steps: readonly TransactionStep[];
  readonly idempotencyKey: IdempotencyKey | null;
}

class Transaction {
  /** The operation that an error belongs to, or null. */
  #operation: number | null = null;
  /** Whether the response has the written items. */
  #wantsItems = true;

  constructor(
    private readonly exchange: Exchange,
    private readonly services: ItemsServices,
  ) {}

  async run(): Promise<Reply> {
    const { exchange, services } = this;
    try {
      return await write({
        client: exchange,
        identify: async () => {
          if (explainPreference(exchange.headers.prefer)) throw invalidQuery('"Prefer: explain" applies to reads');
          return writerOf(exchange, await services.identities.identify(exchange));
        },
        parse: (writer) => this.#parse(writer),
        execute: ({ steps, idempotencyKey }, writer) =>
          services.writes.transact(steps, { writer, client: exchange }, { at: this.#at, idempotencyKey, bodyOf }),
        reply: (body) => (this.#wantsItems ? { status: 200, type: JSON_TYPE, body } : noContent),
      });
    } catch (error) {
      throw this.#withOperation(error);
    }
  }

  readonly #at = (operation: number | null): void => {
    this.#operation = operation;
  };

  #withOperation(error: unknown): unknown {
    if (this.#operation === null || !(error instanceof ServiceError)) return error;
    const extensions = { ...error.extensions, operation: this.#operation };
    return new ServiceError(error.code, error.message, extensions, error.status);
  }

  /** All operations are checked before the first of them is carried out. */
  async #parse(writer: Writer): Promise<ParsedTransaction> {
    const { exchange } = this;
    checkWriteUrl(exchange.queryString, limitsOf(this.services.limits, exchange.prefer));
    const body = await exchange.json(parseJson);
    this.#wantsItems = wantsItems(exchange);
    const operations: Operation[] = [];
    const steps: TransactionStep[] = [];
    const slice = new CallerSlice(turnOf({ writer, client: exchange }).caller);
    for (const [index, input] of parseOperations(body).entries()) {
      if (index > 0) await slice.pause();
      this.#at(index);
      const operation = parseOperation(input, operations);
      operations.push(operation);
      steps.push(await this.#stepOf(operation, operations, writer));
    }
    this.#at(null);
    return { steps, idempotencyKey: readIdempotencyKey(exchange, writer.caller, body) };
  }

  async #stepOf(operation: Operation, operations: readonly Operation[], writer: Writer): Promise<TransactionStep> {
    const { writes, limits } = this.services;
    const { collection, needs } = operation;
    refuseSystem(collection);
    const parseLimits = limitsOf(limits, this.exchange.prefer);
    const context = {
      isSingleton: writes.isSingleton(collection, writer.caller),
      limits: parseLimits,
      idempotencyKey: null,
      readBackOf: (one: boolean): Parsed | null => {
        const readBack = parseReadBack(collection, one, operation.queryString, parseLimits);
        return this.#wantsItems ? readBack : null;
      },
    };
    const request = parseItemWrite(unresolved(operation), context);
    if (needs.length > 0) {
      const at = (index: number): string => elementAt(operations, index).collection;
      return {
        kind: 'write',
        needs,
        request: (keys) => parseItemWrite(resolveReferences(operation, keys, operations), context),
        values: (model: Model) => valueReferences({ ...operation, ...context }, model, at),
      };
    }
    const prepared = await writes.prepare(request, writer);
    return { kind: 'write', needs, request: () => prepared };
  }
}

const OPENING = '{"data":[';
const WITH_BODY = Buffer.from('{"status":200,');
const WITHOUT_BODY = Buffer.from('{"status":204}');

/** The bodies stay as PostgreSQL wrote them, `{"data": …}`: the status goes behind their opening brace. */
function bodyOf(bodies: readonly (Buffer | null)[]): Buffer {
  const pieces = bodies.flatMap((body, position) => [
    Buffer.from(position === 0 ? OPENING : ','),
    ...(body ? [WITH_BODY, body.subarray(1)] : [WITHOUT_BODY]),
  ]);
  return Buffer.concat([...pieces, Buffer.from(']}')]);
}

/** An operation. Its key and body may contain references. */
interface Operation extends Omit<ItemWrite, 'key'> {
  /** A key, a reference, or null. */
  readonly key: unknown;
  /** The operations that it refers to. */
  readonly needs: readonly number[];
}

/** The keys that each operation has created. */
type CreatedKeys = ReadonlyMap<number, readonly unknown[]>;

function parseOperations(body: unknown): readonly unknown[] {
  const { operations, ...rest } = requireObject(body, 'The body');
  refuseOthers(rest);
  if (!Array.isArray(operations) || operations.length === 0)
    throw invalidPayload('"operations" must be a list of at least one operation');
  if (operations.length > MAX_OPERATIONS)
    throw invalidPayload(`A transaction has at most ${MAX_OPERATIONS} operations, not ${operations.length}`);
  return operations;
}

/** `earlier` are the operations in front of it. */
function parseOperation(input: unknown, earlier: readonly Operation[]): Operation {
  const { method: named, path, key: given, body, if_match: tag, ...rest } = requireObject(input, 'An operation');
  refuseOthers(rest);
  const method = WRITE_METHODS.find((each) => each === named);
  if (!method) throw invalidPayload(`"method" must be one of ${WRITE_METHODS.join(', ')}`);
  const { collection, key: inPath, queryString } = parsePath(path);
  if (given !== undefined && inPath !== null) throw invalidPayload('"key" is not allowed: the path names the item');
  const key = given === undefined ? inPath : readOperationKey(given);
  if (method === 'POST' && key !== null) throw invalidPayload('POST takes the path of a collection, without a key');
  if (method === 'DELETE' && key !== null && body !== undefined)
    throw invalidPayload('"body" is not allowed: the key names the item to delete');
  if (tag !== undefined && typeof tag !== 'string')
    throw invalidPayload('"if_match" must be an entity tag, as a string');
  const ifMatch = tag === undefined ? null : parseIfMatch(tag);
  const references = [...referencesIn(key), ...referencesIn(body)];
  for (const reference of references) checkReference(reference, earlier);
  const needs = references.map(({ operation }) => operation);
  return { method, collection, key, queryString, body, ifMatch, isNew: false, needs };
}

const PATH = /^\/items\/([^/?#]+)(?:\/([^/?#]+))?\/?(?:\?([^#]*))?$/i;

function parsePath(path: unknown): { collection: string; key: string | null; queryString: string } {
  const [matched, collection, key, queryString = ''] = (typeof path === 'string' && PATH.exec(path)) || [];
  if (matched === undefined)
    throw invalidPayload(
      '"path" must be "/items/{collection}" or "/items/{collection}/{key}", with or without a query',
    );
  try {
    return {
      collection: decodeURIComponent(collection ?? ''),
      key: key === undefined ? null : decodeURIComponent(key),
      queryString,
    };
  } catch {
    throw invalidPayload('"path" must be percent-encoded UTF-8');
  }
}

function readOperationKey(key: unknown): unknown {
  if (isReference(key)) return key;
  return readKey(key) ?? refuseKey();
}

function refuseKey(): never {
  throw invalidPayload('"key" must be a string, a number, a boolean or a reference');
}

/** References lead to earlier operations that create items, and name one of them. */
function checkReference({ text, operation, item }: StepReference, earlier: readonly Operation[]): void {
  const target = earlier[operation];
  if (!target) throw invalidPayload(`"$ref": "${text}" must name an earlier operation`);
  if (target.method !== 'POST')
    throw invalidPayload(`"$ref": "${text}" must name a POST: operation ${operation} is not one`);
  const { body } = target;
  if (Array.isArray(body) !== (item !== null))
    throw invalidPayload(
      item === null
        ? `"$ref": "${text}" must name an item of the list that operation ${operation} creates, such as "${text}.0"`
        : `"$ref": "${text}" must be "${operation}": operation ${operation} creates one item`,
    );
  if (Array.isArray(body) && item !== null && item >= body.length)
    throw invalidPayload(`"$ref": "${text}" does not exist: operation ${operation} creates ${body.length} items`);
}

/** The operation before its references are known: it can be checked, but not carried out. */
function unresolved({ key, ...operation }: Operation): ItemWrite {
  return { ...operation, key: isReference(key) ? '' : readKey(key) };
}

/** The operation with keys in place of references. `operations` are all of the transaction. */
function resolveReferences(
  { key, body, ...operation }: Operation,
  created: CreatedKeys,
  operations: readonly Operation[],
): ItemWrite {
  const keyOf = ({ text, operation: index, item }: StepReference): unknown => {
    const keys = created.get(index) ?? [];
    // If some items were left out, it is not known which.
    const items = operations[index]?.body;
    if (keys.length !== (Array.isArray(items) ? items.length : 1))
      throw invalidPayload(`"$ref": "${text}" has no key: operation ${index} did not create all of its items`);
    return keys[item ?? 0];
  };
  const resolve = (value: unknown): unknown => {
    if (isReference(value)) return keyOf(readReference(value));
    if (Array.isArray(value)) return value.map(resolve);
    if (!isObject(value) || isLiteral(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([name, entry]) => [name, resolve(entry)]));
  };
  const own = key === null ? null : (readKey(resolve(key)) ?? refuseKey());
  return { ...operation, key: own, body: resolve(body) };
}
