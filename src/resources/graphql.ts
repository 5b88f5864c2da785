/** /graphql and /graphql/system: a whole operation with all its root fields is one statement, or one transaction. */
import { callerName, type Identities, type Identity, onlyAdministrator } from '../access/identity.js';
import type { Policies } from '../access/policies.js';
import { sightOf } from '../access/sight.js';
import type { ReadListener } from '../batching/shape-queue.js';
import type { Compiled, Reads } from '../engine/reads.js';
import type { Writes } from '../engine/writes.js';
import { methodNotAllowed, ServiceError } from '../errors.js';
import { DocumentFailure, FieldFailure, type FieldPlace, responseError } from '../graphql/failure.js';
import { type Operations, UnsafeMethod } from '../graphql/operations.js';
import type { ParsedQueryDocument } from '../graphql/parsed-document.js';
import type { PersistedQueries } from '../graphql/persisted.js';
import type { RootScope } from '../graphql/schema-access.js';
import type { Exchange } from '../http/exchange.js';
import { DEFERRED, errorReply, type Outcome, type Reply } from '../http/reply.js';
import type { Route, Router } from '../http/router.js';
import type { Mirror } from '../mirror/watch.js';
import { FailedParts } from '../plan/operation.js';
import type { ParsedOperation } from '../request/ast.js';
import { failure, type Negotiated, negotiate, readParameters, refusal, success, wantsPage } from './graphql-http.js';
import { idePage, ideRoutes } from './graphql-ide.js';
import { runCalls, runMutation } from './graphql-mutations.js';
import { type Called, callService } from './graphql-services.js';
import { explainItems, preference } from './item-reads.js';
import { writerOf } from './item-writes.js';

export interface GraphqlServices {
  readonly identities: Identities;
  readonly mirror: Mirror;
  readonly policies: Policies;
  readonly reads: Reads;
  readonly writes: Writes;
  readonly operations: Operations;
  readonly persisted: PersistedQueries;
  /** Of all routes, for fields that others carry out. */
  readonly router: () => Router;
  /** Whether browsers get a page to work with. */
  readonly ide: boolean;
}

const PATHS: readonly (readonly [string, RootScope])[] = [
  ['/graphql', 'items'],
  ['/graphql/system', 'system'],
];

export function graphqlRoutes(services: GraphqlServices): Route[] {
  return [
    ...(services.ide ? ideRoutes() : []),
    ...PATHS.flatMap(([path, scope]) => [
      ...['GET', 'POST'].map((method) => ({
        method,
        path,
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

const NOT_FOUND = { message: 'PersistedQueryNotFound', extensions: { code: 'INVALID_QUERY' } };

function notAllowed(reason: string, allow: string): Reply {
  return { ...errorReply(methodNotAllowed(reason)), headers: { Allow: allow } };
}

async function answer(
  exchange: Exchange,
  services: GraphqlServices,
  scope: RootScope,
): Promise<Reply | typeof DEFERRED> {
  if (services.ide && wantsPage(exchange)) return idePage(scope);
  const negotiated = negotiate(exchange.headers.accept);
  const identity = await services.identities.identify(exchange);
  exchange.staged('identify');
  const { query, extensions, operationName, variables } = await readParameters(exchange);
  const text = await services.persisted.resolve(query, extensions);
  // Clients know this message: they send the text along with its digest then.
  if (text === null) return refusal([NOT_FOUND], negotiated, 200);
  try {
    const request = { text, operationName, variables, safe: exchange.method !== 'POST' };
    const sight = sightOf(services.policies.accessOf(identity), services.mirror.model);
    const payer = { caller: identity, from: exchange };
    const reading = await services.operations.read(request, sight, scope, (size, work) =>
      services.reads.budgets.inTurn(payer, size, work),
    );
    exchange.staged('parse');
    if (reading.kind === 'mutation' && reading.steps.some((step) => step.kind === 'call')) {
      const { body, called } = await runCalls(reading, (call) => callService(call, exchange, services.router()));
      return withCalled(success(body, negotiated), called);
    }
    if (reading.kind === 'mutation') {
      const body = await runMutation(
        reading,
        services.writes,
        writerOf(exchange, identity),
        services.reads.responseMemory,
      );
      exchange.staged('execute');
      return success(body, negotiated);
    }
    if (reading.constant) return success(constantBody(reading.parsed), negotiated);
    const { parsed } = reading;
    const whole = reading.calls.length > 0 ? await withCalls(reading, exchange, services.router()) : parsed;
    return await runQuery({ exchange, reading, reads: services.reads, identity, negotiated }, whole);
  } catch (error) {
    return reportFailure(error, negotiated);
  }
}

interface Query {
  readonly exchange: Exchange;
  readonly reading: ParsedQueryDocument;
  readonly reads: Reads;
  readonly identity: Identity;
  readonly negotiated: Negotiated;
}

/** Answers with the body in the moment in which it arrives: it is lent. */
class QueryWaiter implements ReadListener {
  readonly #query: Query;
  readonly #parsed: ParsedOperation;

  constructor(query: Query, parsed: ParsedOperation) {
    this.#query = query;
    this.#parsed = parsed;
  }

  get aborted(): boolean {
    return this.#query.exchange.aborted;
  }

  get caller(): string {
    return callerName(this.#query.identity, this.#query.exchange);
  }

  onResult(body: Buffer | null): void {
    const { exchange, negotiated } = this.#query;
    exchange.staged('execute');
    exchange.respond(success(body ?? '', negotiated));
  }

  onError(error: unknown): void {
    const { exchange, negotiated } = this.#query;
    try {
      exchange.respond(runRest(this.#query, this.#parsed, error));
    } catch (failed) {
      exchange.respond(Promise.resolve().then(() => reportFailure(failed, negotiated)));
    }
  }
}

function runQuery(query: Query, parsed: ParsedOperation): Outcome {
  const { exchange, reads, identity, negotiated } = query;
  if (isConstant(parsed)) return success(constantBody(parsed), negotiated);
  try {
    const compiled = reads.prepare(parsed, identity, exchange);
    if (!(compiled instanceof Promise)) return sendQuery(query, parsed, compiled);
    return compiled.then(
      (made) => sendQuery(query, parsed, made),
      (error: unknown) => runRest(query, parsed, error),
    );
  } catch (error) {
    return runRest(query, parsed, error);
  }
}

function sendQuery(query: Query, parsed: ParsedOperation, compiled: Compiled): Outcome {
  const { exchange, reads, identity } = query;
  exchange.staged('compile');
  const explain = preference(exchange.headers.prefer);
  if (explain) onlyAdministrator(identity);
  if (explain) return explainItems(parsed, compiled, identity, reads, explain === 'explain=analyze');
  reads.answer(parsed, compiled, identity, new QueryWaiter(query, parsed));
  return DEFERRED;
}

/** Root fields that may be null fail alone: the others are read without them. */
function runRest(query: Query, parsed: ParsedOperation, error: unknown): Outcome {
  const { roots } = query.reading;
  if (!(error instanceof FailedParts)) {
    const [only, ...others] = roots;
    throw error instanceof ServiceError && only && others.length === 0 ? new FieldFailure(error, only.place) : error;
  }
  let rest = parsed;
  for (const { position, cause } of error.parts) {
    const root = roots[position];
    if (!(cause instanceof ServiceError) || !root) throw cause;
    if (!root.nullable) throw new FieldFailure(cause, root.place);
    rest = withoutPart(rest, position, cause, root.place);
  }
  return runQuery(query, rest);
}

function isConstant({ request }: ParsedOperation): boolean {
  return request.parts.every((part) => part.kind === 'json');
}

/** What other routes say takes its place among the values. */
async function withCalls(reading: ParsedQueryDocument, exchange: Exchange, router: Router): Promise<ParsedOperation> {
  let { parsed } = reading;
  for (const { position, call } of reading.calls) {
    const part = parsed.request.parts[position];
    const root = reading.roots[position];
    if (part?.kind !== 'json' || !root) throw new Error('what a route says is JSON');
    try {
      const { text } = await callService(call, exchange, router);
      parsed = { ...parsed, values: parsed.values.with(part.value, text) };
    } catch (error) {
      if (!(error instanceof ServiceError) || error.status >= 500) throw error;
      parsed = withoutPart(parsed, position, error, root.place);
    }
  }
  return parsed;
}

function withCalled(reply: Reply, called: readonly Called[]): Reply {
  const headers = Object.assign({}, ...called.map((each) => each.headers)) as Reply['headers'];
  return { ...reply, ...(headers ? { headers } : {}), secret: called.some((each) => each.secret) };
}

/** A field that may be null gives way to its error; the others are read all the same. */
function withoutPart(
  parsed: ParsedOperation,
  position: number,
  error: ServiceError,
  place: FieldPlace,
): ParsedOperation {
  const values = [...parsed.values, 'null', JSON.stringify(responseError(error, place))];
  const parts = parsed.request.parts.map((part, index) =>
    index === position
      ? ({ kind: 'json', name: part.name, value: values.length - 2, error: values.length - 1 } as const)
      : part,
  );
  const request = { kind: 'operation', parts } as const;
  return { request, values, shape: JSON.stringify(request) };
}

/** An answer that needs no statement. */
function constantBody({ request, values }: ParsedOperation): string {
  const entries: string[] = [];
  const errors: string[] = [];
  for (const part of request.parts) {
    if (part.kind !== 'json') throw new Error('the answer is not known beforehand');
    entries.push(`${JSON.stringify(part.name)}:${values[part.value]}`);
    if (part.error !== null) errors.push(String(values[part.error]));
  }
  return `{"data":{${entries.join(',')}}${errors.length > 0 ? `,"errors":[${errors.join(',')}]` : ''}}`;
}

/** Errors of the service and of what was asked are part of the answer; what is wrong with the server is not. */
function reportFailure(error: unknown, negotiated: Negotiated): Reply {
  if (error instanceof DocumentFailure) return refusal(error.errors, negotiated);
  if (error instanceof UnsafeMethod) return notAllowed('A mutation needs POST', 'POST');
  const [cause, place] = error instanceof FieldFailure ? [error.cause, error.place] : [error, null];
  if (!(cause instanceof ServiceError) || cause.status >= 500 || cause.code === 'METHOD_NOT_ALLOWED') throw cause;
  return failure([responseError(cause, place)], negotiated);
}
