/** The root fields that an operation selects, and the request of one that calls a function of the database. */
import { type GraphQLField, type GraphQLObjectType, isNonNullType, type OperationDefinitionNode } from 'graphql';
import { NO_QUERY, type Query, type ReadRequest } from '../request/ast.js';
import { type ParseLimits, ValueList } from '../request/parse-context.js';
import { parseArguments } from '../request/rest.js';
import { type Arguments, type DocumentContext, parseQueryArguments } from './arguments.js';
import type { FieldPosition } from './failure.js';
import { type FunctionBinding, objectTypeOf } from './field-binding.js';
import { type FieldNodes, Selections } from './selections.js';
import type { Document } from './validate-document.js';

export type Variables = Readonly<Record<string, unknown>>;

/** An operation of a valid document, with the values of its variables. */
export interface Operation {
  readonly document: Document;
  readonly node: OperationDefinitionNode;
  /** As coerced to their types. */
  readonly variables: Variables;
  readonly limits: ParseLimits;
}

export interface Root {
  readonly name: string;
  readonly position: FieldPosition;
  /** Whether the response may have null in place of the field. */
  readonly nullable: boolean;
}

/** A root field as a document selects it. */
export interface SelectedRoot {
  readonly root: Root;
  readonly type: GraphQLObjectType;
  /** Undefined for the fields of introspection. */
  readonly field: GraphQLField<unknown, unknown> | undefined;
  readonly nodes: FieldNodes;
  readonly selections: Selections;
}

export interface DefinedRoot extends SelectedRoot {
  readonly field: GraphQLField<unknown, unknown>;
}

export function contextOf(limits: ParseLimits): DocumentContext {
  return { values: new ValueList(limits.nodes), limits, typed: true };
}

/** In the order of the document. Without a context, each field has its own values. */
export function selectedRoots(
  { document, node, variables, limits }: Operation,
  context: DocumentContext | null = null,
): SelectedRoot[] {
  const type = document.schema.getRootType(node.operation);
  if (!type) throw new Error(`the schema has no ${node.operation}`);
  const source = { ...document, variables };
  const collected = new Selections(source, contextOf(limits)).collect(type, [node]);
  return [...collected].map(([name, nodes]) => {
    const selections = new Selections(source, context ?? contextOf(limits));
    const field = type.getFields()[nodes[0].name.value];
    const root = { name, position: selections.position(nodes[0], [name]), nullable: !isNonNullType(field?.type) };
    return { root, type, field, nodes, selections };
  });
}

export function isDefined(selected: SelectedRoot): selected is DefinedRoot {
  return selected.field !== undefined;
}

export function argumentsOf({ root, field, nodes, selections }: DefinedRoot): Arguments {
  return selections.arguments(field, nodes[0], [root.name]);
}

export function parseFunctionCall(binding: FunctionBinding, selected: DefinedRoot): ReadRequest {
  const callArguments: Record<string, unknown> = {};
  const queryParameters: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(argumentsOf(selected)))
    (binding.arguments.includes(name) ? callArguments : queryParameters)[name] = value;
  const call = parseArguments(callArguments, true, selected.selections.context);
  const query = parseResult(binding, selected, queryParameters);
  return { kind: 'read', collection: binding.function, call, target: { kind: 'list' }, query, export: false };
}

function parseResult({ result, groups }: FunctionBinding, selected: DefinedRoot, queryParameters: Arguments): Query {
  if (result === 'nothing') return NO_QUERY;
  if (typeof result === 'object')
    return { ...NO_QUERY, fields: [{ kind: 'value', output: 'value', field: 'value', as: result.as }] };
  const { root, field, nodes, selections } = selected;
  const type = objectTypeOf(field);
  const query = result === 'list' ? parseQueryArguments(field, queryParameters, selections.context) : NO_QUERY;
  return groups
    ? selections.groups(type, nodes, query)
    : { ...query, fields: selections.read(type, nodes, [root.name]) };
}
