/** /graphql and /graphql/system: a whole operation with all its root fields is one statement, or one transaction. */

import { methodNotAllowed, ServiceError, serviceUnavailable } from '../../../base/errors.js';
import { DocumentFailure, documentFailure, FieldFailure, responseError } from '../../../compiler/graphql/failure.js';
import { type Operations, UnsafeMethod } from '../../../compiler/graphql/operations.js';
import type {
  ParsedDocument,
  ParsedMutationDocument,
  ParsedQueryDocument,
} from '../../../compiler/graphql/parsed-document.js';
import type { RootScope } from '../../../compiler/graphql/schema-access.js';
import { checkArguments } from '../../../compiler/plan/call-arguments.js';
import type { ParsedOperation } from '../../../compiler/request/ast.js';
import type { Identities } from '../../access/identities.js';
import type { Identity } from '../../access/identity.js';
import type { Policies } from '../../access/policies.js';
import { type MaybePromise, type ReadStages, read, write } from '../../execute/pipeline.js';
import { RepliedRead } from '../../execute/reads/read-listeners.js';
import type { PreparedRead, Reads } from '../../execute/reads/reads.js';
import type { Writes } from '../../execute/writes/writes.js';
import type { Exchange } from '../../http/exchange.js';
import { DEFERRED, errorReply, type Outcome, type Reply } from '../../http/reply.js';
import type { Mirror } from '../../postgres/catalog/watch.js';
import type { ApiRoute, Description } from '../action.js';
import { writerOf } from '../items/item-writes.js';
import { explainItems, explainPreference } from '../items/items.js';
import type { LiveReads } from '../items/live-reads.js';
import { list, object, ok, orNull, queryParameter, RECORD, STRING } from '../openapi/json-schema.js';
import { type Actions, type Called, callAction } from './actions.js';
import { failure, type Negotiated, negotiate, readParameters, refusal, success, wantsPage } from './http.js';
import { runCalls, runMutation } from './mutations.js';
import { constantBody, isConstant, NOT_FOUND, parseAsCaller, withoutFailed, withoutPart } from './operation.js';
import type { PersistedQueries } from './persisted.js';

/** Browsers that open an endpoint get this page. */
export type GraphqlPage = (scope: RootScope) => Promise<Reply>;

interface GraphqlServices {
  readonly identities: Identities;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly reads: Reads;
  readonly writes: Writes;
  readonly operations: Operations;
  readonly persisted: PersistedQueries;
  /** Null without live queries. */
  readonly live: () => LiveReads | null;
  /** The actions of routes, for root fields that call them. */
  readonly actions: Actions;
  /** The page for browsers, or null if there is none. */
  readonly page: GraphqlPage | null;
}

const PATHS: readonly (readonly [string, RootScope])[] = [
  ['/graphql', 'items'],
  ['/graphql/system', 'system'],
];

const GRAPHQL_ANSWER = ok(object({ data: orNull(RECORD), errors: list(RECORD), extensions: RECORD }));
const DESCRIPTIONS: Readonly<Record<'GET' | 'POST', Description>> = {
  GET: {
    summary: 'Run a GraphQL query',
    parameters: ['query', 'operationName', 'variables', 'extensions'].map((name) =>
      queryParameter(name, STRING, name === 'variables' || name === 'extensions' ? 'As JSON.' : 'A GraphQL response.'),
    ),
    answers: [GRAPHQL_ANSWER],
  },
  POST: {
    summary: 'Run a GraphQL operation',
    body: object({ query: STRING, variables: RECORD, operationName: STRING, extensions: RECORD }),
    answers: [GRAPHQL_ANSWER],
  },
};

export function graphqlRoutes(services: GraphqlServices): ApiRoute[] {
  return [
    ...PATHS.flatMap(([path, scope]) => [
      ...(['GET', 'POST'] as const).map((method) => ({
        method,
        path,
        description: DESCRIPTIONS[method],
        mayRead: true,
        handle: (exchange: Exchange) => answer(exchange, services, scope),
      })),
      ...['PUT', 'PATCH', 'DELETE', 'SEARCH', 'OPTIONS'].map((method) => ({
        method,
        path,
        handle: () => notAllowed(`Use GET or POST for "${path}"`, 'GET, POST'),
      })),
    ]),
  ];
}

function notAllowed(reason: string, allow: string): Reply {
  return { ...errorReply(methodNotAllowed(reason)), headers: { Allow: allow } };
}

async function answer(
  exchange: Exchange,
  services: GraphqlServices,
  scope: RootScope,
): Promise<Reply | typeof DEFERRED> {
  if (services.page !== null && wantsPage(exchange)) return services.page(scope);
  const isLive = exchange.wantsEvents;
  const negotiated = negotiate(isLive ? '' : exchange.headers.accept);
  const caller = await services.identities.identify(exchange);
  exchange.staged('identify');
  const { query, extensions, operationName, variables } = await readParameters(exchange);
  const text = await services.persisted.resolve(query, extensions);
  if (text === null) return refusal([NOT_FOUND], negotiated, 200);
  const request = { text, operationName, variables, safe: exchange.method !== 'POST', scope };
  if (isLive) {
    const live = services.live();
    if (live === null) throw serviceUnavailable('live', 'There are no live queries');
    const parse = async (as: Identity): Promise<ParsedDocument> => parseAsCaller(request, as, exchange, services);
    const bodyOf = (error: unknown): string => String(failureReply(error, negotiated).body);
    return live.run({ exchange, parse, failure: bodyOf }, caller);
  }
  try {
    const document = await parseAsCaller(request, caller, exchange, services);
    exchange.staged('parse');
    const context = { exchange, caller, negotiated };
    if (document.kind === 'mutation') return await writeDocument(document, context, services);
    if (document.kind !== 'query')
      throw documentFailure('A subscription needs a WebSocket, or "Accept: text/event-stream"');
    return await readDocument(document, context, services);
  } catch (error) {
    return failureReply(error, negotiated);
  }
}

function writeDocument(
  document: ParsedMutationDocument,
  { exchange, caller, negotiated }: RequestContext,
  services: GraphqlServices,
): Promise<Reply> {
  const stages = {
    client: exchange,
    identify: () => writerOf(exchange, caller),
    parse: () => document,
  };
  if (document.steps.some((step) => step.kind === 'call'))
    return write({
      ...stages,
      execute: () => runCalls(document, (call) => callAction(call, exchange, services.actions)),
      reply: ({ body, called }) => withCalled(success(body, negotiated), called),
    });
  return write({
    ...stages,
    execute: (_, writer) => runMutation(document, services.writes, writer, exchange),
    reply: (body) => success(body, negotiated),
  });
}

async function readDocument(
  document: ParsedQueryDocument,
  context: RequestContext,
  { actions, reads }: GraphqlServices,
): Promise<Reply | typeof DEFERRED> {
  // The results of actions are among the values, and the next request has to call the actions again.
  if (document.calls.length > 0) context.exchange.isRepeatable = false;
  const operation = document.calls.length > 0 ? await withCalls(document, context.exchange, actions) : document.parsed;
  return new OperationRead({ ...context, document, reads }, operation).run();
}

interface RequestContext {
  readonly exchange: Exchange;
  readonly caller: Identity;
  readonly negotiated: Negotiated;
}

interface OperationContext extends RequestContext {
  readonly document: ParsedQueryDocument;
  readonly reads: Reads;
}

/** The stages of a query: the document is parsed already. */
class OperationRead extends RepliedRead implements ReadStages<ParsedOperation, Reply | typeof DEFERRED> {
  readonly client: Exchange;

  constructor(
    private readonly context: OperationContext,
    private readonly operation: ParsedOperation,
  ) {
    super();
    this.client = context.exchange;
  }

  run(): Outcome {
    if (isConstant(this.operation)) return success(constantBody(this.operation), this.context.negotiated);
    try {
      const outcome = read(this, this.context.reads);
      return outcome instanceof Promise ? outcome.catch((error: unknown) => this.#readOthers(error)) : outcome;
    } catch (error) {
      return this.#readOthers(error);
    }
  }

  identify(): Identity {
    return this.context.caller;
  }

  parse(): ParsedOperation {
    return this.operation;
  }

  execute(prepared: PreparedRead<ParsedOperation>): MaybePromise<Reply | typeof DEFERRED> {
    const { reads } = this.context;
    checkArguments(prepared.compiled.calls, prepared.query.values);
    const explain = explainPreference(this.client.headers.prefer);
    if (explain) return explainItems(prepared, reads, explain);
    this.identity = prepared.caller;
    reads.answer(prepared, this);
    return DEFERRED;
  }

  protected reply(body: Buffer | null): void {
    this.client.respond(success(body ?? '', this.context.negotiated));
  }

  onError(error: unknown): void {
    try {
      this.client.respond(this.#readOthers(error));
    } catch (failed) {
      this.client.respond(Promise.resolve().then(() => failureReply(failed, this.context.negotiated)));
    }
  }

  #readOthers(error: unknown): Outcome {
    return new OperationRead(this.context, withoutFailed(this.operation, this.context.document, error)).run();
  }
}

/** The results of actions take their places among the values. */
async function withCalls(
  document: ParsedQueryDocument,
  exchange: Exchange,
  actions: Actions,
): Promise<ParsedOperation> {
  let { parsed } = document;
  for (const { position, call } of document.calls) {
    const part = parsed.request.parts[position];
    const root = document.roots[position];
    if (part?.kind !== 'json' || !root) throw new Error('the result of an action is JSON');
    try {
      const { text } = await callAction(call, exchange, actions);
      parsed = { ...parsed, values: parsed.values.with(part.value, text) };
    } catch (error) {
      if (!(error instanceof ServiceError) || error.status >= 500) throw error;
      parsed = withoutPart(parsed, position, error, root.position);
    }
  }
  return parsed;
}

function withCalled(reply: Reply, called: readonly Called[]): Reply {
  const headers: Reply['headers'] = Object.assign({}, ...called.map((each) => each.headers));
  return { ...reply, ...(headers ? { headers } : {}), secret: called.some((each) => each.secret === true) };
}

/** Errors of the request become part of the answer. Faults of the server are thrown, and become an ordinary error response. */
function failureReply(error: unknown, negotiated: Negotiated): Reply {
  if (error instanceof DocumentFailure) return refusal(error.errors, negotiated);
  if (error instanceof UnsafeMethod) return notAllowed('A mutation must be sent with POST', 'POST');
  const [cause, place] = error instanceof FieldFailure ? [error.cause, error.position] : [error, null];
  if (!(cause instanceof ServiceError) || cause.status >= 500 || cause.code === 'METHOD_NOT_ALLOWED') throw cause;
  return failure([responseError(cause, place)], negotiated);
}
