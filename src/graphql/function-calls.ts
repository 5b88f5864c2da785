/** A root field that calls a function → the request of the call: its arguments, and what is shown of the result. */
import type { FieldNode, GraphQLField } from 'graphql';
import { type Aggregate, NO_QUERY, type Query, type ReadRequest } from '../request/ast.js';
import { parseArguments } from '../request/rest.js';
import { type Arguments, type DocumentContext, parseQueryArguments } from './arguments.js';
import { type FunctionBinding, objectTypeOf } from './field-binding.js';
import type { Path, Selections } from './selections.js';

export function parseFunctionCall(
  binding: FunctionBinding,
  field: GraphQLField<unknown, unknown>,
  nodes: readonly [FieldNode, ...FieldNode[]],
  selections: Selections,
  context: DocumentContext,
  path: Path,
): ReadRequest {
  const callArguments: Record<string, unknown> = {};
  const queryParameters: Record<string, unknown> = {};
  const args: Arguments = selections.arguments(field, nodes[0], path);
  for (const [name, value] of Object.entries(args))
    (binding.arguments.includes(name) ? callArguments : queryParameters)[name] = value;
  const call = parseArguments(callArguments, true, context);
  const query = parseShown(binding, field, nodes, queryParameters, selections, context, path);
  return { kind: 'read', collection: binding.function, call, target: { kind: 'list' }, query, export: false };
}

function parseShown(
  { result, groups }: FunctionBinding,
  field: GraphQLField<unknown, unknown>,
  nodes: readonly FieldNode[],
  queryParameters: Arguments,
  selections: Selections,
  context: DocumentContext,
  path: Path,
): Query {
  if (result === 'nothing') return NO_QUERY;
  if (typeof result === 'object')
    return { ...NO_QUERY, fields: [{ kind: 'value', output: 'value', field: 'value', as: result.as }] };
  const type = objectTypeOf(field);
  const query = result === 'list' ? parseQueryArguments(field, queryParameters, context) : NO_QUERY;
  if (!groups) return { ...query, fields: selections.read(type, nodes, path) };
  const aggregate: Aggregate[] = [];
  const groupFields = selections.parseGroups(type, nodes, aggregate);
  // Rows that nothing is asked of are still one group.
  if (aggregate.length === 0 && !query.groupBy) aggregate.push({ function: 'countAll', field: null });
  return { ...query, aggregate, groupFields };
}
