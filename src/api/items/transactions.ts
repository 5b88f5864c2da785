/** /transactions: several writes of items in one transaction, all or nothing. */
import { invalidQuery, ServiceError } from '../../base/errors.js';
import { parseJson } from '../../base/exact-json.js';
import { write } from '../../engine/pipeline.js';
import type { Writer } from '../../engine/writer.js';
import type { TransactionStep } from '../../engine/writes/transaction.js';
import type { Exchange } from '../../http/exchange.js';
import { JSON_TYPE, noContent, type Reply } from '../../http/reply.js';
import type { Parsed } from '../../request/ast.js';
import { parseItemWrite, WRITE_METHODS } from '../../request/item-write.js';
import { limitsOf } from '../../request/parse-context.js';
import { checkWriteUrl, parseReadBack } from '../../request/rest.js';
import {
  MAX_OPERATIONS,
  type Operation,
  parseOperation,
  parseOperations,
  resolveReferences,
  unresolved,
} from '../../request/transaction.js';
import type { IdempotencyKey } from '../../request/write.js';
import { type ApiRoute, type Description, route } from '../action.js';
import { either, INTEGER, KEY, list, object, oneOf, RECORD, STRING } from '../openapi/json-schema.js';
import { type ItemsServices, readIdempotencyKey, wantsItems, writerOf } from './item-writes.js';
import { explainPreference, refuseSystem } from './items.js';

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
    for (const [index, input] of parseOperations(body).entries()) {
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
    if (needs.length > 0)
      return {
        kind: 'write',
        needs,
        request: (keys) => parseItemWrite(resolveReferences(operation, keys, operations), context),
      };
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
