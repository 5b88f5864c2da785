/** One operation of a GraphQL socket: a query or a mutation is answered once, a subscription until either side ends it. */
import type { Identity } from '../../access/identity.js';
import { assertNever } from '../../base/assert-never.js';
import { forbidden, ServiceError } from '../../base/errors.js';
import type { Observer } from '../../base/observe.js';
import type { Config } from '../../config/config.js';
import { type MaybePromise, write } from '../../engine/pipeline.js';
import type { RequestClient } from '../../engine/stages.js';
import { DocumentFailure } from '../../graphql/failure.js';
import type { GraphqlRequest } from '../../graphql/operations.js';
import type {
  ParsedDocument,
  ParsedEventsDocument,
  ParsedMutationDocument,
  ParsedQueryDocument,
} from '../../graphql/parsed-document.js';
import type { PersistedQueries } from '../../graphql/persisted.js';
import type { Limit } from '../../http/limiter.js';
import { publicError } from '../../http/reply.js';
import type { SocketClient } from '../../http/websocket.js';
import type { EventHandle } from '../../live/events/event-subscriber.js';
import { MAX_VISIBLE_KEYS } from '../../live/events/visible-keys.js';
import type { LiveSource } from '../../live/subscriber.js';
import { checkArguments } from '../../plan/call-arguments.js';
import type { Parsed, ParsedOperation } from '../../request/ast.js';
import { quoteName } from '../../request/expression.js';
import { parseSearch } from '../../request/rest.js';
import type { Parameters } from '../graphql/http.js';
import { RefusedOperation, readable } from '../graphql/live.js';
import { runMutation } from '../graphql/mutations.js';
import {
  constantBody,
  errorsOf,
  isConstant,
  NOT_FOUND,
  type OperationServices,
  parseAsCaller,
  withoutFailed,
} from '../graphql/operation.js';
import type { ItemsServices } from '../items/item-reads.js';
import { writerFrom } from '../items/item-writes.js';
import { wholeAnswers } from './directus-subscriptions.js';
import { ChangeFeed, type FeedTarget, StateFeed } from './graphql-feeds.js';
import { socketTurns } from './socket-identity.js';

export interface GraphqlSocketServices extends ItemsServices, OperationServices {
  readonly config: Config;
  readonly persisted: PersistedQueries;
  /** Null where messages are not limited. */
  readonly limit: Limit | null;
  readonly observe: Observer;
}

/** Who asks, and where the answers go. */
export interface OperationTarget extends FeedTarget {
  readonly client: RequestClient;
  readonly from: SocketClient;
  /** The name of its connection. */
  readonly connection: string;
  identify(): MaybePromise<Identity>;
  /** The last answer: nothing follows. */
  complete(): void;
}

const NOTHING: EventHandle = { close: () => {}, wake: () => {}, renew: () => {} };

/** Resolves with how to end it, when it was answered or has begun. */
export async function runOperation(
  { query, extensions, operationName, variables }: Parameters,
  target: OperationTarget,
  services: GraphqlSocketServices,
): Promise<EventHandle> {
  await services.limit?.(target.from.address);
  const caller = await target.identify();
  const text = await services.persisted.resolve(query, extensions);
  if (text === null) throw new DocumentFailure([NOT_FOUND]);
  const request = { text, operationName, variables, safe: false };
  return socketTurns.run(target.connection, () => begin(request, caller, target, services));
}

async function begin(
  request: GraphqlRequest,
  caller: Identity,
  target: OperationTarget,
  services: GraphqlSocketServices,
): Promise<EventHandle> {
  if (target.client.aborted) return NOTHING;
  const document = await parseAsCaller(request, 'items', caller, target.client, services);
  switch (document.kind) {
    case 'query':
      return answerOnce(target, () => readOnce(document, caller, target, services));
    case 'mutation':
      return answerOnce(target, () => writeOnce(document, caller, target, services));
    case 'live':
      return follow(request, target, services);
    case 'events':
      return followChanges(document, request, target, services);
    default:
      return assertNever(document);
  }
}

/** What fails while it is carried out is an answer; only what cannot be carried out is an error of the protocol. */
async function answerOnce(target: OperationTarget, run: () => Promise<Buffer | string>): Promise<EventHandle> {
  let body: Buffer | string;
  try {
    body = await run();
  } catch (error) {
    const errors = errorsOf(error);
    if (errors === null || error instanceof DocumentFailure) throw error;
    body = JSON.stringify({ errors, data: null });
  }
  target.next(body);
  target.complete();
  return NOTHING;
}

async function readOnce(
  document: ParsedQueryDocument,
  caller: Identity,
  { client }: OperationTarget,
  { reads }: GraphqlSocketServices,
): Promise<Buffer | string> {
  // Each turn has fewer parts that may fail.
  for (let query = document.parsed; ; ) {
    if (isConstant(query)) return constantBody(query);
    try {
      const compiled = await reads.prepare(query, caller, client);
      checkArguments(compiled.calls, query.values);
      const body = await reads.run({ query, compiled, caller, need: null }, client);
      if (body === null) throw forbidden();
      return body;
    } catch (error) {
      query = withoutFailed(query, document, error);
    }
  }
}

function writeOnce(
  document: ParsedMutationDocument,
  caller: Identity,
  { client, from }: OperationTarget,
  { writes, reads }: GraphqlSocketServices,
): Promise<Buffer> {
  return write({
    client,
    identify: () => writerFrom(from, caller),
    parse: () => document,
    execute: (_, writer) => runMutation(document, writes, writer, client, reads.responseMemory),
    reply: (body) => body,
  });
}

async function follow(
  request: GraphqlRequest,
  target: OperationTarget,
  services: GraphqlSocketServices,
): Promise<EventHandle> {
  const { live } = services;
  const close = await live.subscribe(new QuerySource(request, target, services), new StateFeed(target, live));
  return { ...NOTHING, close };
}

class QuerySource implements LiveSource {
  readonly #request: GraphqlRequest;
  readonly #target: OperationTarget;
  readonly #services: GraphqlSocketServices;

  constructor(request: GraphqlRequest, target: OperationTarget, services: GraphqlSocketServices) {
    this.#request = request;
    this.#target = target;
    this.#services = services;
  }

  get address(): string {
    return this.#target.from.address;
  }

  identify(): MaybePromise<Identity> {
    return this.#target.identify();
  }

  parse(caller: Identity): Promise<ParsedOperation> {
    const { client } = this.#target;
    const parse = async (): Promise<ParsedDocument> =>
      parseAsCaller(this.#request, 'items', caller, client, this.#services);
    return readable(parse, this.#services.reads, caller, client);
  }
}

function followChanges(
  { collection, change, output }: ParsedEventsDocument,
  request: GraphqlRequest,
  target: OperationTarget,
  services: GraphqlSocketServices,
): Promise<EventHandle> {
  const { live, limits } = services;
  let hasBegun = false;
  const parseChanged = async (as: Identity): Promise<Parsed> => {
    try {
      const document = await parseAsCaller(request, 'items', as, target.client, services);
      if (document.kind !== 'events') throw forbidden();
      hasBegun = true;
      return document.changed;
    } catch (error) {
      if (!errorsOf(error)) throw error;
      // The schema shows what the caller may see: what was there before may be there again.
      throw hasBegun ? forbidden() : new RefusedOperation(error);
    }
  };
  const source = {
    address: target.from.address,
    collection,
    item: null,
    change,
    identify: () => target.identify(),
    parseChanged,
    parseInitial: () => null,
    parseKeys: (_: unknown, key: readonly string[]) => {
      const query = { fields: key.map(quoteName), limit: MAX_VISIBLE_KEYS };
      return parseSearch(collection, { query }, '', wholeAnswers({ ...limits, pageSize: null }));
    },
  };
  return live.events.subscribe(source, new ChangeFeed(target, output, live), (error) => target.fail(error));
}

/** What a client is told of an error, and whether it is the service's own. */
export function failureText(error: unknown): { readonly errors: string; readonly isOurs: boolean } {
  const errors = errorsOf(error instanceof RefusedOperation ? error.cause : error);
  if (errors) return { errors: JSON.stringify(errors), isOurs: false };
  const { message, extensions, code, status } = publicError(error);
  const told = [{ message, extensions: { ...extensions, code } }];
  return { errors: JSON.stringify(told), isOurs: status >= 500 };
}

/** Whether a token does not count any more. */
export function isUnauthorized(error: unknown): boolean {
  return error instanceof ServiceError && error.status === 401;
}
