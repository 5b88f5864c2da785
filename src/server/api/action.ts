/**
 * Routes with one description each, from which three things are derived: the route itself with the check of its caller, its
 * operation in the OpenAPI document (openapi/document.ts) and its root field of GraphQL (graphql/actions.ts).
 */
import { build } from 'fast-json-stringify';
import type { Identities } from '../access/identities.js';
import { type Identity, onlyAdministrator, onlyUser, PUBLIC, type User } from '../access/identity.js';
import type { Exchange } from '../http/exchange.js';
import { jsonText, noContent, type Reply } from '../http/reply.js';
import type { Handler, Route } from '../http/router.js';
import type { Answer, Schema } from './openapi/json-schema.js';

export interface Description {
  readonly summary: string;
  /** Query parameters. */
  readonly parameters?: readonly Schema[];
  /** The JSON of the body. */
  readonly body?: Schema;
  /** Other media types of the body, with their schemas. */
  readonly media?: Schema;
  /** Whether the body may be left out. */
  readonly optional?: true;
  /** The JSON of the answer, in its envelope. Without `data` and `answers` the answer is 204. */
  readonly data?: Schema;
  readonly answers?: readonly Answer[];
  readonly graphql?: GraphqlDescription;
}

/** A root field of GraphQL with the same action. Arguments are the segments of the path and the properties of the body. */
export interface GraphqlDescription {
  readonly name: string;
  /** For a GET that does something: the parameters of the URL become arguments. */
  readonly mutation?: true;
  /** Names of the path's segments, if GraphQL has others. */
  readonly parameters?: readonly string[];
  /** If the argument `data` is the whole body: its type. */
  readonly input?: string;
  /** The type of the field, if the answer's schema does not say it. */
  readonly type?: string;
  /** An operation may contain the field once: many attempts in one request would bypass the limits. */
  readonly once?: true;
}

/** A route of the API: those with a description are in the OpenAPI document, those with an action may be called by GraphQL. */
export interface ApiRoute extends Route {
  readonly description?: Description;
  readonly action?: RouteAction;
}

export interface ActionRoute extends ApiRoute {
  readonly action: RouteAction;
}

export interface ActionRequest<Caller = unknown> {
  /** The request with the credentials, cookies and address of the client. */
  readonly client: Exchange;
  readonly caller: Caller;
  /** The named segments of the path, decoded. */
  readonly parameters: readonly string[];
  readonly queryString: string;
  /** The body; `undefined` for none. Actions whose numbers are data bring a parser that keeps their digits. */
  json(parse?: (text: string) => unknown): Promise<unknown>;
}

export interface ActionResult {
  /** Left out if there is nothing to say. */
  readonly data?: unknown;
  readonly headers?: NonNullable<Reply['headers']>;
  /** Caches may not keep the answer. */
  readonly secret?: boolean;
}

export type UncheckedRequest = Omit<ActionRequest, 'caller'>;
export type RouteAction = (request: UncheckedRequest) => ActionResult | Promise<ActionResult>;

/** The callers that may call a route. By default that is everyone, unless the action itself checks. */
interface Callers {
  readonly anyone: null;
  /** The public too, but not with credentials that are wrong. */
  readonly identified: Identity;
  readonly users: User;
  readonly administrators: Identity;
}

interface ActionDescription<Allowed extends keyof Callers> extends Description {
  readonly allow?: Allowed;
  /** The answer, if it is not the data in the usual envelope. */
  readonly reply?: (result: ActionResult) => Reply;
}

const CHECKS: { readonly [Allowed in keyof Callers]: (identity: Identity) => Callers[Allowed] } = {
  anyone: () => null,
  identified: (identity) => identity,
  users: onlyUser,
  administrators: onlyAdministrator,
};

export type MethodAndPath = `${string} /${string}`;

/** A route that works on the exchange itself, as those of items do. */
export function route(methodAndPath: MethodAndPath, handle: Handler, description: Description): ApiRoute {
  const [method = '', path = ''] = methodAndPath.split(' ');
  return { method, path, description, handle };
}

/** Makes the routes of a resource, whose actions are functions of the request and the given services. */
export function actionRoutes<Services extends { readonly identities: Identities }>(services: Services) {
  return <Allowed extends keyof Callers = 'anyone'>(
    methodAndPath: MethodAndPath,
    act: (request: ActionRequest<Callers[Allowed]>, services: Services) => ActionResult | Promise<ActionResult>,
    { allow, reply, ...description }: ActionDescription<Allowed>,
  ): ActionRoute => {
    // Without `allow`, the type of the caller is null.
    const check = CHECKS[allow ?? 'anyone'] as (identity: Identity) => Callers[Allowed];
    const action: RouteAction =
      allow === undefined
        ? (request) => act(withCaller(request, check(PUBLIC)), services)
        : async (request) =>
            act(withCaller(request, check(await services.identities.identify(request.client))), services);
    return { ...route(methodAndPath, handlerOf(action, reply), description), action };
  };
}

/** Named one by one: the spread of an object takes longer than most requests of this kind. */
function withCaller<Caller>(request: UncheckedRequest, caller: Caller): ActionRequest<Caller> {
  const { client, parameters, queryString } = request;
  return { client, caller, parameters, queryString, json: (parse) => request.json(parse) };
}

export function handlerOf(action: RouteAction, reply: (result: ActionResult) => Reply = dataReply): Handler {
  return (exchange) => {
    const { parameters, queryString } = exchange;
    const result = action({ client: exchange, parameters, queryString, json: (parse) => exchange.json(parse) });
    return result instanceof Promise ? result.then(reply) : reply(result);
  };
}

const dataBody = build({ type: 'object', properties: { data: {} } });

/** The data in the usual envelope. */
export function dataReply({ data, headers, secret = false }: ActionResult): Reply {
  const reply = data === undefined ? noContent : jsonText(dataBody({ data }));
  return { ...reply, ...(headers && { headers }), secret };
}
