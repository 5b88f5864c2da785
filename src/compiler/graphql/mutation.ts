/** A mutation operation → steps: each root field one write, with its read-back. */
import { type GraphQLInputType, isInputObjectType, isListType, isNonNullType } from 'graphql';
import { invalidPayload, invalidQuery } from '../../base/errors.js';
import { isObject } from '../../base/exact-json.js';
import { propertiesOf } from '../../base/narrow.js';
import { NO_QUERY, type Parsed, type ReadTarget } from '../request/ast.js';
import { parseOnConflict } from '../request/on-conflict.js';
import type { Input } from '../request/parse-context.js';
import { parsedRead } from '../request/rest.js';
import { Operated, UPDATE_OPERATORS, type UpdateOperator } from '../request/update-operators.js';
import { type IfMatch, parseIfMatch, requireObject, type WriteRequest } from '../request/write.js';
import { type Arguments, parseQueryArguments } from './arguments.js';
import { parseCall } from './calls.js';
import { FieldFailure, withPosition } from './failure.js';
import { isStaged, objectTypeOf, operatorOf, type RootBinding, rootBindingOf, writtenField } from './field-binding.js';
import type { MutationStep, ParsedMutationDocument } from './parsed-document.js';
import {
  argumentsOf,
  type DefinedRoot,
  isDefined,
  type Operation,
  parseFunctionCall,
  selectedRoots,
} from './root-fields.js';

export function parseMutationOperation(operation: Operation): ParsedMutationDocument {
  const once = new Set<string>();
  const steps = selectedRoots(operation).map((selected): MutationStep => {
    const { root, type } = selected;
    if (!isDefined(selected)) return { ...root, kind: 'json', text: JSON.stringify(type.name) };
    const binding = rootBindingOf(selected.field);
    if (binding.kind === 'service') {
      const { name } = binding.field;
      if (binding.field.once && once.has(name))
        throw new FieldFailure(invalidQuery(`"${name}" can be used only once in an operation`), root.position);
      once.add(name);
    }
    return withPosition(
      () => root.position,
      () => parseStep(selected, binding),
    );
  });
  checkCalls(steps);
  return { kind: 'mutation', steps };
}

/** The action of a route cannot be part of a transaction. */
function checkCalls(steps: readonly MutationStep[]): void {
  const call = steps.find((step) => step.kind === 'call');
  if (!call || steps.every((step) => step.kind === 'call' || step.kind === 'json')) return;
  throw new FieldFailure(
    invalidQuery(`"${call.name}" cannot be combined with writes of items in one operation: these are one transaction`),
    call.position,
  );
}

function parseStep(selected: DefinedRoot, binding: RootBinding): MutationStep {
  const { root, selections } = selected;
  switch (binding.kind) {
    case 'function': {
      const query = parsedRead(parseFunctionCall(binding, selected), selections.context.values);
      return { ...root, kind: 'function', query };
    }
    case 'service':
      return { ...root, kind: 'call', call: parseCall(binding.field, selected) };
    case 'delete': {
      const { collection, many } = binding;
      const args = argumentsOf(selected);
      const keys = keysOf(args, many);
      const ifMatch = ifMatchOf(args);
      const request = { kind: 'delete', collection, selected: { kind: 'keys', keys }, ifMatch } as const;
      return { ...root, kind: 'write', request, text: deletedText(selected, many ? keys : keys[0]) };
    }
    case 'update-me': {
      const args = argumentsOf(selected);
      const data = itemOf(selected, args);
      const readBack = binding.readable ? parseReadBack('service_users', false, selected, args) : null;
      return { ...root, kind: 'update-me', data, readBack };
    }
    case 'create':
    case 'batch':
    case 'update':
    case 'update-singleton':
      return { ...root, kind: 'write', request: parseWrite(binding, selected), text: null };
    default:
      throw new Error(`a mutation cannot ${binding.kind}`);
  }
}

type WriteBinding = Extract<RootBinding, { readonly collection: string; readonly readable: boolean }>;

function parseWrite(binding: WriteBinding, selected: DefinedRoot): WriteRequest {
  const { collection, readable } = binding;
  const args = argumentsOf(selected);
  // Operators are arguments of their own: objects in `data` are values.
  const written = (many: boolean): { collection: string; isLiteral: true; readBack: Parsed | null } => ({
    collection,
    isLiteral: true,
    readBack: readable ? parseReadBack(collection, many, selected, args) : null,
  });
  switch (binding.kind) {
    case 'create': {
      const { many } = binding;
      const items = many ? itemsOf(selected, args) : [itemOf(selected, args)];
      const { on_conflict: columns = null, resolution = null } = args;
      const onConflict = parseOnConflict(columns as string[] | null, resolution as string | null);
      return { kind: 'create', items, many, idempotencyKey: null, onConflict, ...written(many) };
    }
    case 'batch':
      return { kind: 'update-each', items: itemsOf(selected, args), ...written(true) };
    case 'update-singleton':
      return { kind: 'update-singleton', data: changesOf(selected, args), ifMatch: ifMatchOf(args), ...written(false) };
    default: {
      const { many } = binding;
      const target = written(many);
      const data = changesOf(selected, args);
      if (!many) return { kind: 'update-item', key: String(args['id']), data, ifMatch: ifMatchOf(args), ...target };
      return { kind: 'update-selected', selected: { kind: 'keys', keys: keysOf(args, many) }, data, ...target };
    }
  }
}

function ifMatchOf({ if_match: text }: Arguments): IfMatch | null {
  return typeof text === 'string' ? parseIfMatch(text) : null;
}

function payloadOf({ field }: DefinedRoot, args: Arguments): unknown {
  const argument = field.args.find((each) => each.name === 'data');
  return argument ? parsePayload(args['data'], argument.type, 'data') : undefined;
}

function itemOf(selected: DefinedRoot, args: Arguments): Input {
  return requireObject(payloadOf(selected, args), '"data"');
}

/** Values and operators. A field may have one of them. */
function changesOf(selected: DefinedRoot, args: Arguments): Input {
  const operated = UPDATE_OPERATORS.flatMap((operator) => {
    const argument = selected.field.args.find(({ name }) => name === operator);
    return argument ? operatedBy(operator, args[operator], argument.type) : [];
  });
  const isMissing = (args['data'] ?? null) === null;
  if (operated.length === 0 && isMissing)
    throw invalidPayload(`"data" is required, or one of ${UPDATE_OPERATORS.join(', ')}`);
  return withOperated(isMissing ? [] : Object.entries(itemOf(selected, args)), operated, '');
}

/** `path` leads to the item, with a dot behind it. */
function withOperated(
  values: readonly (readonly [string, unknown])[],
  operated: readonly (readonly [string, Operated])[],
  path: string,
): Input {
  const changes = new Map(values);
  for (const [name, value] of operated) {
    if (changes.has(name))
      throw invalidPayload(`"${path}${name}" has a value and an operator, or two operators: send one of them`);
    changes.set(name, value);
  }
  return Object.fromEntries(changes);
}

/** The operands of an operator, by the fields that they change. */
function operatedBy(
  operator: UpdateOperator,
  operands: unknown,
  input: GraphQLInputType,
): (readonly [string, Operated])[] {
  const type = isNonNullType(input) ? input.ofType : input;
  const fields = isInputObjectType(type) ? type.getFields() : {};
  return Object.entries(propertiesOf(operands)).map(([key, operand]) => {
    const field = fields[key];
    return [field ? writtenField(field) : key, new Operated(operator, operand)];
  });
}

function itemsOf(selected: DefinedRoot, args: Arguments): Input[] {
  return listOf(payloadOf(selected, args)).map((item) => requireObject(item, '"data"'));
}

function keysOf({ id, ids }: Arguments, many: boolean): string[] {
  if (!many) return [String(id)];
  return Array.isArray(ids) ? ids.filter((each) => each !== null).map(String) : [];
}

/** The keys are known before the deletion, and so is the response. */
function deletedText({ field, nodes, selections }: DefinedRoot, keys: unknown): string {
  const type = objectTypeOf(field);
  const entries = [...selections.collect(type, nodes)].map(([output, [node]]) => [
    output,
    node.name.value === '__typename' ? type.name : keys,
  ]);
  return JSON.stringify(Object.fromEntries(entries));
}

const QUERY_ARGUMENTS = ['filter', 'sort', 'limit', 'offset', 'page', 'search'] as const;

/** In the order in which they were written, unless the arguments say otherwise. */
function parseReadBack(collection: string, many: boolean, selected: DefinedRoot, args: Arguments): Parsed {
  const { root, field, nodes, selections } = selected;
  const { context } = selections;
  const keys = context.values.add(null);
  const isQueried = many && QUERY_ARGUMENTS.some((name) => args[name] !== undefined && args[name] !== null);
  const query = isQueried ? parseQueryArguments(field, { limit: -1, ...args }, context) : NO_QUERY;
  const target: ReadTarget = !many
    ? { kind: 'item', key: keys, known: true }
    : isQueried
      ? { kind: 'keys', keys, known: true }
      : { kind: 'written', keys };
  const fields = selections.read(objectTypeOf(field), nodes, [root.name]);
  return parsedRead({ kind: 'read', collection, target, query: { ...query, fields }, export: false }, context.values);
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
  const operated: (readonly [string, Operated])[] = [];
  const entries = Object.entries(value).flatMap(([key, inner]): [string, unknown][] => {
    const field = fields[key];
    if (!field) return [[key, inner]];
    const operator = operatorOf(field);
    if (operator) operated.push(...operatedBy(operator, inner, field.type));
    return operator ? [] : [[writtenField(field), parsePayload(inner, field.type, `${path}.${key}`)]];
  });
  if (isStaged(type) && entries.some(([key]) => STAGES.has(key)))
    throw invalidPayload(`"${path}" mixes fields of an item with create, update and delete`);
  return withOperated(entries, operated, `${path}.`);
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
