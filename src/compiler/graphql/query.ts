/** A query → one request, with each root field as a part of it. A subscription to events → the read of changed items. */
import { type DocumentNode, type FieldNode, Kind } from 'graphql';
import { forbidden } from '../../base/errors.js';
import { elementAt } from '../../base/narrow.js';
import type { Steps } from '../../base/time-slices.js';
import { NO_QUERY, type OperationPart, type Query, type ReadTarget, type ShapedSelection } from '../request/ast.js';
import { parsedRead, readVersion } from '../request/rest.js';
import { type Codec, fits } from '../sql/codec.js';
import { splitKey } from '../sql/key-text.js';
import { type DocumentContext, parseQueryArguments } from './arguments.js';
import { type Call, parseCall } from './calls.js';
import { type CompleteSchema, introspectAtOnce, introspectInSteps } from './complete-schema.js';
import { responseError, withPosition } from './failure.js';
import { bindingOf, fieldOfType, objectTypeOf, type RootBinding, rootBindingOf } from './field-binding.js';
import type { EventMember, ParsedEventsDocument, ParsedQueryDocument } from './parsed-document.js';
import {
  argumentsOf,
  contextOf,
  type DefinedRoot,
  isDefined,
  type Operation,
  parseFunctionCall,
  type SelectedRoot,
  selectedRoots,
  type Variables,
} from './root-fields.js';

export interface QueryOperation extends Operation {
  /** As sent. */
  readonly sentVariables: Variables;
  /** The whole schema, if the document asks about it. */
  readonly completeSchema: CompleteSchema | null;
  /** Answers to `__schema` that were made before, by name. */
  readonly introspected: ReadonlyMap<string, string> | null;
}

export function parseQueryOperation(operation: QueryOperation): ParsedQueryDocument {
  const context = contextOf(operation.limits);
  const calls: { position: number; call: Call }[] = [];
  const selected = selectedRoots(operation, context);
  const parse = (each: SelectedRoot, position: number): OperationPart => {
    const { name } = each.root;
    if (!isDefined(each)) return constant(name, introspect(each, operation), context);
    const binding = rootBindingOf(each.field);
    if (binding.kind !== 'service') return parseRootField(each, binding);
    calls.push({ position, call: parseCall(binding.field, each) });
    return constant(name, 'null', context);
  };
  const parts = selected.map((each, position) =>
    withPosition(
      () => each.root.position,
      () => parse(each, position),
    ),
  );
  const request = { kind: 'operation', parts } as const;
  const parsed = { request, values: context.values.done(), shape: JSON.stringify(request) };
  return { kind: 'query', parsed, roots: selected.map(({ root }) => root), calls };
}

function fitsKey(codecs: readonly Codec[], key: string): boolean {
  const parts = codecs.length === 1 ? [key] : splitKey(key, codecs.length);
  return parts?.every((part, position) => fits(elementAt(codecs, position), part)) ?? false;
}

function constant(name: string, text: string, context: DocumentContext): OperationPart {
  return { kind: 'json', name, value: context.values.add(text), error: null };
}

function parseRootField(selected: DefinedRoot, binding: RootBinding): OperationPart {
  const { field, nodes, selections } = selected;
  const { name, position } = selected.root;
  const { context } = selections;
  const { values } = context;
  if (binding.kind === 'empty') return constant(name, 'null', context);
  if (binding.kind === 'function')
    return { kind: 'read', name, request: parseFunctionCall(binding, selected), missing: null };
  const type = objectTypeOf(field);
  const args = argumentsOf(selected);
  const withFields = (query: Query = NO_QUERY): Query => ({ ...query, fields: selections.read(type, nodes, [name]) });
  const addMissing = (): number => values.add(JSON.stringify(responseError(forbidden(), position)));
  const read = (collection: string, target: ReadTarget, query: Query, missing: number | null = null): OperationPart => {
    const key = readVersion(args);
    const version = key === null ? {} : { version: values.add(key) };
    return {
      kind: 'read',
      name,
      request: { kind: 'read', collection, target, query, export: false, ...version },
      missing,
    };
  };
  switch (binding.kind) {
    case 'list':
      return read(binding.collection, LIST, withFields(parseQueryArguments(field, args, context)));
    case 'aggregated':
      return read(binding.collection, LIST, selections.groups(type, nodes, parseQueryArguments(field, args, context)));
    case 'singleton':
      return read(binding.collection, LIST, withFields(), readVersion(args) === null ? null : addMissing());
    case 'item': {
      const missing = addMissing();
      const key = String(args['id']);
      // PostgreSQL would refuse the whole statement because of a key that its column cannot hold.
      if (!fitsKey(binding.codecs, key)) return { kind: 'json', name, value: values.add('null'), error: missing };
      return read(binding.collection, { kind: 'item', key: values.add(key) }, withFields(), missing);
    }
    case 'me': {
      const missing = addMissing();
      const key = values.add({ variable: '$CURRENT_USER' });
      return read('service_users', { kind: 'item', key, known: true }, withFields(), missing);
    }
    case 'my-roles': {
      const keys = values.add({ variable: '$CURRENT_ROLES' });
      return read('service_roles', { kind: 'keys', keys }, withFields());
    }
    default:
      throw new Error(`a query cannot ${binding.kind}`);
  }
}

const LIST: ReadTarget = { kind: 'list' };

/** graphql-js executes only `__schema` and `__type`. */
function introspect({ root, type, nodes }: SelectedRoot, operation: QueryOperation): string {
  if (nodes[0].name.value === '__typename') return JSON.stringify(type.name);
  const known = operation.introspected?.get(root.name);
  if (known !== undefined) return known;
  const schema = operation.completeSchema ?? operation.document.schema;
  return JSON.stringify(introspectAtOnce(root.name, onlyField(nodes, operation), operation.sentVariables, schema));
}

function onlyField(nodes: readonly FieldNode[], { document, node }: Operation): DocumentNode {
  const only = { ...node, selectionSet: { kind: Kind.SELECTION_SET, selections: nodes } } as const;
  const fragments = document.node.definitions.filter((each) => each.kind === Kind.FRAGMENT_DEFINITION);
  return { kind: Kind.DOCUMENT, definitions: [only, ...fragments] } as const;
}

/** The answers to each `__schema` of a query, by the names they have in the response. */
export function* introspectSchema(operation: QueryOperation): Steps<ReadonlyMap<string, string>> {
  const answers = new Map<string, string>();
  const { completeSchema, sentVariables } = operation;
  if (!completeSchema) return answers;
  for (const { root, nodes } of selectedRoots(operation)) {
    if (nodes[0].name.value !== '__schema') continue;
    const asked = onlyField(nodes, operation);
    answers.set(root.name, yield* introspectInSteps(root.name, asked, sentVariables, completeSchema));
  }
  return answers;
}

/** Returns null if the operation subscribes to a query. */
export function parseEvents(operation: Operation): ParsedEventsDocument | null {
  // A valid subscription has one root field.
  const [selected] = selectedRoots(operation);
  if (!selected || !isDefined(selected)) return null;
  const binding = rootBindingOf(selected.field);
  if (binding.kind !== 'mutated') return null;
  const { name, position } = selected.root;
  const { values } = selected.selections.context;
  const keys = values.add([]);
  const { collection } = binding;
  const { fields, ...members } = withPosition(
    () => position,
    () => parseMembers(selected),
  );
  const changed = parsedRead(
    {
      kind: 'read',
      collection,
      target: { kind: 'keys', keys, known: true },
      query: { ...NO_QUERY, fields },
      export: false,
    },
    values,
  );
  const { event } = argumentsOf(selected);
  const change = event === 'create' || event === 'update' || event === 'delete' ? event : null;
  return { kind: 'events', collection, change, changed, output: { name, ...members } };
}

interface Members {
  readonly fields: readonly ShapedSelection[];
  readonly before: readonly EventMember[];
  readonly data: readonly string[];
  readonly after: readonly EventMember[];
}

function parseMembers({ root, field: rootField, nodes, selections }: DefinedRoot): Members {
  const type = objectTypeOf(rootField);
  const fields: ShapedSelection[] = [];
  const before: EventMember[] = [];
  const after: EventMember[] = [];
  for (const [name, [node, ...others]] of selections.collect(type, nodes)) {
    const add = (value: EventMember['value']): unknown => (fields.length === 0 ? before : after).push({ name, value });
    if (node.name.value === '__typename') {
      add({ text: type.name });
      continue;
    }
    const field = fieldOfType(type, node.name.value);
    const binding = bindingOf(field);
    if (binding.kind !== 'event') throw new Error(`an event has no ${binding.kind}`);
    if (binding.part === 'data') {
      const read = selections.read(objectTypeOf(field), [node, ...others], [root.name, name]);
      fields.push({ kind: 'object', output: name, fields: read });
    } else add(binding.part);
  }
  const data = fields.map(({ output }) => output);
  // The read still decides whether the caller may see the item.
  if (fields.length === 0) fields.push({ kind: 'constant', output: '_', text: '' });
  return { fields, before, data, after };
}
