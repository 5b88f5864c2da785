/** A query operation → one request: each root field a part of it, in the order of the document. */
import {
  type DocumentNode,
  type FieldNode,
  type GraphQLField,
  type GraphQLObjectType,
  isNonNullType,
  Kind,
  type OperationDefinitionNode,
} from 'graphql';
import { forbidden } from '../base/errors.js';
import { elementAt } from '../base/narrow.js';
import type { Steps } from '../base/time-slices.js';
import { NO_QUERY, type OperationPart, type Query, type ReadRequest, type ReadTarget } from '../request/ast.js';
import type { ParseLimits } from '../request/parse-context.js';
import { readVersion } from '../request/rest.js';
import { ValueList } from '../request/values.js';
import { type Codec, fits } from '../sql/codec.js';
import { splitKey } from '../sql/key-text.js';
import { type DocumentContext, parseQueryArguments } from './arguments.js';
import { type Call, parseCall } from './calls.js';
import type { CompleteSchema } from './complete-schema.js';
import { responseError, withPosition } from './failure.js';
import { objectTypeOf, rootBindingOf } from './field-binding.js';
import { parseFunctionCall } from './function-calls.js';
import { introspectAtOnce, introspectInSteps } from './introspection.js';
import type { ParsedQueryDocument, Root } from './parsed-document.js';
import { type Path, Selections } from './selections.js';
import type { Document } from './validate-document.js';

type Variables = Record<string, unknown>;

interface OperationInput {
  /** As coerced to their types. */
  readonly variables: Variables;
  /** As sent. */
  readonly sentVariables: Variables;
  /** The whole schema, where the document asks about it. */
  readonly completeSchema: CompleteSchema | null;
  /** Answers to `__schema` that were made before, by name. */
  readonly introspected: ReadonlyMap<string, string> | null;
}

export function parseQueryOperation(
  document: Document,
  operation: OperationDefinitionNode,
  raw: OperationInput,
  limits: ParseLimits,
): ParsedQueryDocument {
  const context: DocumentContext = { values: new ValueList(limits.nodes), limits, typed: true };
  const { schema } = document;
  const selections = new Selections({ ...document, variables: raw.variables }, context);
  const type = schema.getRootType(operation.operation);
  if (!type) throw new Error(`the schema has no ${operation.operation}`);
  const parts: OperationPart[] = [];
  const roots: Root[] = [];
  const calls: { position: number; call: Call }[] = [];
  for (const [name, nodes] of selections.collect(type, [operation.selectionSet])) {
    const position = selections.position(nodes[0], [name]);
    const field = type.getFields()[nodes[0].name.value];
    roots.push({ name, position, nullable: !field || !isNonNullType(field.type) });
    const binding = field && rootBindingOf(field);
    if (field && binding?.kind === 'service') {
      const args = selections.arguments(field, nodes[0], [name]);
      const call = withPosition(
        () => position,
        () => parseCall(binding.field, field.type, args, nodes, selections),
      );
      calls.push({ position: parts.length, call });
      parts.push(constant(name, 'null', context));
      continue;
    }
    const part = withPosition(
      () => position,
      () =>
        field
          ? parseRootField(name, field, nodes, selections, context)
          : constant(name, introspect(name, nodes, type, document, operation, raw), context),
    );
    parts.push(part);
  }
  const request = { kind: 'operation', parts } as const;
  return {
    kind: 'query',
    parsed: { request, values: context.values.done(), shape: JSON.stringify(request) },
    roots,
    calls,
  };
}

function fitsKey(codecs: readonly Codec[], key: string): boolean {
  const parts = codecs.length === 1 ? [key] : splitKey(key, codecs.length);
  return parts?.every((part, position) => fits(elementAt(codecs, position), part)) ?? false;
}

function constant(name: string, text: string, context: DocumentContext): OperationPart {
  return { kind: 'json', name, value: context.values.add(text), error: null };
}

function parseRootField(
  name: string,
  field: GraphQLField<unknown, unknown>,
  nodes: readonly [FieldNode, ...FieldNode[]],
  selections: Selections,
  context: DocumentContext,
): OperationPart {
  const [node] = nodes;
  const path: Path = [name];
  const binding = rootBindingOf(field);
  if (binding.kind === 'empty') return constant(name, 'null', context);
  if (binding.kind === 'function') {
    const request = parseFunctionCall(binding, field, nodes, selections, context, path);
    return { kind: 'read', name, request, missing: null };
  }
  const type = objectTypeOf(field);
  const args = selections.arguments(field, node, path);
  const read = (collection: string, target: ReadTarget, query: Query, missing: number | null = null): OperationPart => {
    const key = readVersion(args);
    const version = key === null ? {} : { version: context.values.add(key) };
    const request: ReadRequest = { kind: 'read', collection, target, query, export: false, ...version };
    return { kind: 'read', name, request, missing };
  };
  switch (binding.kind) {
    case 'list': {
      const query = parseQueryArguments(field, args, context);
      return read(binding.collection, { kind: 'list' }, { ...query, fields: selections.read(type, nodes, path) });
    }
    case 'singleton': {
      const query = { ...NO_QUERY, fields: selections.read(type, nodes, path) };
      if (readVersion(args) === null) return read(binding.collection, { kind: 'list' }, query);
      const missing = context.values.add(JSON.stringify(responseError(forbidden(), selections.position(node, path))));
      return read(binding.collection, { kind: 'list' }, query, missing);
    }
    case 'item': {
      const missing = context.values.add(JSON.stringify(responseError(forbidden(), selections.position(node, path))));
      // A key that its column cannot hold names no item; to PostgreSQL it would be an error of the whole statement.
      if (!fitsKey(binding.codecs, String(args['id'])))
        return { kind: 'json', name, value: context.values.add('null'), error: missing };
      const key = context.values.add(String(args['id']));
      const query = { ...NO_QUERY, fields: selections.read(type, nodes, path) };
      return read(binding.collection, { kind: 'item', key }, query, missing);
    }
    case 'aggregated': {
      const query = parseQueryArguments(field, args, context);
      const aggregate: NonNullable<Query['aggregate']>[number][] = [];
      const groupFields = selections.parseGroups(type, nodes, aggregate);
      // Rows that nothing is asked of are still one group.
      if (aggregate.length === 0 && !query.groupBy) aggregate.push({ function: 'countAll', field: null });
      return read(binding.collection, { kind: 'list' }, { ...query, aggregate, groupFields });
    }
    case 'me': {
      const missing = context.values.add(JSON.stringify(responseError(forbidden(), selections.position(node, path))));
      const key = context.values.add({ variable: '$CURRENT_USER' });
      const query = { ...NO_QUERY, fields: selections.read(type, nodes, path) };
      return read('service_users', { kind: 'item', key, known: true }, query, missing);
    }
    case 'my-roles': {
      const keys = context.values.add({ variable: '$CURRENT_ROLES' });
      const query = { ...NO_QUERY, fields: selections.read(type, nodes, path) };
      return read('service_roles', { kind: 'keys', keys }, query);
    }
    default:
      throw new Error(`a query cannot ${binding.kind}`);
  }
}

/** `__schema` and `__type` are all that graphql-js ever executes. */
function introspect(
  name: string,
  nodes: readonly [FieldNode, ...FieldNode[]],
  type: GraphQLObjectType,
  document: Document,
  operation: OperationDefinitionNode,
  { sentVariables, completeSchema, introspected }: OperationInput,
): string {
  if (nodes[0].name.value === '__typename') return JSON.stringify(type.name);
  const known = introspected?.get(name);
  if (known !== undefined) return known;
  const schema = completeSchema ?? document.schema;
  return JSON.stringify(introspectAtOnce(name, onlyField(nodes, document, operation), sentVariables, schema));
}

function onlyField(nodes: readonly FieldNode[], { node }: Document, operation: OperationDefinitionNode): DocumentNode {
  const only = { ...operation, selectionSet: { kind: Kind.SELECTION_SET, selections: nodes } } as const;
  const fragments = node.definitions.filter((each) => each.kind === Kind.FRAGMENT_DEFINITION);
  return { kind: Kind.DOCUMENT, definitions: [only, ...fragments] } as const;
}

/** The answers to each `__schema` of a query, by the names they have in the answer. */
export function* introspectSchema(
  document: Document,
  operation: OperationDefinitionNode,
  { variables, sentVariables, completeSchema }: OperationInput,
  limits: ParseLimits,
): Steps<ReadonlyMap<string, string>> {
  const answers = new Map<string, string>();
  const type = document.schema.getRootType(operation.operation);
  if (!type || !completeSchema) return answers;
  const context: DocumentContext = { values: new ValueList(limits.nodes), limits, typed: true };
  const selections = new Selections({ ...document, variables }, context);
  for (const [name, nodes] of selections.collect(type, [operation.selectionSet])) {
    if (nodes[0].name.value !== '__schema') continue;
    const asked = onlyField(nodes, document, operation);
    answers.set(name, yield* introspectInSteps(name, asked, sentVariables, completeSchema));
  }
  return answers;
}
