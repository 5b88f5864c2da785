/** A mutation operation → steps: each root field one write, with its read-back. */
import {
  type FieldNode,
  type GraphQLField,
  type GraphQLInputType,
  type GraphQLObjectType,
  isInputObjectType,
  isListType,
  isNonNullType,
  type OperationDefinitionNode,
} from 'graphql';
import { invalidPayload, invalidQuery } from '../base/errors.js';
import { isObject } from '../base/exact-json.js';
import { NO_QUERY, type Parsed, type ReadRequest, type ReadTarget } from '../request/ast.js';
import { parseOnConflict } from '../request/on-conflict.js';
import type { Input, ParseLimits } from '../request/parse-context.js';
import { requestShape } from '../request/rest.js';
import { ValueList } from '../request/values.js';
import { requireObject, type WriteRequest } from '../request/write.js';
import { type Arguments, type DocumentContext, parseQueryArguments } from './arguments.js';
import { parseCall } from './calls.js';
import { FieldFailure, withPosition } from './failure.js';
import { isStaged, objectTypeOf, rootBindingOf } from './field-binding.js';
import { parseFunctionCall } from './function-calls.js';
import type { MutationStep, ParsedMutationDocument, Root } from './parsed-document.js';
import { type Path, Selections, setsOf } from './selections.js';
import type { Document } from './validate-document.js';

export function parseMutationOperation(
  document: Document,
  operation: OperationDefinitionNode,
  variables: Record<string, unknown>,
  limits: ParseLimits,
): ParsedMutationDocument {
  const type = document.schema.getMutationType();
  if (!type) throw new Error('the schema has no mutations');
  const source = { ...document, variables };
  const selections = new Selections(source, contextOf(limits));
  const once = new Set<string>();
  const steps = [...selections.collect(type, [operation.selectionSet])].map(([name, nodes]): MutationStep => {
    const position = selections.position(nodes[0], [name]);
    const field = type.getFields()[nodes[0].name.value];
    if (!field) return { kind: 'json', name, position, nullable: true, text: JSON.stringify(type.name) };
    const root: Root = { name, position, nullable: !isNonNullType(field.type) };
    const context = contextOf(limits);
    const binding = rootBindingOf(field);
    if (binding.kind === 'service' && binding.field.once && once.has(binding.field.name)) {
      throw new FieldFailure(invalidQuery(`"${binding.field.name}" can be used only once in an operation`), position);
    }
    if (binding.kind === 'service') once.add(binding.field.name);
    return withPosition(
      () => position,
      () => parseStep(root, field, nodes, new Selections(source, context), context),
    );
  });
  checkCalls(steps);
  return { kind: 'mutation', steps };
}

/** What routes carry out cannot be part of a transaction. */
function checkCalls(steps: readonly MutationStep[]): void {
  const call = steps.find((step) => step.kind === 'call');
  if (!call || steps.every((step) => step.kind === 'call' || step.kind === 'json')) return;
  throw new FieldFailure(
    invalidQuery(`"${call.name}" cannot be combined with writes of items in one operation: these are one transaction`),
    call.position,
  );
}

function contextOf(limits: ParseLimits): DocumentContext {
  return { values: new ValueList(limits.nodes), limits, typed: true };
}

function parseStep(
  root: Root,
  field: GraphQLField<unknown, unknown>,
  nodes: readonly [FieldNode, ...FieldNode[]],
  selections: Selections,
  context: DocumentContext,
): MutationStep {
  const binding = rootBindingOf(field);
  const path = [root.name];
  if (binding.kind === 'function') {
    const request = parseFunctionCall(binding, field, nodes, selections, context, path);
    const query = { request, values: context.values.done(), shape: requestShape(request), format: null };
    return { ...root, kind: 'function', query };
  }
  const args = selections.arguments(field, nodes[0], path);
  const payload = (): unknown => {
    const argument = field.args.find((each) => each.name === 'data');
    return argument ? parsePayload(args['data'], argument.type, 'data') : undefined;
  };
  const data = (): Input => requireObject(payload(), '"data"');
  const list = (): Input[] => {
    const items = payload();
    return Array.isArray(items) ? items.map((item) => requireObject(item, '"data"')) : [];
  };
  const written = (
    collection: string,
    readable: boolean,
    many: boolean,
  ): { collection: string; readBack: Parsed | null } => ({
    collection,
    readBack: readable ? parseReadBack(collection, many, field, args, nodes, selections, context, path) : null,
  });
  const write = (request: WriteRequest, text: string | null = null): MutationStep => ({
    ...root,
    kind: 'write',
    request,
    text,
  });
  switch (binding.kind) {
    case 'create': {
      const items = binding.many ? list() : [data()];
      const { collection, many, readable } = binding;
      const { on_conflict: columns = null, resolution = null } = args;
      const onConflict = parseOnConflict(columns as string[] | null, resolution as string | null);
      const readBack = written(collection, readable, many);
      return write({ kind: 'create', items, many, idempotencyKey: null, onConflict, ...readBack });
    }
    case 'batch': {
      const items = list();
      return write({ kind: 'update-each', items, ...written(binding.collection, binding.readable, true) });
    }
    case 'update': {
      const { collection, many, readable } = binding;
      const keys = keysOf(args, many);
      const target = written(collection, readable, many);
      if (!many) return write({ kind: 'update-item', key: String(args['id']), data: data(), ...target });
      const selected = { kind: 'keys', keys } as const;
      return write({ kind: 'update-selected', selected, data: data(), ...target });
    }
    case 'update-singleton': {
      const { collection, readable } = binding;
      return write({ kind: 'update-singleton', data: data(), ...written(collection, readable, false) });
    }
    case 'delete': {
      const { collection, many } = binding;
      const keys = keysOf(args, many);
      const type = objectTypeOf(field);
      const text = deletedText(type, nodes, keys, many, selections);
      return write({ kind: 'delete', collection, selected: { kind: 'keys', keys } }, text);
    }
    case 'service':
      return { ...root, kind: 'call', call: parseCall(binding.field, field.type, args, nodes, selections) };
    case 'update-me':
      return {
        ...root,
        kind: 'update-me',
        data: data(),
        readBack: written('service_users', binding.readable, false).readBack,
      };
    default:
      throw new Error(`a mutation cannot ${binding.kind}`);
  }
}

function keysOf({ id, ids }: Arguments, many: boolean): string[] {
  if (!many) return [String(id)];
  return Array.isArray(ids) ? ids.filter((each) => each !== null).map(String) : [];
}

/** Keys are known before anything is deleted, so is the answer. */
function deletedText(
  type: GraphQLObjectType,
  nodes: readonly FieldNode[],
  keys: readonly string[],
  many: boolean,
  selections: Selections,
): string {
  const entries = [...selections.collect(type, setsOf(nodes))].map(([output, [node]]) => [
    output,
    node.name.value === '__typename' ? type.name : many ? keys : keys[0],
  ]);
  return JSON.stringify(Object.fromEntries(entries));
}

const QUERY_ARGUMENTS = ['filter', 'sort', 'limit', 'offset', 'page', 'search'] as const;

/** In the order in which they were written, unless the arguments say otherwise. */
function parseReadBack(
  collection: string,
  many: boolean,
  field: GraphQLField<unknown, unknown>,
  args: Arguments,
  nodes: readonly FieldNode[],
  selections: Selections,
  context: DocumentContext,
  path: Path,
): Parsed {
  const keys = context.values.add(null);
  const isQueried = many && QUERY_ARGUMENTS.some((name) => args[name] !== undefined && args[name] !== null);
  const query = isQueried ? parseQueryArguments(field, { limit: -1, ...args }, context) : NO_QUERY;
  const target: ReadTarget = !many
    ? { kind: 'item', key: keys, known: true }
    : isQueried
      ? { kind: 'keys', keys, known: true }
      : { kind: 'written', keys };
  const fields = selections.read(objectTypeOf(field), nodes, path);
  const request: ReadRequest = { kind: 'read', collection, target, query: { ...query, fields }, export: false };
  return { request, values: context.values.done(), shape: requestShape(request), format: null };
}

const STAGES: ReadonlySet<string> = new Set(['create', 'update', 'delete']);

/** The payload as REST knows it: a list of one entry with stages is the detailed form. */
function parsePayload(value: unknown, input: GraphQLInputType, path: string): unknown {
  const type = isNonNullType(input) ? input.ofType : input;
  if (value === null || value === undefined) return value;
  if (isListType(type)) {
    if (!Array.isArray(value)) return value;
    const staged = parseStages(value, type.ofType, path);
    return staged ?? value.map((each, position) => parsePayload(each, type.ofType, `${path}.${position}`));
  }
  if (!isInputObjectType(type) || !isObject(value)) return value;
  const fields = type.getFields();
  const entries = Object.entries(value).map(([key, inner]): [string, unknown] => {
    const field = fields[key];
    return [key, field ? parsePayload(inner, field.type, `${path}.${key}`) : inner];
  });
  if (isStaged(type) && entries.some(([key]) => STAGES.has(key)))
    throw invalidPayload(`"${path}" mixes fields of an item with create, update and delete`);
  return Object.fromEntries(entries);
}

function parseStages(list: readonly unknown[], input: GraphQLInputType, path: string): Input | null {
  const type = isNonNullType(input) ? input.ofType : input;
  const [only] = list;
  if (!isInputObjectType(type) || !isStaged(type) || list.length !== 1 || !isObject(only)) return null;
  const keys = Object.keys(only);
  if (keys.length === 0 || !keys.every((key) => STAGES.has(key))) return null;
  const { create, update, delete: removed } = only;
  const items = (stage: string, entries: unknown): unknown[] =>
    listOf(entries).map((each, position) => parsePayload(each, type, `${path}.${stage}.${position}`));
  return { create: items('create', create), update: items('update', update), delete: listOf(removed) };
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}
