/** Root fields of GraphQL that REST routes carry out: their arguments and types follow from the descriptions of the routes. */
import { writeJson } from '../../../base/exact-json.js';
import { type Call, project } from '../../../compiler/graphql/calls.js';
import type { SystemField } from '../../../compiler/graphql/field-binding.js';
import type { Exchange } from '../../http/exchange.js';
import type { ActionResult, ApiRoute, Description, GraphqlDescription, RouteAction } from '../action.js';
import { componentPath, MODE, type Schema } from '../openapi/json-schema.js';

export type Actions = ReadonlyMap<string, RouteAction>;

/** By the names of their fields. */
export function actionsOf(routes: readonly ApiRoute[]): Actions {
  return new Map(
    routes.flatMap(({ description, action }) =>
      description?.graphql && action ? [[description.graphql.name, action] as const] : [],
    ),
  );
}

export function systemFieldsOf(routes: readonly ApiRoute[]): SystemField[] {
  return routes.flatMap((route) => {
    const { description } = route;
    return description?.graphql ? [systemField(route, description, description.graphql)] : [];
  });
}

function systemField({ method, path }: ApiRoute, description: Description, graphql: GraphqlDescription): SystemField {
  const parameters = graphql.parameters ?? [...path.matchAll(/:(\w+)/g)].map(([, name = '']) => name);
  const isQuery = method === 'GET' && !graphql.mutation;
  const body = bodyOf(description, graphql);
  return {
    name: graphql.name,
    operation: isQuery ? 'query' : 'mutation',
    type: graphql.type ?? outputType(description),
    args: {
      ...Object.fromEntries(parameters.map((name) => [name, 'String!'])),
      ...argumentsOf(description, graphql, body),
    },
    parameters,
    body,
    once: graphql.once ?? false,
  };
}

function bodyOf({ body }: Description, { input, mutation }: GraphqlDescription): SystemField['body'] {
  if (input !== undefined) return 'data';
  if (mutation) return 'query';
  return body ? 'rest' : 'none';
}

function argumentsOf(
  { body = {}, parameters = [] }: Description,
  { input = '' }: GraphqlDescription,
  kind: SystemField['body'],
): Record<string, string> {
  if (kind === 'none') return {};
  if (kind === 'data') return { data: input };
  const { properties = {}, required } = body;
  const entries =
    kind === 'query'
      ? parameters.map(({ name, schema = {}, required }) => [name, inputType(schema, required === true)])
      : Object.entries(properties).map(([name, schema]) => [name, inputType(schema, isNamed(required, name))]);
  return Object.fromEntries(entries);
}

function isNamed(required: Schema['required'], name: string): boolean {
  return Array.isArray(required) && required.includes(name);
}

const SCALARS: Readonly<Record<string, string>> = {
  string: 'String',
  integer: 'Int',
  boolean: 'Boolean',
  object: 'JSON',
  'string,integer': 'ID',
};

function inputType(schema: Schema, required: boolean): string {
  return `${typeName(schema)}${required ? '!' : ''}`;
}

function typeName(schema: Schema): string {
  if (schema === MODE) return 'auth_mode';
  const { type, anyOf, items } = schema;
  // One or several: in GraphQL one value may stand for a list of it.
  const several = anyOf?.at(-1);
  if (several) return typeName(several);
  if (items) return `[${typeName(items)}]`;
  const scalar = SCALARS[String(type)];
  if (scalar === undefined) throw new Error(`GraphQL has no type for ${JSON.stringify(schema)}`);
  return scalar;
}

/** Components of the OpenAPI document that GraphQL has types for. */
const OBJECTS: Readonly<Record<string, string>> = {
  [componentPath('Tokens')]: 'auth_tokens',
  [componentPath('Collection')]: 'service_collections',
  [componentPath('Field')]: 'service_fields',
  [componentPath('Relation')]: 'service_relations',
};

/** The type of the answer's data; `true` stands for an answer without data. */
function outputType({ data, answers: [answer] = [] }: Description): string {
  if (!data) return answer?.content ? 'JSON' : 'Boolean';
  const { $ref, items, type } = data;
  if (items && OBJECTS[String(items['$ref'])]) return `[${OBJECTS[String(items['$ref'])]}!]`;
  return OBJECTS[String($ref)] ?? (type === 'string' ? 'String' : 'JSON');
}

/** The result of an action, as far as it was selected. */
export interface Called extends Pick<ActionResult, 'headers' | 'secret'> {
  /** As JSON. */
  readonly text: string;
}

export async function callAction(call: Call, exchange: Exchange, actions: Actions): Promise<Called> {
  const action = actions.get(call.name);
  if (!action) throw new Error(`there is no action for ${call.name}`);
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
