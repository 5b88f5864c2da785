/** Actions: what a REST route and a root field of GraphQL share. Each is a function of plain data that answers plain data. */
import { build } from 'fast-json-stringify';
import type { Exchange } from '../http/exchange.js';
import { jsonText, noContent, type Reply } from '../http/reply.js';
import type { Route } from '../http/router.js';

export interface ActionRequest {
  /** Whose credentials, cookies and address count. */
  readonly client: Exchange;
  /** The named segments of the path, decoded. */
  readonly parameters: readonly string[];
  readonly queryString: string;
  /** The body; `undefined` for none. Actions whose numbers are data bring a parser that keeps their digits. */
  json(parse?: (text: string) => unknown): Promise<unknown>;
}

export interface ActionResult {
  /** Left out where there is nothing to say. */
  readonly data?: unknown;
  readonly headers?: NonNullable<Reply['headers']>;
  /** Nobody on the way may keep the answer. */
  readonly secret?: boolean;
}

export type RouteAction = (request: ActionRequest) => ActionResult | Promise<ActionResult>;

/** A route whose action GraphQL may call too. */
export interface ActionRoute extends Route {
  readonly action: RouteAction;
}

export function actionRoute(
  method: string,
  path: string,
  action: RouteAction,
  reply: (result: ActionResult) => Reply = dataReply,
): ActionRoute {
  return {
    method,
    path,
    action,
    handle: (exchange) => {
      const result = action(requestOf(exchange));
      return result instanceof Promise ? result.then(reply) : reply(result);
    },
  };
}

function requestOf(exchange: Exchange): ActionRequest {
  const { parameters, queryString } = exchange;
  return { client: exchange, parameters, queryString, json: (parse) => exchange.json(parse) };
}

const dataBody = build({ type: 'object', properties: { data: {} } });

/** The data in the usual envelope. */
export function dataReply({ data, headers, secret = false }: ActionResult): Reply {
  const reply = data === undefined ? noContent : jsonText(dataBody({ data }));
  return { ...reply, ...(headers && { headers }), secret };
}
