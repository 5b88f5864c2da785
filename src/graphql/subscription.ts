/** A subscription to the changes of a collection → what is read of changed items, and how an event is written. */
import type { FieldNode, OperationDefinitionNode } from 'graphql';
import { NO_QUERY, type ReadRequest, type ShapedSelection } from '../request/ast.js';
import type { ParseLimits } from '../request/parse-context.js';
import { requestShape } from '../request/rest.js';
import { ValueList } from '../request/values.js';
import type { DocumentContext } from './arguments.js';
import { withPosition } from './failure.js';
import { bindingOf, fieldOfType, objectTypeOf, rootBindingOf } from './field-binding.js';
import type { EventMember, ParsedEventsDocument } from './parsed-document.js';
import { Selections, setsOf } from './selections.js';
import type { Document } from './validate-document.js';

/** Null where the operation subscribes to a query. */
export function parseEvents(
  document: Document,
  operation: OperationDefinitionNode,
  variables: Record<string, unknown>,
  limits: ParseLimits,
): ParsedEventsDocument | null {
  const type = document.schema.getRootType(operation.operation);
  if (!type) throw new Error(`the schema has no ${operation.operation}`);
  const context: DocumentContext = { values: new ValueList(limits.nodes), limits, typed: true };
  const selections = new Selections({ ...document, variables }, context);
  // A valid subscription has one root field.
  for (const [name, nodes] of selections.collect(type, [operation.selectionSet])) {
    const field = type.getFields()[nodes[0].name.value];
    const binding = field && rootBindingOf(field);
    if (!field || binding?.kind !== 'mutated') return null;
    const keys = context.values.add([]);
    const { collection } = binding;
    const { fields, ...members } = withPosition(
      () => selections.position(nodes[0], [name]),
      () => parseMembers(objectTypeOf(field), nodes, name, selections),
    );
    const query = { ...NO_QUERY, fields };
    const request: ReadRequest = {
      kind: 'read',
      collection,
      target: { kind: 'keys', keys, known: true },
      query,
      export: false,
    };
    const changed = { request, values: context.values.done(), shape: requestShape(request), format: null };
    const { event } = selections.arguments(field, nodes[0], [name]);
    const change = event === 'create' || event === 'update' || event === 'delete' ? event : null;
    return { kind: 'events', collection, change, changed, output: { name, ...members } };
  }
  return null;
}

interface Members {
  readonly fields: readonly ShapedSelection[];
  readonly before: readonly EventMember[];
  readonly data: readonly string[];
  readonly after: readonly EventMember[];
}

function parseMembers(
  type: ReturnType<typeof objectTypeOf>,
  nodes: readonly FieldNode[],
  root: string,
  selections: Selections,
): Members {
  const fields: ShapedSelection[] = [];
  const before: EventMember[] = [];
  const after: EventMember[] = [];
  for (const [name, [node, ...others]] of selections.collect(type, setsOf(nodes))) {
    const add = (value: EventMember['value']): unknown => (fields.length === 0 ? before : after).push({ name, value });
    if (node.name.value === '__typename') {
      add({ text: type.name });
      continue;
    }
    const field = fieldOfType(type, node.name.value);
    const binding = bindingOf(field);
    if (binding.kind !== 'event') throw new Error(`an event cannot tell ${binding.kind}`);
    if (binding.part === 'data') {
      const read = selections.read(objectTypeOf(field), [node, ...others], [root, name]);
      fields.push({ kind: 'object', output: name, fields: read });
    } else add(binding.part);
  }
  const data = fields.map(({ output }) => output);
  // Whether the item may be seen is asked all the same.
  if (fields.length === 0) fields.push({ kind: 'constant', output: '_', text: '' });
  return { fields, before, data, after };
}
