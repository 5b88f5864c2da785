/** Root fields that stand for actions of REST routes: GraphQL calls the same functions with its arguments. */
import { writeJson } from '../../base/exact-json.js';
import { type Call, project } from '../../graphql/calls.js';
import { routeKey } from '../../graphql/system-fields.js';
import type { Exchange } from '../../http/exchange.js';
import type { Route } from '../../http/router.js';
import type { ActionResult, ActionRoute, RouteAction } from '../action.js';

export type Actions = ReadonlyMap<string, RouteAction>;

export function actionsOf(routes: readonly Route[]): Actions {
  const isAction = (route: Route): route is ActionRoute => 'action' in route;
  return new Map(routes.filter(isAction).map(({ method, path, action }) => [routeKey(method, path), action]));
}

/** The result of an action, as far as it was selected. */
export interface Called extends Pick<ActionResult, 'headers' | 'secret'> {
  /** As JSON. */
  readonly text: string;
}

export async function callAction(call: Call, exchange: Exchange, actions: Actions): Promise<Called> {
  const action = actions.get(call.route);
  if (!action) throw new Error(`there is no action for ${call.route}`);
  const { parameters, queryString, body } = call;
  const { data, ...rest } = await action({
    client: exchange,
    parameters,
    queryString,
    // Numbers of arguments keep their digits; most actions take plain ones.
    json: async (parse = JSON.parse) => (body === undefined ? undefined : parse(writeJson(body))),
  });
  return { text: JSON.stringify(project(data === undefined ? call.otherwise : data, call.projection)), ...rest };
}
